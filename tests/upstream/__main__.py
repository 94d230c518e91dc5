"""`python -m tests.upstream [SUITE …]`: LangGraph's own tests, with each way to create one of our savers."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import made_database, running_postgres
from tests.upstream.expected import EXPECTED, function_of
from tests.upstream.running import SUITES, Outcome, run


def main() -> int:
    """Run suites two at a time and print their counts; returns 1 if a result was unexpected."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=", ".join(SUITES))
    names = parser.parse_args().suites or list(SUITES)
    pairs = [(name, saver) for name in names for saver in SUITES[name].savers]
    surprised = False
    with running_postgres() as server, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(_run, name, saver, server) for name, saver in pairs]
        for (name, saver), future in zip(pairs, runs, strict=True):
            outcome = future.result()
            reasons = Counter(EXPECTED[name].get(function_of(test), "unexpected") for test in outcome.failed)
            print(f"{name} with {saver}: {len(outcome.passed)} passed, {len(outcome.failed)} failed", flush=True)
            for reason, count in reasons.items():
                print(f"  {count}: {reason}")
            for test, said in outcome.surprises(name).items():
                surprised = True
                print(f"  {test}\n    {said.strip().splitlines()[-1]}")
    return int(surprised)


def _run(name: str, saver: str, server: str) -> Outcome:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR"))))
        dsn = stack.enter_context(made_database(server))[1] if saver == "postgres" else ""
        return run(name, saver, folder, dsn=dsn, everything=True)


if __name__ == "__main__":
    raise SystemExit(main())
