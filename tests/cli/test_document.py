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


def options_of(name: str) -> set[str]:
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


def test_every_option_is_explained() -> None:
    options = {option for name in COMMANDS for option in options_of(name) if option.startswith("--")}
    assert {option for option in options if option[2:] not in COMMON and option not in DOCUMENT} == set()


def test_every_check_is_explained() -> None:
    for check in CHECKS:
        assert check.name in DOCUMENT


@pytest.mark.parametrize(
    ("option", "without"),
    [
        ("--json", {"demo", "ui"}),
        ("--schema", {"demo", "schema"}),
        ("--tenant", {"demo", "setup", "verify", "schema", "tenants", "vacuum"}),
    ],
)
def test_every_command_has_the_option_but_these(option: str, without: set[str]) -> None:
    assert {name for name in COMMANDS if option not in options_of(name)} == without


def test_destructive_commands_have_a_dry_run_and_ask() -> None:
    for name in ("prune", "delete", "rollback", "sweep", "erase"):
        assert {"--dry-run", "--yes"} <= options_of(name), name
