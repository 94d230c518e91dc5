"""A graph whose state class is defined in a function. Annotations are objects, since LangGraph must resolve them."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel


def local_graph(checkpointer: Any) -> Any:
    """A graph whose state class, and the classes in it, are defined in a function."""

    class Step(BaseModel):
        name: str
        at: tuple[int, int]

    class State(BaseModel):
        steps: list[Step] = []
        current: Step | None = None
        answer: str = ""

    def plan(state: State) -> dict[str, Any]:
        step = Step(name=f"step {len(state.steps)}", at=(len(state.steps), 0))
        return {"steps": [*state.steps, step], "current": step}

    def ask(state: State) -> dict[str, Any]:
        assert all(type(step) is Step for step in state.steps)
        return {"answer": interrupt({"of": state.current})}

    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("ask", ask)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=checkpointer), State
