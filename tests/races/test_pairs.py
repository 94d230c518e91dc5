"""Two operations on one thread on PostgreSQL: the outcome is that of one of the two serial orders.

Nothing is random: the first operation's transaction stays open until the second one waits for it or is done.
SQLite has one writer at a time, so no transaction can stay open there during another.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.races.pairs import NAMING, OPERATIONS, PAIRS, Bench, beginnings, made_bench


@pytest.fixture(scope="module")
def bench(postgres_dsn: str, postgres_template: str) -> Iterator[Bench]:
    with made_bench(postgres_dsn, postgres_template) as made:
        yield made


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=map(" + ".join, PAIRS))
def test_two_concurrent_operations_have_the_outcome_of_one_serial_order(bench: Bench, first: str, second: str) -> None:
    problems = [bench.play(first, second, begun).problem for begun in beginnings(first, second)]
    assert not any(problems), "\n".join(filter(None, problems))


def test_a_prune_waits_for_another(bench: Bench) -> None:
    """Shows that a pair meets: the transaction of the first is open when the second begins."""
    assert bench.play("prune", "prune", "plain").waited


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_row_may_come_before_each_statement(bench: Bench, name: str) -> None:
    """A call that never waits comes completely before or after the operation, although it may be seen late."""
    problems = []
    for begun in beginnings(name, name):
        positions = ["newest"] if begun == "delta" else ["newest", "between", *(["named"] if name in NAMING else [])]
        for which in positions:
            for before in count():
                played = bench.play_with_row(name, begun, before, which)
                if played is None:
                    assert before > 3  # The operation was played.
                    break
                problems.append(played.problem)
    assert not any(problems), "\n".join(filter(None, problems))
