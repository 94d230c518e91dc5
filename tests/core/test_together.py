"""Steps that run side by side share their round trips, and each receives its own replies; steps inside others."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_checkpoint_custom.engine.operation import Offload, RoundTrip, Statement, Steps, follow, through, together


def asking(name: str, sizes: list[int]) -> Steps[tuple[str, list[Any]]]:
    """Make a round trip of each of these numbers of statements; 0 is work instead."""
    replies = []
    for number, size in enumerate(sizes):
        if size:
            replies.append((yield RoundTrip([Statement(f"{name} {number} {each}", "", ()) for each in range(size)])))
        else:
            replies.append((yield Offload(1, lambda: "done")))
    return name, replies


def answered(steps: Steps[Any]) -> tuple[Any, list[int]]:
    """What steps return if each statement is answered by its name, and the sizes of their round trips."""
    sizes: list[int] = []
    reply: Any = None
    while True:
        try:
            request = steps.send(reply)
        except StopIteration as end:
            return end.value, sizes
        if isinstance(request, Offload):
            reply = request.work()
        else:
            sizes.append(len(request.statements))
            reply = [[statement.name] for statement in request.statements]


def test_steps_that_run_side_by_side_share_round_trips() -> None:
    shapes = {"none": [], "one": [1], "three": [2, 0, 1, 3], "work": [0], "two": [1, 1]}
    alone = [answered(asking(name, sizes))[0] for name, sizes in shapes.items()]
    found, sizes = answered(together([asking(name, sizes) for name, sizes in shapes.items()]))
    assert found == alone
    assert sizes == [1 + 2 + 1, 1 + 1, 3]
    assert answered(together([])) == ([], [])


def test_an_error_ends_all_of_them() -> None:
    ended = []

    def waits() -> Steps[None]:
        try:
            yield RoundTrip([Statement("a", "", ())])
        finally:
            ended.append("waits")

    def fails() -> Steps[None]:
        yield RoundTrip([Statement("b", "", ())])
        raise LookupError

    with pytest.raises(LookupError):
        answered(together([waits(), fails(), waits()]))
    assert ended == ["waits", "waits"]


def test_steps_inside_others_receive_the_errors_of_their_requests() -> None:
    def dividing() -> Steps[str]:
        try:
            yield Offload(1, lambda: 1 / 0)
        except ZeroDivisionError:
            return "caught"
        return "not raised"

    def passed_on(request: RoundTrip | Offload) -> Steps[Any]:
        return (yield request)

    def work(request: RoundTrip | Offload) -> Any:
        assert isinstance(request, Offload)
        return request.work()

    assert follow(through(dividing(), passed_on), work) == "caught"
