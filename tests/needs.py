"""What tests need and a machine may lack: programs, packages, a network, rights, a cluster.

`need` skips a test that lacks something, with a warning. A run ends with a list of what was not tested for this reason;
`--not-tested FILE` writes the names of these tests to a file, for `python -m pytest @FILE` where nothing is missing.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")
# pyproject.toml admits the warnings that begin with this; all others are errors.
NOT_TESTED = "NOT TESTED without "


def need(found: T | None, what: str) -> T:
    """Return what a test needs. If nothing was found, skip the test, or the file that is being imported.

    Args:
        found: What was found; None and False say that it is missing.
        what: What it is, and how to get it.
    """
    __tracebackhide__ = True  # The caller's line is reported as the place of the skip.
    if not found:
        warnings.warn(NOT_TESTED + what, stacklevel=2)
        pytest.skip(NOT_TESTED + what, allow_module_level=True)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--not-tested`."""
    parser.addoption("--not-tested", metavar="FILE", type=Path, help="write the tests that lacked something to a file")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List what was missing, and how many tests of which files lacked it."""
    lacking: dict[str, set[str]] = defaultdict(set)
    for report in terminalreporter.getreports("skipped"):
        place, _, reason = report.longrepr
        _, _, what = reason.partition(NOT_TESTED)
        # Of the files of a package that skips them, xdist reports one.
        package = Path(place).parent if place.endswith("__init__.py") else None
        if what:
            lacking[what].add(str(package.relative_to(config.rootpath)) if package else report.nodeid)
    if lacking:
        terminalreporter.section(f"{NOT_TESTED}what is missing here")
    for what, names in sorted(lacking.items()):
        terminalreporter.line(what)
        for file, count in sorted(Counter(name.partition("::")[0] for name in names).items()):
            terminalreporter.line(f"    {file}" + (f": {count}" if file not in names else ""))
    if config.option.not_tested:
        config.option.not_tested.write_text("".join(f"{name}\n" for name in sorted(set().union(*lacking.values()))))
