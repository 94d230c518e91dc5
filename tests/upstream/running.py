"""Run the tests of one of LangGraph's packages with one of our savers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from tests.downloads import suite_of
from tests.upstream.expected import EXPECTED, TIMED, function_of
from tests.upstream.sources import copy_tests


@dataclass(frozen=True)
class Suite:
    """The files of a package whose tests make savers; `files` are globs."""

    package: str
    files: tuple[str, ...]
    savers: tuple[str, ...]
    options: tuple[str, ...] = ()


SUITES = {
    # Its tests use anyio, and pytest-asyncio would run their fixtures in separate loops.
    "langgraph": Suite("langgraph", ("test_*.py",), ("sqlite", "postgres"), ("-p", "no:asyncio")),
    "prebuilt": Suite("langgraph-prebuilt", ("test_react_agent.py", "test_tool_node.py"), ("sqlite", "postgres")),
    # The other tests of these three are about serializers and stores. `test_conformance_delta.py` needs what is not in
    # the corresponding conformance package; `tests/conformance` runs everything that is in it.
    "checkpoint": Suite("langgraph-checkpoint", ("test_memory.py",), ("sqlite", "postgres")),
    "checkpoint-postgres": Suite(
        "langgraph-checkpoint-postgres",
        ("test_async.py", "test_delta_p*.py", "test_prune.py", "test_sync.py"),
        ("postgres",),
    ),
    "checkpoint-sqlite": Suite(
        "langgraph-checkpoint-sqlite",
        ("test_*sqlite.py", "test_delta_*.py", "test_get_delta_channel_history.py", "test_writes_*.py"),
        ("sqlite",),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The results of the tests that made a saver, the errors of those that failed, and what to take off the list."""

    passed: frozenset[str]
    failed: Mapping[str, str]
    gone: frozenset[str] = frozenset()

    def surprises(self, name: str) -> dict[str, str]:
        """Unexpected results: tests that fail and should pass, that pass and should fail, or that no longer exist."""
        expected = EXPECTED[name]
        failures = {test: said for test, said in self.failed.items() if function_of(test) not in expected}
        failing = {function_of(test) for test in self.failed}
        passes = {function_of(test) for test in self.passed} & expected.keys() - failing
        gone = dict.fromkeys(self.gone, "does not exist: take it off the list")
        return {**failures, **dict.fromkeys(passes, "passes: take it off the list"), **gone}


def run(name: str, saver: str, folder: Path, *, dsn: str = "", everything: bool = False) -> Outcome:
    """Download a suite into a folder and run it in a separate process.

    An unexpected failure is run again, since some tests do not wait long enough for a busy machine.

    Args:
        name: One of `SUITES`.
        saver: "sqlite" or "postgres".
        folder: An empty folder.
        dsn: An empty database, which is filled.
        everything: With each way to make a saver instead of one, and with the tests that assert on time.
    """
    suite = SUITES[name]
    copy_tests(suite_of(f"{suite.package}=={version(suite.package)}", folder), folder)
    gone = frozenset(test for test in EXPECTED[name] if not _exists(test, folder))
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "LANGGRAPH_"))},
        "UPSTREAM_SAVER": saver,
        "UPSTREAM_DSN": dsn,
        "UPSTREAM_ALL": str(int(everything)),
    }
    files = sorted(str(file.relative_to(folder)) for glob in suite.files for file in (folder / "tests").glob(glob))
    timed = () if everything else TIMED.get(name, ())
    options = [*suite.options, *(f"--deselect={test}" for test in timed)]
    first = _pytest(folder, environment, [*options, *files])
    again = [_node(test) for test in first.failed if function_of(test) not in EXPECTED[name]]
    if not again:
        return replace(first, gone=gone)
    second = _pytest(folder, environment, [*options, *again])
    failed = {test: said for test, said in first.failed.items() if test not in second.passed}
    return Outcome(first.passed | second.passed, failed, gone)


def _exists(test: str, folder: Path) -> bool:
    """Whether a suite has a test, which it may skip."""
    module, *names = test.split("::")
    file = folder / "tests" / f"{module}.py"
    text = file.read_text("utf-8") if file.exists() else ""
    return all(re.search(rf"\b(?:class|def) {name}\b", text) for name in names)


def _pytest(folder: Path, environment: Mapping[str, str], arguments: Sequence[str]) -> Outcome:
    report = folder / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
    # 0 and 1 mean that the tests ran; 1 that some failed.
    assert done.returncode in (0, 1), f"pytest ended with {done.returncode}:\n{(done.stdout + done.stderr)[-5000:]}"
    passed = set()
    failed = {}
    for case in ElementTree.parse(report).iter("testcase"):
        # The name of a class follows that of the module.
        test = "::".join([*case.attrib["classname"].removeprefix("tests.").split("."), case.attrib["name"]])
        troubles = [*case.iter("failure"), *case.iter("error")]
        if troubles:
            failed[test] = "\n".join(str(trouble.text) for trouble in troubles)
        elif not [*case.iter("skipped")] and not [*case.iter("property")]:
            passed.add(test)
    return Outcome(frozenset(passed), failed)


def _node(test: str) -> str:
    module, _, rest = test.partition("::")
    return f"tests/{module}.py::{rest}"
