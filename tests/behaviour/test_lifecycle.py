"""Nothing is opened before first use. `close`, `aclose`, `with` or the exit closes it once."""

from __future__ import annotations

import asyncio
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import ClosedError, ConfigError, SqliteSaver, open_saver
from tests.behaviour.helpers import Database, checkpoint, config, get, metadata, put
from tests.stores import Client, Store


def test_constructing_a_saver_creates_no_file(tmp_path: Path) -> None:
    for saver in (
        SqliteSaver(tmp_path / "a.db"),
        SqliteSaver.from_conn_string(str(tmp_path / "b.db")),
        open_saver(f"sqlite:///{tmp_path}/c.db"),
    ):
        assert list(tmp_path.iterdir()) == []
        saver.close()
        assert list(tmp_path.iterdir()) == []


def test_a_saver_is_not_pickled(store: Store) -> None:
    with store.open() as saver, pytest.raises(ConfigError, match="create one in the other process"):
        pickle.dumps(saver)


CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "put": lambda client: client.put(config(), checkpoint("2", {"a": [1]}), metadata(), {"a": "1"}),
    "put_writes": lambda client: client.put_writes(config(checkpoint_id="1"), [("a", 1)], "task"),
    "get_tuple": lambda client: client.get_tuple(config()),
    "list": lambda client: client.all(config()),
    "history": lambda client: client.history(config(), ["a"]),
    "delete_thread": lambda client: client.delete_thread("thread"),
    "delete_for_runs": lambda client: client.delete_for_runs(["run"]),
    "copy_thread": lambda client: client.copy_thread("thread", "copy"),
    "prune": lambda client: client.prune(["thread"]),
    "prune delete": lambda client: client.prune(["thread"], strategy="delete"),
    "setup": lambda client: client._call("setup"),
}


@pytest.mark.parametrize("used", [True, False], ids=["used", "never used"])
@pytest.mark.parametrize("closing", ["close", "aclose"])
async def test_a_closed_saver_raises(store: Store, database: Database, api: str, closing: str, used: bool) -> None:
    with store.open() as first:
        await put(Client(first, "sync"), "1", {"a": [1]})
    before = database.cells()
    saver = store.open()
    client = Client(saver, api)
    if used:
        for each in ("sync", "async"):
            await get(Client(saver, each), config())
    for _ in range(2):  # The second time does nothing.
        await saver.aclose() if closing == "aclose" else saver.close()
    for name, call in CALLS.items():
        with pytest.raises(ClosedError):
            pytest.fail(f"{name}: {await call(client)!r}")
    await saver.aclose()
    saver.close()
    assert database.cells() == before


async def test_closing_during_a_list_ends_it_with_an_error(client: Client) -> None:
    from langgraph_checkpoint_custom.saver import PAGE

    for number in range(PAGE + 1):
        await put(client, f"{number:03}")
    iterator = client.list(config())
    await anext(iterator)
    client.saver.close()  # type: ignore[attr-defined]
    for _ in range(PAGE - 1):
        await anext(iterator)
    with pytest.raises(ClosedError):
        await anext(iterator)


async def test_closing_waits_for_running_calls(store: Store, database: Database, api: str) -> None:
    """Or cancels them, at whatever await they are; what was acknowledged is stored, and nothing hangs."""
    for turns in (1, 2, 3, 5, 8, 13, 21, 34, 55):
        saver = store.open()
        client = Client(saver, api)
        await put(client, f"{turns} x")
        tasks = [asyncio.create_task(put(client, f"{turns} {number}", {"a": [number]})) for number in range(20)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await saver.aclose()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        stored = {number for number, result in enumerate(results) if not isinstance(result, BaseException)}
        assert all(isinstance(result, (dict, ClosedError)) for result in results), results
        ids = {row[0] for row in database.run("SELECT checkpoint_id FROM checkpoints")}
        assert {f"{turns} {number}" for number in stored} <= ids, turns


async def test_memory_works_sync_async_and_from_several_os_threads() -> None:
    with open_saver("sqlite:///:memory:") as saver:
        await put(Client(saver, "async"), "1", {"a": [1]})
        await put(Client(saver, "sync"), "2", {"a": [2]})

        def work(number: int) -> None:
            asyncio.run(put(Client(saver, "sync" if number % 2 else "async"), f"3 {number}", {"a": [number]}))

        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for api in ("sync", "async"):
            found = await Client(saver, api).all(config())
            assert len(found) == 10
            assert [each.checkpoint["channel_values"] for each in found[-2:]] == [{"a": [2]}, {"a": [1]}]
        async for each in saver.alist(config(), limit=1):
            saver.put_writes(each.config, [("a", 1)], "task")
            await saver.aput_writes(each.config, [("a", 1)], "another task")
        (newest,) = saver.list(config(), limit=1)
        assert len(newest.pending_writes or []) == 2


def test_each_saver_has_its_own_memory_database() -> None:
    with SqliteSaver(":memory:") as one, SqliteSaver(":memory:") as two:
        one.put(config(), checkpoint("1"), metadata(), {})
        assert two.get_tuple(config()) is None


SCRIPT = """
import asyncio, logging, sys, threading
logging.getLogger("asyncio").setLevel(logging.ERROR)  # Its debug mode tells what took long.
from langgraph_checkpoint_custom import open_saver

def document(id):
    return {"v": 4, "id": id, "ts": "", "channel_values": {"a": [1], "b": "x" * 100_000}, "versions_seen": {},
            "channel_versions": {"a": "1", "b": "1"}}

saver = open_saver(sys.argv[1])
config = {"configurable": {"thread_id": sys.argv[2], "checkpoint_ns": ""}}
held = []

def use(id):
    where = saver.put(config, document(id), {"step": 1}, {"a": "1", "b": "1"})
    saver.put_writes(where, [("a", 1)], "task")
    assert saver.get_tuple(where).checkpoint["channel_values"]["a"] == [1]
    held.append(saver.list(config))
    next(held[-1])

async def ause(id):
    where = await saver.aput(config, document(id), {"step": 1}, {"a": "1", "b": "1"})
    await saver.aput_writes(where, [("a", 1)], "task")
    assert (await saver.aget_tuple(where)).checkpoint["channel_values"]["a"] == [1]
    held.append(saver.alist(config))
    await anext(held[-1])

match sys.argv[2]:
    case "both":
        use("1")
        asyncio.run(ause("2"))
        asyncio.run(ause("3"))
        worker = threading.Thread(target=use, args=("4",))
        worker.start()
        worker.join()
    case "burst":
        async def burst(pause):  # Ends while calls run and the pool grows for them.
            await saver.aget_tuple(config)
            held[:] = [asyncio.create_task(saver.aget_tuple(config)) for _ in range(8)]
            await asyncio.sleep(pause)
        for number in range(10):
            asyncio.run(burst(number / 1000))
    case "daemon":  # A loop that still runs when the process ends, as in servers.
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(ause("1"), loop).result()
print("done")
"""


@pytest.mark.parametrize("way", ["both", "burst", "daemon"])
def test_a_process_ends_without_a_warning_if_its_saver_is_never_closed(store: Store, way: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT, store.url, way]
    result = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=Path(__file__).parents[2])
    lines = result.stderr.splitlines()
    if way == "burst":  # psycopg and its pool log what the end of a loop interrupts.
        lines = [line for line in lines if not re.match("error connecting in 'langgraph-|query cancellation", line)]
    assert lines == []
    assert (result.stdout, result.returncode) == ("done\n", 0)
    with store.open() as saver:
        stored = {"both": 4, "burst": 0, "daemon": 1}[way]
        assert len(list(saver.list(config(way)))) == stored
