"""`docs/command-line.md` has every command, and no command that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.cli.app import app
from langgraph_checkpoint_custom.operations.doctor import CHECKS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
GROUP: Any = typer.main.get_command(app)
COMMANDS = {name: command for name, command in GROUP.commands.items() if not command.hidden}
EXAMPLES = re.findall(r"^ *lgckpt (.*)$", DOCUMENT, re.MULTILINE)
# Options that are explained once for all commands.
COMMON = {"url", "schema", "tenant", "utc", "json", "yes", "dry-run", "limit", "before", "namespace", "full", "help"}


def test_every_command_is_explained_with_an_example() -> None:
    assert len(COMMANDS) > 20
    for name in COMMANDS:
        assert re.search(rf"`{name}[ `]", DOCUMENT), name
        assert any(example.split()[0] == name for example in EXAMPLES), name


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_command_with_its_options(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = example.split()[0]
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    for option in re.findall(r"(?<!\S)(--[a-z-]+)", example):
        assert option in text, option


def test_every_option_is_explained() -> None:
    for name, command in COMMANDS.items():
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option[2:] not in COMMON:
                    assert f"{option}" in DOCUMENT, f"{name} {option}"


def test_every_check_is_explained() -> None:
    for check in CHECKS:
        assert check.name in DOCUMENT


def test_every_command_has_json_but_the_demo_and_the_inspector() -> None:
    for name, command in COMMANDS.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) == (name not in ("demo", "ui")), name


def test_every_command_on_a_database_has_a_schema_option() -> None:
    for name, command in COMMANDS.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--schema" in options) == (name not in ("demo", "schema")), name


def test_destructive_commands_have_a_dry_run_and_ask() -> None:
    for name in ("prune", "delete", "rollback", "sweep", "erase"):
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {"--dry-run", "--yes"} <= options, name


def test_every_command_about_threads_has_a_tenant_option() -> None:
    for name, command in COMMANDS.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--tenant" in options) == (name not in ("demo", "setup", "verify", "schema", "tenants", "vacuum")), name
