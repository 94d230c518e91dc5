"""A process that uses a saver and ends it in one of many ways: `python -m tests.drivers.ends <way> <url>`."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings

from langgraph.checkpoint.conformance.test_utils import generate_config

from langgraph_checkpoint_custom import CheckpointSaver, open_saver


async def calls(saver: CheckpointSaver) -> None:
    """Make some concurrent reads, which open a pool."""
    await asyncio.gather(*(saver.aget_tuple(generate_config(f"{number}")) for number in range(6)))


def never_closed(url: str) -> None:
    """The saver lives as long as the process."""
    globals()["retained"] = saver = open_saver(url)
    saver.get_tuple(generate_config("t"))
    for _ in range(3):
        asyncio.run(calls(saver))


def closed_in_the_loop(url: str) -> None:
    async def main() -> None:
        await calls(saver)
        saver.close()

    saver = open_saver(url)
    asyncio.run(main())


def loop_closed_with_its_tasks(url: str) -> None:
    """The tasks of the loop are not cancelled."""
    saver = open_saver(url)
    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(calls(saver))
        loop.close()
    saver.close()


def loop_closed_and_saver_open(url: str) -> None:
    globals()["retained"] = saver = open_saver(url)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(calls(saver))
    loop.close()


def loop_never_closed(url: str) -> None:
    globals()["retained"] = saver = open_saver(url)
    globals()["loop"] = loop = asyncio.new_event_loop()
    loop.run_until_complete(calls(saver))


def loop_of_a_daemon(url: str) -> None:
    """A loop that still runs when the process ends, as in servers."""
    globals()["retained"] = saver = open_saver(url)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(calls(saver), loop).result()


def loop_stopped_after_close(url: str) -> None:
    saver = open_saver(url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(calls(saver), loop).result()
    saver.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def used_while_the_loop_ends(url: str) -> None:
    """A task that is cancelled at the end uses the saver once more, after its pool was closed."""
    globals()["retained"] = saver = open_saver(url)

    async def background() -> None:
        async with saver.claim("t"):
            await asyncio.Event().wait()

    async def main() -> None:
        globals()["task"] = asyncio.create_task(background())
        await asyncio.sleep(0)
        await calls(saver)

    asyncio.run(main())


def dropped(url: str) -> None:
    """Unclosed savers emit one warning each, and their OS threads end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(1, 4):
            saver = open_saver(url)
            saver.get_tuple(generate_config("t"))
            asyncio.run(calls(saver))
            del saver
            while len(caught) < number:
                gc.collect()  # A worker that has just answered may hold it for a moment.
    texts = {str(each.message) for each in caught}
    assert [each.category for each in caught] == [ResourceWarning] * 3, caught
    assert all(text.startswith("unclosed saver on ") and "secret" not in text for text in texts)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()


# These leave a pool in a loop that has ended, and asyncio and psycopg log what they find of it.
LOGGED = [
    never_closed,
    closed_in_the_loop,
    loop_closed_with_its_tasks,
    loop_closed_and_saver_open,
    used_while_the_loop_ends,
    dropped,
]
WAYS = [
    never_closed,
    closed_in_the_loop,
    loop_closed_with_its_tasks,
    loop_closed_and_saver_open,
    loop_never_closed,
    loop_of_a_daemon,
    loop_stopped_after_close,
    used_while_the_loop_ends,
    dropped,
]

if __name__ == "__main__":
    {way.__name__: way for way in WAYS}[sys.argv[1]](sys.argv[2])
