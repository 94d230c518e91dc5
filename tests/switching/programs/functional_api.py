"""The functional API: stored results of tasks, what the last run saved, interrupts, errors, long waits."""

from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt

calls: list[str] = []
failing: list[str] = []


@dataclass
class Essay:
    topic: str
    words: int


@task
async def write_task(topic: str) -> Essay:
    calls.append(f"write {topic}")
    return Essay(topic, 1000)


@task
async def check_task(essay: Essay) -> bool:
    calls.append("check")
    if failing:
        raise TimeoutError(failing.pop())
    return essay.words > 500


async def main(where: str) -> None:
    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        await checkpointer.setup()

        @entrypoint(checkpointer=checkpointer)
        async def workflow(topic: str) -> dict[str, Any]:
            essay = await write_task(topic)
            long_enough = await check_task(essay)
            approved = interrupt({"essay": essay.topic, "long_enough": long_enough, "action": "approve?"})
            return {"topic": essay.topic, "approved": approved, "essay": essay}

        config: RunnableConfig = {"configurable": {"thread_id": "essay"}}
        async for item in workflow.astream("cat", config):
            print(list(item))
        print(calls)
        async for item in workflow.astream(Command(resume=True), config):
            print(item)
        # Neither the essay nor the check ran again.
        print(calls)

        # A failed run continues: with None, and with the stored essay.
        calls.clear()
        failing[:] = ["busy"]
        failed: RunnableConfig = {"configurable": {"thread_id": "failed"}}
        try:
            await workflow.ainvoke("dog", failed)
        except TimeoutError as error:
            print(error)
        found = await workflow.ainvoke(None, failed)
        print([asked.value for asked in found["__interrupt__"]], calls)
        print((await workflow.aget_state(failed)).next)

        @entrypoint(checkpointer=checkpointer)
        async def count(number: int, *, previous: int | None = None) -> entrypoint.final[int, int]:
            total = number + (previous or 0)
            return entrypoint.final(value=previous or 0, save=total)

        counted: RunnableConfig = {"configurable": {"thread_id": "count"}}
        print([await count.ainvoke(number, counted) for number in (3, 1, 4)])
        print((await count.aget_state(counted)).values)

        @entrypoint(checkpointer=checkpointer)
        async def parallel(numbers: list[int]) -> list[int]:
            futures = [square_task(number) for number in numbers]
            return [await future for future in futures]

        @task
        async def square_task(number: int) -> int:
            return number * number

        print(await parallel.ainvoke([1, 2, 3], {"configurable": {"thread_id": "parallel"}}))
        print(len([state async for state in workflow.aget_state_history(config)]))
