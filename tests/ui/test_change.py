"""Changes: only where they are allowed, asked for once more, from the page itself, and logged."""

from __future__ import annotations

import re
import threading
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError
from langgraph_checkpoint_custom.ui import create_app
from tests.stores import Store
from tests.ui.conftest import Pages, names_in, pages_of
from tests.ui.stories import HOSTILE_ID, chat, config_of, hostile

ORIGIN = {"origin": "http://127.0.0.1:8000"}


@pytest.fixture
def saver(store: Store) -> Any:
    """A saver with a chat in it."""
    with store.open() as opened:
        chat(opened, "t")
        yield opened


def form_of(html: str, what: str) -> dict[str, str]:
    """What the form of a change on a checkpoint's page sends, without what somebody types."""
    for form in re.findall(r"<form.*?</form>", html, re.DOTALL):
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
        if fields.get("what") == what:
            return {name: unescape(text) for name, text in fields.items()}
    raise AssertionError(f"no form for {what}")


def confirmed(pages: Pages, html: str, what: str, **typed: str) -> Any:
    """Fill in the form of a change, and say yes on the page that asks once more."""
    asked = pages.page("/change", 200, **form_of(html, what), **typed)
    assert "Sure?" in asked
    action = re.search(r'<form class="confirm" method="post" action="([^"]*)"', asked)
    assert action
    return pages.post(unescape(action[1]), data=form_of(asked, what), headers=ORIGIN)


def last_message(graph: Any) -> str:
    """What the thread `asks` says in the end, when its answer has been worked on."""
    for thread in threading.enumerate():
        if thread.name == "inspector-answer":
            thread.join()
    return str(graph.get_state(config_of("asks")).values["messages"][-1].content)


def ids(saver: CheckpointSaver, thread_id: str = "t") -> list[str]:
    return [one.checkpoint_id for one in saver.history({"configurable": {"thread_id": thread_id}})]


def test_nothing_is_offered_by_default(saver: CheckpointSaver) -> None:
    pages = pages_of(saver)
    html = pages.page("/thread", thread="t")
    assert "read-only" in html
    assert "<form" not in html
    pages.page("/change", 404, what="delete-thread", thread="t")
    assert pages.post("/change", data={"what": "delete-thread", "thread": "t"}, headers=ORIGIN).status_code == 404
    assert len(ids(saver)) == 7
    with pytest.raises(ConfigError, match="write=True"):
        create_app(saver, graph=object())  # type: ignore[arg-type]


def test_asking_changes_nothing_and_the_answer_has_to_come_from_the_page(saver: CheckpointSaver) -> None:
    pages = pages_of(saver, write=True)
    assert "can change" in pages.page("/thread", thread="t")
    asked = pages.page("/change", what="delete-thread", thread="t")
    assert "Delete thread “t” with all checkpoints?" in asked
    data = form_of(asked, "delete-thread")
    for headers in ({}, {"origin": "http://evil.example"}, {"origin": "http://127.0.0.1:8001"}, {"origin": "null"}):
        assert pages.post("/change", data=data, headers=headers).status_code == 403
    assert pages.put("/change", data=data, headers=ORIGIN).status_code == 405
    assert saver.thread_exists("t")


def test_labels(saver: CheckpointSaver, caplog: pytest.LogCaptureFixture) -> None:
    pages = pages_of(saver, write=True)
    html = pages.page("/thread", thread="t")
    response = confirmed(pages, html, "label", name="the end")
    assert (response.status_code, response.headers["location"]) == (303, "/thread?thread=t")
    assert list(saver.labels("t")) == ["the end"]
    assert "inspector: label thread='t'" in caplog.text
    html = pages.page("/thread", thread="t")
    assert "the end" in html
    confirmed(pages, html, "unlabel")
    assert saver.labels("t") == {}
    pages.page("/change", 400, what="label", thread="t", id="x")


def test_a_fork_goes_to_the_new_thread(saver: CheckpointSaver) -> None:
    pages = pages_of(saver, write=True)
    third = ids(saver)[3]
    html = pages.page("/checkpoint", thread="t", id=third)
    response = confirmed(pages, html, "fork", target="another way")
    assert response.headers["location"] == "/thread?thread=another+way"
    html = pages.page(response.headers["location"])
    assert "Forked from" in html
    assert confirmed(pages, pages.page("/thread", thread="t"), "fork", target="another way").status_code == 500


def test_rolling_back_and_pruning(saver: CheckpointSaver) -> None:
    pages = pages_of(saver, write=True)
    before = ids(saver)
    confirmed(pages, pages.page("/checkpoint", thread="t", id=before[2]), "rollback")
    assert ids(saver) == before[2:]
    confirmed(pages, pages.page("/thread", thread="t"), "prune")
    assert ids(saver) == before[2:3]


def test_deleting_a_run_and_a_thread(saver: CheckpointSaver, caplog: pytest.LogCaptureFixture) -> None:
    pages = pages_of(saver, write=True)
    confirmed(pages, pages.page("/thread", thread="t"), "delete-run")
    assert len(ids(saver)) == 5
    response = confirmed(pages, pages.page("/thread", thread="t"), "delete-thread")
    assert response.headers["location"] == "/"
    assert not saver.thread_exists("t")
    assert caplog.text.count("inspector: ") == 2


def test_a_tenants_thread(saver: CheckpointSaver) -> None:
    chat(saver.for_tenant("acme"), "t")
    pages = pages_of(saver, write=True)
    response = confirmed(pages, pages.page("/thread", thread="t", tenant="acme"), "delete-thread")
    assert response.headers["location"] == "/?tenant=acme"
    assert saver.thread_exists("t")
    assert not saver.for_tenant("acme").thread_exists("t")


def test_the_saver_of_a_tenant_reaches_no_other_tenant(saver: CheckpointSaver) -> None:
    other = saver.for_tenant("globex")
    chat(other, "theirs")
    chat(saver.for_tenant("acme"), "ours")
    pages = pages_of(saver.for_tenant("acme"), write=True)
    assert "Tenants" not in pages.page("/")
    pages.page("/thread", 404, thread="t")
    for path in ("/", "/inbox", "/space?count=1", "/suggestions?of=keys", "/tenants"):
        pages.page(path, 404, tenant="globex")
    for path in ("/thread", "/checkpoint", "/checkpoints", "/timeline", "/difference", "/summary", "/space", "/value"):
        pages.page(path, 404, thread="theirs", channel="messages", tenant="globex")
    data = {"what": "delete-thread", "thread": "theirs"}
    for given in ({}, {"given": urlencode({"tenant": "globex"})}):
        pages.page("/change", 404, **data, **given, tenant="globex")
        assert pages.post("/change?tenant=globex", data=data | given, headers=ORIGIN).status_code == 404
    assert other.thread_exists("theirs")
    assert names_in(pages.page("/", tenant="acme")) == names_in(pages.page("/")) == ["ours"]


def test_hostile_ids_arrive_as_they_are(saver: CheckpointSaver) -> None:
    hostile(saver)
    pages = pages_of(saver, write=True)
    html = pages.page("/thread", thread=HOSTILE_ID)
    assert dict(parse_qsl(form_of(html, "prune")["given"]))["thread"] == HOSTILE_ID
    assert confirmed(pages, html, "delete-thread").status_code == 303
    assert not saver.thread_exists(HOSTILE_ID)
    assert saver.thread_exists("t")


def test_what_is_no_change(saver: CheckpointSaver) -> None:
    pages = pages_of(saver, write=True)
    for asked in ({}, {"what": "nothing"}, {"what": "delete-thread"}, {"what": "answer", "thread": "t"}):
        pages.page("/change", 400, **asked)
        assert pages.post("/change", data=asked, headers=ORIGIN).status_code == 400
    large = urlencode({"what": "delete-thread", "thread": "t", "more": "x" * 1_000_001})
    assert pages.post("/change", content=large, headers=ORIGIN).status_code == 400
    assert saver.thread_exists("t")


def test_an_interrupt_is_answered_with_the_applications_graph(
    saver: CheckpointSaver, caplog: pytest.LogCaptureFixture
) -> None:
    graph = chat(saver, "asks", answered=False)
    html = pages_of(saver, write=True).page("/thread", thread="asks")
    assert "Answer, as JSON" not in html
    pages = pages_of(saver, write=True, graph=graph)
    html = pages.page("/thread", thread="asks")
    assert form_of(html, "answer") == form_of(pages.page("/inbox"), "answer")
    assert "Pay 129.00 € back" in pages.page("/change", 200, **form_of(html, "answer"), answer="yes")
    assert confirmed(pages, html, "answer", answer="yes").status_code == 303
    assert last_message(graph).startswith("Done")
    assert "inspector: answer thread='asks', interrupt='" in caplog.text
    assert "yes" not in caplog.text
    # The question of a page that was opened before is not open any more.
    assert confirmed(pages, html, "answer", answer="no").status_code == 500
    pages.page("/change", 400, what="answer", thread="asks", interrupt="x", answer="y", tenant="acme")


def test_a_mounted_inspector_answers_in_its_inbox(saver: CheckpointSaver) -> None:
    graph = chat(saver, "asks", answered=False)
    app = FastAPI()
    app.mount("/inspect", create_app(saver, write=True, graph=graph))
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        fields = {**form_of(client.get("/inspect/inbox").text, "answer"), "answer": "yes"}
        asked = client.get("/inspect/change", params=fields).text
        assert "Pay 129.00 € back" in asked
        assert 'method="post" action="/inspect/change' in asked
        answered = client.post("/inspect/change", data=form_of(asked, "answer"), headers=ORIGIN)
        assert answered.status_code == 303
        assert answered.headers["location"].startswith("/inspect/")
    assert last_message(graph).startswith("Done")
