"""Programs as the documents show them, which pyright must accept in its strict mode."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import AsyncPostgresSaver, AsyncSqliteSaver, PostgresSaver, SqliteSaver, open_saver

THREAD: RunnableConfig = {"configurable": {"thread_id": "1"}}


async def in_async_programs(url: str) -> None:
    async with AsyncPostgresSaver.from_conn_string(url, strict=True) as saver:
        await saver.setup()
        await saver.setup(distribute="citus", searchable=["user"])
    async with AsyncSqliteSaver.from_conn_string("checkpoints.db") as saver:
        await saver.setup()
        print(await saver.aget_tuple(THREAD))
        async for thread in saver.athreads(limit=3):
            print(thread.thread_id, thread.newest.config)
    async with open_saver(url) as saver:
        await saver.asetup()


def in_sync_programs(url: str) -> None:
    with PostgresSaver(url, concurrent_writers="reject") as saver:
        saver.setup()
        for waiting in saver.interrupts():
            print(waiting.thread_id, [each.value for each in waiting.interrupts])
    with SqliteSaver("checkpoints.db") as saver:
        saver.setup(searchable=["user"])
        saver.prune(["1"], strategy="keep_latest")
        print(saver.labels("1"))
