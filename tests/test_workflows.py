"""The workflows call what exists: recipes of the justfile, `.ci/run`, extras, jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

# What a job may do beside reading: publish the site, and prove to the package index which workflow it is.
MAY_WRITE = {
    "ci.yml": {},
    "release.yml": {"publish": {"id-token": "write"}},
    "site.yml": {"deploy": {"pages": "write", "id-token": "write"}},
}


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    for job in jobs.values():
        needed = job.get("needs", [])
        assert {needed} if isinstance(needed, str) else set(needed) <= jobs.keys()
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_what_exists(workflow: Path) -> None:
    recipes = set(re.findall(r"^([\w-]+)(?: \*\w+)?:", (ROOT / "justfile").read_text("utf-8"), re.MULTILINE))
    extras = set(re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE))
    found = steps(workflow)
    assert all(("uses" in step) != ("run" in step) for step in found)
    commands = "\n".join(step.get("run", "") for step in found)
    assert set(re.findall(r"^just ([\w-]+)", commands, re.MULTILINE)) <= recipes
    assert {extra for each in re.findall(r"'\.\[([\w,-]+)\]'", commands) for extra in each.split(",")} <= extras
    assert all((ROOT / path).exists() for path in re.findall(r"^bash (\S+)", commands, re.MULTILINE))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_pinned_actions_and_may_do_little(workflow: Path) -> None:
    """A tag of an action can be moved to other code, a commit cannot."""
    program = yaml.safe_load(workflow.read_text("utf-8"))
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [action for action in actions if not re.search("@[0-9a-f]{40}$", action)] == []
    assert program["permissions"] == {"contents": "read"}
    jobs = {name: job["permissions"] for name, job in program["jobs"].items() if "permissions" in job}
    assert jobs == MAY_WRITE[workflow.name]


def test_there_are_workflows_for_tests_release_and_site() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml", "site.yml"]
    assert "bash .ci/run" in WORKFLOWS[0].read_text("utf-8")
