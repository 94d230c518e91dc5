"""`list`: newest first, with any combination of thread, namespace, id, `before`, `limit` and `filter`."""

from __future__ import annotations

from itertools import product
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom import PostgresSaver, open_saver
from langgraph_checkpoint_custom.operations import list_threads, pages, read
from langgraph_checkpoint_custom.saver import PAGE
from tests.behaviour.helpers import (
    CountingSerializer,
    NextId,
    anywhere,
    checkpoint,
    config,
    id_of,
    ids_of,
    metadata,
    put,
    put_chain,
    put_delta_chain,
)
from tests.stores import Client, Store

MANY = 2 * PAGE + 7


async def test_before_may_be_nested_or_flat(client: Client, next_id: NextId) -> None:
    ids = ids_of(await put_chain(client, next_id, 4))
    flat: Any = {"checkpoint_id": ids[2]}
    other_thread = config("other", ids[2], "elsewhere")
    for before in (config(checkpoint_id=ids[2]), flat, other_thread):
        for where in (config(), anywhere(), None):
            assert ids_of(await client.all(where, before=before)) == ids[1::-1]


async def test_before_without_a_checkpoint_id_matches_nothing(client: Client) -> None:
    await put(client, "1")
    bounds: list[Any] = [config(), {"configurable": {"checkpoint_ns": ""}}]
    for before in bounds:
        for name, where in (("list", [config()]), ("history", [config()]), ("threads", [])):
            assert await client.collect(name, *where, before=before) == [], name
    none: list[Any] = [None, {}]
    for before in none:
        assert ids_of(await client.all(config(), before=before)) == ["1"]


# Keys of a small thread, few namespaces, keys that are chosen at once, checkpoints that a statement searches.
SIZES = [(1_000, 10, 2_000, 5_000), (5, 10, 7, 9), (5, 10, 1, 1), (5, 1, 7, 2), (0, 0, 2, 1)]


async def test_lists_do_not_depend_on_what_is_read_at_once(
    client: Client, next_id: NextId, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [next_id() for _ in range(30)]
    places = [(checkpoint_id, "memory" if number % 4 else "") for number, checkpoint_id in enumerate(ids)]
    places += [(checkpoint_id, f"call:{number // 2}") for number, checkpoint_id in enumerate(ids[10:])]
    for number, (checkpoint_id, ns) in enumerate(places):
        await put(client, checkpoint_id, ns=ns, meta=metadata(number, even=number % 2 == 0, rare=number == 37))
    await put_delta_chain(client, next_id, 12, {1, 5}, thread_id="pruned")
    await put_chain(client, next_id, 2, thread_id="pruned", ns="other")
    await client.prune(["pruned"])
    everything: list[tuple[RunnableConfig | None, dict[str, Any]]] = [(anywhere(), {}), (None, {})]
    calls: list[tuple[RunnableConfig | None, dict[str, Any]]] = [
        *everything,
        *((where, {**options, "filter": filter}) for where, options in everything for filter in FILTERS),
        *((where, {"limit": limit}) for where, _ in everything for limit in (1, 4, 20)),
        *((where, {"before": config(checkpoint_id=ids[15])}) for where, _ in everything),
        (anywhere("pruned"), {}),
        (anywhere("unknown"), {}),
        ({"configurable": {"thread_id": "thread", "checkpoint_id": ids[12]}}, {}),
        (
            {"configurable": {"thread_id": "thread", "checkpoint_id": ids[12]}},
            {"before": config(checkpoint_id=ids[12])},
        ),
    ]
    expected: list[list[CheckpointTuple]] = []
    for small, spaces, keys, reach in SIZES:
        for name, size in (("SMALL", small), ("SPACES", spaces), ("KEYS", keys), ("REACH", reach)):
            monkeypatch.setattr(pages, name, size)
        found = [[*await client.all(where, **options)] for where, options in calls]
        expected = expected or found
        assert found == expected, (small, spaces, keys, reach)
        records = [await client.collect("history", where, **options) for where, options in calls]
        assert [[each.config for each in one] for one in records] == [[each.config for each in one] for one in expected]
    assert ids_of(expected[0]) == [checkpoint_id for checkpoint_id, _ in sorted(places, reverse=True)]
    assert [len(found) for found in expected[2:5]] == [25, 1, 0]
    assert [found.config["configurable"]["checkpoint_ns"] for found in expected[-4]] == ["other", ""]


FILTERS = [{"even": True}, {"rare": True}, {"even": "never"}]


async def test_each_page_is_read_only_when_needed(store: Store, client: Client) -> None:
    await put_chain(client, iter(map(str, range(1000, 1000 + MANY))).__next__, MANY)
    serde = CountingSerializer()
    with open_saver(store.url, serde=serde) as other:
        async for _ in Client(other, client.api).list(config()):
            break
        # A document and metadata each.
        assert 0 < serde.loaded <= 2 * PAGE
        serde.loaded = 0
        async for _ in Client(other, client.api).list(config(), limit=1):
            break
        assert serde.loaded == 2


async def test_a_loop_may_change_what_it_gets(client: Client, next_id: NextId) -> None:
    """The next page does not depend on it."""
    await put_chain(client, next_id, PAGE + 10)
    found = 0
    async for each in client.saver.alist(config()):
        each.config["configurable"].clear()
        found += 1
    assert found == PAGE + 10


def test_a_list_leaves_the_settings_of_a_callers_transaction(postgres_url: str) -> None:
    """With a filter, it changes how PostgreSQL reads the thread's rows, until it has read them."""
    names = "enable_seqscan", "enable_indexscan"
    with PostgresSaver(postgres_url) as saver:
        for ns in ("", "sub"):
            saver.put(config(ns=ns), checkpoint("1"), metadata(step=1), {})
    for settings in product(("on", "off"), repeat=2):
        with psycopg.connect(postgres_url) as connection:
            for name, setting in zip(names, settings, strict=True):
                connection.execute(f"SET LOCAL {name} = {setting}".encode())
            assert len(list(PostgresSaver(connection).list(anywhere(), filter={"step": 1}))) == 2
            found = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
            assert found == [(setting,) for setting in settings]


@pytest.mark.parametrize("name", ["list", "history"])
def test_a_page_of_all_namespaces_is_of_one_moment(
    own_store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its keys are read first, and then the rows. In between, the newest checkpoint is replaced by the next one."""
    with own_store.open() as saver, own_store.open() as other:
        saver.setup()
        first = saver.put(config(), checkpoint("1"), metadata(), {})
        other.put(config(ns="child"), checkpoint("0"), metadata(), {})

        def and_then(d: Any, page: Any) -> Any:
            piece = yield from pages.piece_of(d, page)
            other.put(first, checkpoint("2"), metadata(), {})
            other.prune(["thread"])
            return piece

        for module in (read, list_threads):
            monkeypatch.setattr(module, "piece_of", and_then)
        found: Any = list(getattr(saver, name)(anywhere()))
        assert [each.checkpoint_id if name == "history" else id_of(each) for each in found] == ["1", "0"]
        assert ids_of(list(saver.list(config()))) == ["2"]
