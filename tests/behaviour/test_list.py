"""`list`: newest first, in any combination of thread, namespace, id, `before`, `limit` and `filter`."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom import ConfigError, open_saver
from langgraph_checkpoint_custom.saver import PAGE
from tests.behaviour.helpers import (
    CountingSerializer,
    NextId,
    anywhere,
    config,
    get,
    ids_of,
    metadata,
    next_uuid,
    put,
    put_chain,
)
from tests.stores import Face, Store

MANY = 2 * PAGE + 7


async def test_the_newest_comes_first(face: Face, next_id: NextId) -> None:
    ids = [next_id() for _ in range(12)]
    for checkpoint_id in random.Random(1).sample(ids, len(ids)):
        await put(face, checkpoint_id)
    for where in (config(), anywhere(), None):
        assert ids_of(await face.all(where)) == ids[::-1], where


async def test_what_it_gives_is_what_get_gives(face: Face) -> None:
    for where in await put_chain(face, next_uuid, 3, values={"list": [1], "text": "a"}):
        await face.put_writes(where, [("a", 1)], "task")
    for found in await face.all(config()):
        assert found == await get(face, found.config)


async def test_without_a_namespace_all_of_them(face: Face) -> None:
    for number, ns in enumerate(["", "sub", "sub:1", "", "sub"]):
        await put(face, str(number), ns=ns)
    await put(face, "9", thread_id="other")
    assert ids_of(await face.all(anywhere())) == ["4", "3", "2", "1", "0"]
    assert ids_of(await face.all(config(ns=None))) == ["4", "3", "2", "1", "0"]
    assert ids_of(await face.all(config(ns="sub"))) == ["4", "1"]
    assert ids_of(await face.all(config(ns=""))) == ["3", "0"]


async def test_without_a_config_all_threads(face: Face) -> None:
    places = [("t", ""), ("u", "sub"), ("t", "sub"), ("v", ""), ("u", "")]
    for number, (thread_id, ns) in enumerate(places):
        await put(face, str(number), thread_id=thread_id, ns=ns)
    found = await face.all(None)
    assert [each.config for each in found] == [
        config(thread_id, str(number), ns) for number, (thread_id, ns) in reversed(list(enumerate(places)))
    ]


async def test_a_thread_that_is_not_there_is_empty(face: Face) -> None:
    await put(face, "1")
    assert await face.all(config("nobody")) == []
    assert await face.all(config(ns="nowhere")) == []
    assert await face.all(config(checkpoint_id="2")) == []


async def test_with_a_checkpoint_id_that_one(face: Face, next_id: NextId) -> None:
    ids = ids_of(await put_chain(face, next_id, 3))
    await put(face, ids[1], ns="sub")
    await put(face, f"{ids[1]}x")
    anywhere: RunnableConfig = {"configurable": {"thread_id": "thread", "checkpoint_id": ids[1]}}
    assert [found.config for found in await face.all(anywhere)] == [
        config("thread", ids[1], "sub"),
        config("thread", ids[1]),
    ]
    assert ids_of(await face.all(config(checkpoint_id=ids[1]))) == [ids[1]]
    assert ids_of(await face.all(config(checkpoint_id=ids[1]), before=config(checkpoint_id=ids[2]))) == [ids[1]]
    assert await face.all(config(checkpoint_id=ids[1]), before=config(checkpoint_id=ids[1])) == []


async def test_before_comes_as_a_config_or_flat(face: Face, next_id: NextId) -> None:
    ids = ids_of(await put_chain(face, next_id, 4))
    flat: Any = {"checkpoint_id": ids[2]}
    other_thread = config("other", ids[2], "elsewhere")
    for before in (config(checkpoint_id=ids[2]), flat, other_thread):
        for where in (config(), anywhere(), None):
            assert ids_of(await face.all(where, before=before)) == ids[1::-1]


async def test_before_need_not_exist(face: Face) -> None:
    for checkpoint_id in ("1", "3", "5"):
        await put(face, checkpoint_id)
    assert ids_of(await face.all(config(), before=config(checkpoint_id="4"))) == ["3", "1"]
    assert ids_of(await face.all(config(), before=config(checkpoint_id="0"))) == []


async def test_nothing_is_before_a_config_without_an_id(face: Face) -> None:
    await put(face, "1")
    bounds: list[Any] = [config(), {"configurable": {"checkpoint_ns": ""}}]
    for before in bounds:
        for name, where in (("list", [config()]), ("history", [config()]), ("threads", [])):
            assert await face.collect(name, *where, before=before) == [], name
    none: list[Any] = [None, {}]
    for before in none:
        assert ids_of(await face.all(config(), before=before)) == ["1"]


async def test_limit_is_a_number_of_checkpoints(face: Face) -> None:
    for number in range(5):
        await put(face, str(number))
    for where in (config(), anywhere(), None):
        for limit, count in ((0, 0), (1, 1), (3, 3), (100, 5), (None, 5)):
            assert ids_of(await face.all(where, limit=limit)) == ["4", "3", "2", "1", "0"][:count]


async def test_every_combination_gives_what_the_words_say(face: Face, next_id: NextId) -> None:
    ids = [next_id() for _ in range(8)]
    for number, checkpoint_id in enumerate(ids):
        for thread_id, ns in product(("t", "u"), ("", "sub")):
            meta = metadata(number, even=number % 2 == 0)
            await put(face, checkpoint_id, thread_id=thread_id, ns=ns, meta=meta)
    everything = await face.all(None)
    assert len(everything) == 32

    def matches(found: CheckpointTuple, where: RunnableConfig | None, before: str | None, even: bool | None) -> bool:
        part = found.config["configurable"]
        return (
            (where is None or part.items() >= where["configurable"].items())
            and (before is None or part["checkpoint_id"] < before)
            and (even is None or found.metadata["even"] is even)  # type: ignore[typeddict-item]
        )

    wheres: list[RunnableConfig | None] = [None, anywhere("t"), config("t"), config("t", ns="sub")]
    befores: list[str | None] = [None, ids[5]]
    limits: list[int | None] = [None, 3, 50]
    evens: list[bool | None] = [None, True]
    for where, before, limit, even in product(wheres, befores, limits, evens):
        listed = await face.all(
            where,
            before=None if before is None else config(checkpoint_id=before),
            limit=limit,
            filter=None if even is None else {"even": even},
        )
        wanted = [found for found in everything if matches(found, where, before, even)]
        assert listed == wanted[:limit], (where, before, limit, even)


@pytest.mark.parametrize("spread", ["one namespace", "one id in many namespaces", "one id in many threads"])
async def test_more_than_a_page_comes_once_and_whole(face: Face, next_id: NextId, spread: str) -> None:
    """Also where the border of a page runs between checkpoints with the same id."""
    ids = [next_id() for _ in range(MANY)]
    for number, checkpoint_id in enumerate(ids):
        if spread == "one namespace":
            await put(face, checkpoint_id, meta=metadata(number))
        elif spread == "one id in many namespaces":
            await put(face, ids[number // 40], ns=f"ns {number}", meta=metadata(number))
        else:
            await put(face, ids[number // 40], thread_id=f"t {number}", meta=metadata(number))
    where: RunnableConfig | None = anywhere()
    if spread == "one namespace":
        where = config()
    elif spread == "one id in many threads":
        where = None
    found = await face.all(where)
    assert sorted(each.metadata["step"] for each in found) == list(range(MANY))
    assert ids_of(found) == sorted(ids_of(found), reverse=True)
    for limit in (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE):
        assert await face.all(where, limit=limit) == found[:limit]
    odd = [each for each in found if each.metadata["step"] % 40 == 1]
    assert [each for step in (1, 41, 81) for each in await face.all(where, filter={"step": step})] == odd[::-1]


async def test_no_more_than_a_page_is_read_before_it_is_asked_for(store: Store, face: Face) -> None:
    await put_chain(face, iter(map(str, range(1000, 1000 + MANY))).__next__, MANY)
    serde = CountingSerializer()
    with open_saver(store.url, serde=serde) as other:
        async for _ in Face(other, face.colour).list(config()):
            break
        # A document and metadata each.
        assert 0 < serde.loaded <= 2 * PAGE
        serde.loaded = 0
        async for _ in Face(other, face.colour).list(config(), limit=1):
            break
        assert serde.loaded == 2


async def test_a_config_without_a_thread_is_refused_rather_than_all_threads(face: Face) -> None:
    await put(face, "1")
    bad: list[Any] = [{"configurable": {}}, {"configurable": {"thread_id": None}}, {"tags": []}]
    for where in bad:
        with pytest.raises(ConfigError):
            pytest.fail(f"{where}: {await face.all(where)}")
