"""LangGraph's own tests pass with our savers, except those for which `expected.py` has a reason."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import made_database
from tests.needs import need
from tests.upstream.running import SUITES, run

# Minimal counts; on Python 3.10, LangGraph skips some.
PASSED = {
    ("langgraph", "sqlite"): 800,
    ("langgraph", "postgres"): 800,
    ("prebuilt", "sqlite"): 40,
    ("prebuilt", "postgres"): 40,
    ("checkpoint", "sqlite"): 9,
    ("checkpoint", "postgres"): 9,
    ("checkpoint-postgres", "postgres"): 40,
    ("checkpoint-sqlite", "sqlite"): 25,
}


# A suite has more than a thousand tests, each with its own time limit.
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "saver"), PASSED, ids=[f"{name} with {saver}" for name, saver in PASSED])
def test_langgraphs_own_tests_pass_except_those_with_a_reason(
    name: str, saver: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need("CHECKPOINT_UPSTREAM" in os.environ, "CHECKPOINT_UPSTREAM=1, with which LangGraph's own tests are downloaded")
    assert saver in SUITES[name].savers
    with ExitStack() as stack:
        dsn = ""
        if saver == "postgres":
            dsn = stack.enter_context(made_database(request.getfixturevalue("postgres_dsn")))[1]
        outcome = run(name, saver, tmp_path, dsn=dsn)

    surprises = outcome.surprises(name)
    assert not surprises, "\n\n".join(f"{test}\n{said}" for test, said in surprises.items())
    assert len(outcome.passed) >= PASSED[name, saver]
