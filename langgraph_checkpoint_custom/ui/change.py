"""Changes, where they are allowed: each is asked for once more, and logged."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.keys import config_of, key_of
from langgraph_checkpoint_custom.model.records import Question
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.ui.inspector import Inspector, link, tenant_of
from langgraph_checkpoint_custom.ui.values import marked

_LOG = logging.getLogger("langgraph_checkpoint_custom")

Fields = Mapping[str, str]


class Action(NamedTuple):
    """A change.

    Attributes:
        question: What is asked before it; the fields are filled in.
        fields: What it needs. Only `ns` may be empty.
        run: Makes it.
        danger: Whether it deletes something.
        shows: The field with the thread to show after that; without it, the list.
    """

    question: str
    fields: Sequence[str]
    run: Callable[[CheckpointSaver, Fields], object]
    danger: bool = False
    shows: str = "thread"


def _unlabel(saver: CheckpointSaver, given: Fields) -> None:
    if not saver.unlabel(given["thread"], given["name"]):
        raise CheckpointNotFound(f"thread {given['thread']!r} has no label {given['name']!r}")


ACTIONS: Mapping[str, Action] = {
    "label": Action(
        "Give checkpoint {id} of thread {thread} the label {name}?",
        ("thread", "ns", "id", "name"),
        lambda saver, given: saver.label(config_of(given["thread"], given["ns"], given["id"]), given["name"]),
    ),
    "unlabel": Action("Remove the label {name} from thread {thread}?", ("thread", "name"), _unlabel),
    "fork": Action(
        "Start the new thread {target} from checkpoint {id} of thread {thread}?",
        ("thread", "id", "target"),
        lambda saver, given: saver.fork_thread(given["thread"], given["target"], checkpoint_id=given["id"]),
        shows="target",
    ),
    "rollback": Action(
        "Roll thread {thread} back to checkpoint {id}, and delete everything after it?",
        ("thread", "id"),
        lambda saver, given: saver.rollback(given["thread"], given["id"]),
        danger=True,
    ),
    "delete-thread": Action(
        "Delete thread {thread} with all checkpoints?",
        ("thread",),
        lambda saver, given: saver.delete_thread(given["thread"]),
        danger=True,
        shows="",
    ),
    "delete-run": Action(
        "Delete everything that run {run} has stored, in all threads?",
        ("run",),
        lambda saver, given: saver.delete_for_runs([given["run"]]),
        danger=True,
        shows="",
    ),
    "prune": Action(
        "Delete all checkpoints of thread {thread} but the newest of each namespace and those with a label?",
        ("thread",),
        lambda saver, given: saver.prune([given["thread"]]),
        danger=True,
    ),
}
ANSWER = Action(
    "Answer interrupt {interrupt} of thread {thread} with {answer}, and let the thread go on?",
    ("thread", "interrupt", "answer"),
    lambda saver, given: None,
)


def _asked(inspector: Inspector, request: Request, given: Fields) -> tuple[str, Action, dict[str, str]]:
    name = given.get("what", "")
    action = ANSWER if name == "answer" and inspector.graph is not None else ACTIONS.get(name)
    if action is None:
        raise ConfigError(f"there is no change {name!r}")
    fields = {field: given.get(field, "") for field in action.fields}
    for field, text in fields.items():
        if not text and field != "ns":
            raise ConfigError(f"the change {name!r} needs the field {field!r}")
    if name == "answer" and tenant_of(request):
        raise ConfigError("the graph of the application works for no tenant; answer where the tenant's graph is")
    return name, action, fields


def ask(inspector: Inspector, request: Request) -> Response:
    """Ask once more."""
    name, action, fields = _asked(inspector, request, request.query_params)
    question = action.question.format_map({field: f"“{text}”" for field, text in fields.items()})
    asked: list[Question] = []
    if action is ANSWER:
        store = inspector.store(request)
        newest = store.state(key_of(store.newest(fields["thread"]).config))
        asked = [each for each in newest.questions if each.id == fields["interrupt"]]
    shown: dict[str, Any] = {"fields": fields, "question": question, "asked": asked, "danger": action.danger}
    return inspector.page(request, "change.html", what=name, **shown)


def change(inspector: Inspector, request: Request) -> Response:
    """Make a change, and show what it has changed."""
    given: Fields = request.state.form
    name, action, fields = _asked(inspector, request, given)
    tenant = tenant_of(request)
    saver = inspector.saver.for_tenant(tenant) if tenant else inspector.saver
    said = ", ".join(
        f"{field}={text!r}"
        for field, text in {**fields, **({"tenant": tenant} if tenant else {})}.items()
        if field != "answer"  # A run stores it, and no log has stored values.
    )
    _LOG.warning("inspector: %s %s", name, said)
    if action is ANSWER:
        _answer(inspector, saver, fields)
    action.run(saver, fields)
    page = link(request, "thread", thread=fields[action.shows]) if action.shows else link(request, "")
    return RedirectResponse(page, 303)


def _answer(inspector: Inspector, saver: CheckpointSaver, fields: Fields) -> None:
    """Let a run answer an interrupt, on an OS thread of its own: it may take long, and the page shows it live."""
    from langgraph.types import Command

    thread_id, interrupt_id = fields["thread"], fields["interrupt"]
    config: Any = {"configurable": {"thread_id": thread_id}}
    saver.check_interrupt(config, interrupt_id)
    try:
        answer = json.loads(fields["answer"])
    except ValueError:
        answer = fields["answer"]
    graph = inspector.graph
    assert graph is not None

    def run() -> None:
        try:
            graph.invoke(Command(resume={interrupt_id: answer}), config)
        except Exception:  # Of a node of the application. Nobody waits for this OS thread.
            _LOG.exception("inspector: the run that answered interrupt %s failed", marked(interrupt_id))

    threading.Thread(target=run, name="inspector-answer", daemon=True).start()
