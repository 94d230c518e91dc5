"""What the pages show, without a browser."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.adapters.sessions import SessionCheckpoint, SessionStore
from langgraph_checkpoint_custom.model.keys import AFTER_ALL
from langgraph_checkpoint_custom.operations.inspector import TimelineRecord
from langgraph_checkpoint_custom.tools.timeline import STOPPED
from langgraph_checkpoint_custom.ui import create_app
from langgraph_checkpoint_custom.ui.reading import Store as Inspected
from tests.behaviour.helpers import Database, metadata
from tests.cli.test_reading import put
from tests.stores import Store
from tests.ui.conftest import STEPS, Pages, names_in, pages_of
from tests.ui.stories import HOSTILE_ID, SCRIPT

THREADS = [
    "support-1043", "support-fork", HOSTILE_ID, "support-1042", "report-that-waits", "report", "delta-chat", "killed",
    "broken", "pruned-chat", "counter",
]  # fmt: skip


def text_of(html: str) -> str:
    """What a page says, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def checkpoint_of(pages: Pages, thread_id: str, **params: str) -> str:
    return text_of(pages.page("/checkpoint", thread=thread_id, **params))


def links_in(html: str, page: str) -> list[str]:
    return [unescape(found) for found in re.findall(rf'href="(/{page}\?[^"]*)"', html)]


def test_threads_are_listed_newest_first(pages: Pages) -> None:
    html = pages.page("/")
    assert [TestClient.get(pages, link).status_code for link in links_in(html, "thread")] == [200] * len(THREADS)
    found = names_in(html)
    assert [unescape(name) for name in found if "bold" not in name] == [name for name in THREADS if "bold" not in name]
    assert "user ada topic refund" in text_of(html)
    assert "the stories" in html
    assert "support-of-acme" not in html


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"prefix": "report"}, ["report", "report-that-waits"]),
        ({"prefix": "support-1042"}, ["support-1042"]),
        ({"prefix": "t"}, []),
        ({"where": "user=ada, topic=refund"}, ["support-1043", "support-1042"]),
        ({"where": "step=3", "prefix": "report"}, ["report"]),
        ({"label": "before the answer"}, ["support-fork"]),
        ({"label": "nobody"}, []),
        (
            {"label": "before the answer", "where": "step=8", "prefix": "support", "state": "done"},
            ["support-fork"],
        ),
        ({"label": "before the answer", "where": "step=9"}, []),
        ({"label": "before the answer", "prefix": "report"}, []),
        ({"label": "before the answer", "state": "failed"}, []),
        ({"state": "waiting", "prefix": "report"}, ["report-that-waits"]),
        ({"state": "waiting", "prefix": "support-1"}, ["support-1043"]),
        ({"state": "waiting", "where": 'user={"$in": ["ada", "bob"]}, topic=refund'}, ["support-1043"]),
        ({"state": "failed"}, ["broken"]),
        ({"kind": "cubeloop"}, []),
    ],
)
def test_threads_are_searched(pages: Pages, asked: dict[str, str], found: list[str]) -> None:
    html = pages.page("/", **asked)
    assert names_in(html) == found
    assert found or "No thread matches" in html


def test_a_search_is_explained_and_suggested(pages: Pages) -> None:
    html = text_of(pages.page("/", where="nonsense"))
    assert "'nonsense' is not KEY=VALUE" in html
    assert "there is no state 'x'" in text_of(pages.page("/", state="x"))
    assert "$in in the filter of 'user' takes a list" in text_of(pages.page("/", where='user={"$in": 1}'))
    assert "the value of 'user' is nested too deeply" in text_of(pages.page("/", where=f"user={'[' * 20_000}"))
    assert "topic=" in pages.data("/suggestions", of="keys")["suggestions"]
    labels = pages.data("/suggestions", of="labels")["suggestions"]
    assert {"before the answer", "the refund that was paid"} <= {*labels}


def test_the_suggested_labels_are_of_the_first_ones(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many the store has."""
    monkeypatch.setattr("langgraph_checkpoint_custom.operations.inspector.SEARCHED", 1)
    assert len(pages.data("/suggestions", of="labels")["suggestions"]) == 1


def test_a_search_by_metadata_does_not_read_a_large_store(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_checkpoint_custom.ui.pages.REACH", 5)
    html = pages.page("/", where="user=grace")
    assert "Searched the newest 5 checkpoints" in html
    assert "No thread matches" in html
    (link,) = (link for link in links_in(html, "") if "all=1" in link)
    html = pages.page(link)
    assert "Searched the newest" not in html
    assert names_in(html) == ["report-that-waits", "report"]


def test_threads_are_paged_by_key(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_checkpoint_custom.ui.pages.PAGE", 2)
    for asked, number in (
        ({}, len(THREADS)),
        ({"state": "waiting"}, 3),
        ({"label": "before the answer"}, 1),
        ({"prefix": "support-"}, 3),
        ({"prefix": "s"}, 3),
    ):
        listed = [re.findall(r'class="id" href="([^"]*)"', html) for html in pages.pages("/", **asked)]
        assert max(map(len, listed)) <= 2
        found = [each for names in listed for each in names]
        assert len(found) == len(set(found)) == number


@pytest.mark.parametrize(
    ("thread_id", "state", "role", "text"),
    [
        ("support-1043", "waiting", "asks", "Pay 129.00 € back for order A-1042?"),
        ("support-1042", "done", "ai", "Done: **129.00 €** are on their way to your card."),
        ("delta-chat", "done", "ai", "Answer 5"),
        ("broken", "failed", "failed", "ZeroDivisionError('the price list is empty')"),
        ("report-that-waits", "waiting", "asks", "May we quote the source on moths?"),
        ("killed", "done", "", "number: 2, log: right"),
    ],
)
def test_a_thread_in_a_line(pages: Pages, thread_id: str, state: str, role: str, text: str) -> None:
    found = pages.data("/summary", thread=thread_id)
    assert (found["state"], found["role"], found["text"].strip()) == (state, role, text.strip())
    assert int(found["checkpoints"]) > 2
    assert re.fullmatch(r"[\d.]+ (B|kB|MB)", found["size"])


@pytest.mark.parametrize("limit", [1, 4, 7, 1000])
def test_a_timeline_is_the_newest_checkpoints_of_all_namespaces(stories: CheckpointSaver, limit: int) -> None:
    store = Inspected(stories, None)
    for name in ("report", "support-fork", "pruned-chat", "counter"):
        everything = store.timeline(name, limit=10_000)
        assert len(everything) > 4
        ids = [(one.checkpoint_id, one.checkpoint_ns) for one in everything]
        assert ids == sorted(ids, reverse=True)
        found: list[TimelineRecord] = []
        while len(found) < min(len(everything), 20):
            found += store.timeline(name, found[-1].checkpoint_id if found else AFTER_ALL, limit)
        assert found[:20] == list(everything[:20])
    assert store.timeline("nobody") == []


def test_a_superstep_in_which_a_run_was_stopped(pages: Pages) -> None:
    spots = pages.data("/timeline", thread="killed")["spots"]
    (stopped,) = [spot[0] for spot in spots if spot[4] & STOPPED]
    said = checkpoint_of(pages, "killed", id=stopped)
    first, second = UUID(int=1), UUID(int=2)
    assert f"Run {first} " in said
    assert f"left run {first}" not in said
    assert f"right run {second}" in said  # A task that another run has done.


def test_what_a_prune_has_deleted_is_said(pages: Pages) -> None:
    pruned, whole = (pages.data("/timeline", thread=name) for name in ("pruned-chat", "support-fork"))
    assert pruned["hidden"] > 3
    assert (whole["pruned"], whole["hidden"]) == (False, 0)
    assert pages.data("/timeline", thread="pruned-chat", hidden="1")["hidden"] == 0


def test_what_is_not_there(pages: Pages) -> None:
    assert "has no checkpoint" in pages.page("/thread", 404, thread="nobody")
    assert "has no checkpoint" in pages.page("/checkpoint", 404, thread="support-1042", id="no")
    assert "There is no such page" in pages.page("/no/such/page", 404)
    assert "There is no such page" in pages.page("/static/../app.py", 404)
    assert "unit separator" in pages.page("/thread", 400, thread="\x1facme\x1fsupport-of-acme")
    assert pages.get("/summary", params={"thread": "nobody"}).status_code == 404
    assert pages.post("/").status_code in (403, 405)


def test_a_tenants_threads_are_on_pages_of_their_own(pages: Pages) -> None:
    assert "/?tenant=acme" in links_in(pages.page("/tenants"), "")
    html = pages.page("/?tenant=acme")
    assert names_in(html) == ["support-of-acme"]
    (link,) = links_in(html, "thread")
    assert "tenant=acme" in link
    assert "129.00" in pages.page(link)
    pages.page("/thread", 404, thread="support-of-acme")


# Checkpoints


def test_a_chat_is_shown_as_a_chat(pages: Pages) -> None:
    html = pages.page("/checkpoint", thread="support-1042")
    roles = re.findall(r'<li class="message (\w+)">', html)
    assert roles == ["system", "human", "ai", "ai", "ai"]  # The results of tools are with their calls.
    said = text_of(html)
    assert "calls look_up call-1-0" in said
    assert "order : A-1042" in said.replace("order:", "order :") or "A-1042" in said
    assert "result The human said 'yes'." in said
    assert "image image/png, 70 bytes" in said
    assert "8 messages" in said
    assert "Step 5" in said


def test_an_ai_message_shows_its_tokens(saver: CheckpointSaver) -> None:
    usage: Any = {"input_tokens": 1200, "output_tokens": 30, "total_tokens": 1230}
    put(saver, "t", messages=[AIMessage("hello", usage_metadata=usage)])
    assert "AI 1,200 tokens in, 30 out" in text_of(checkpoint_of(pages_of(saver), "t"))


def test_a_question_is_shown_with_its_thread(pages: Pages) -> None:
    said = checkpoint_of(pages, "support-1043")
    assert "Waits for a human" in said
    assert "Pay 129.00 € back for order A-1042?" in said
    assert "What runs next tools" in said
    assert "interrupt" in said


def test_an_answered_question_is_shown_with_the_answer(pages: Pages) -> None:
    spots = pages.data("/timeline", thread="support-1042")["spots"]
    (asked,) = (spot for spot in spots if spot[4] & 4)
    said = checkpoint_of(pages, "support-1042", id=asked[0])
    assert re.search(r"Pending writes .* answer .*yes.* interrupt .*Pay 129\.00 € back for order A-1042\?", said)
    assert "Waits for a human" not in said
    assert re.search(r"Took [\d.]+ m?s after its parent", said)


def test_an_error_is_shown_with_its_task(pages: Pages) -> None:
    said = checkpoint_of(pages, "broken")
    assert "A task failed: second" in said
    assert "the price list is empty" in said


def test_a_delta_channel_of_messages_is_rebuilt(pages: Pages) -> None:
    html = pages.page("/checkpoint", thread="delta-chat")
    said = text_of(html)
    assert "rebuilt from a snapshot and 3 writes of earlier steps" in said
    assert re.findall(r"(?:Question|Answer) [\w ,]+?(?= (?:Human|AI|1 more|lines|turns|$))", said)[:2]
    order = [said.index(each) for each in ("Question 1, put better", "Question 2", "Answer 2", "Answer 4", "Answer 5")]
    assert order == sorted(order)
    assert "Answer 1" not in said
    assert "its reducer, which only the application knows" in said
    assert "turn 1" in said
    assert "turn 5" in said


def test_a_subgraphs_checkpoint_has_its_own_page(pages: Pages) -> None:
    timeline = pages.data("/timeline", thread="report")
    assert [strip["name"] for strip in timeline["strips"]] == ["read", "read"]
    strip = timeline["strips"][0]
    said = checkpoint_of(pages, "report", ns=strip["ns"], id=strip["spots"][-1][0])
    assert re.search(r"Step 2 in read \(\w{8}\)", said)
    assert "three sources on" in said


def test_sizes_and_what_is_shared_with_the_parent(saver: CheckpointSaver) -> None:
    first = put(saver, "t", large="x" * 20_000)
    versions = {"large": saver.get_tuple(first).checkpoint["channel_versions"]["large"], "small": "1"}  # type: ignore[union-attr]
    document: Any = {
        "v": 4, "id": "z", "ts": "2026-01-02T03:04:05+00:00", "channel_values": {"large": "x" * 20_000, "small": 7},
        "channel_versions": versions, "versions_seen": {}, "updated_channels": None,
    }  # fmt: skip
    saver.put(first, document, metadata(1), {"small": "1"})
    pages = pages_of(saver)
    said = checkpoint_of(pages, "t")
    assert "all shared with the parent" in said
    assert "2026-01-02 03:04:05" in said
    assert "shared" not in checkpoint_of(pages, "t", id=first["configurable"]["checkpoint_id"]).split("Bytes")[0]
    assert pages.data("/value", thread="t", channel="small") == 7
    pages.page("/value", 404, thread="t", channel="none")


def test_hidden_checkpoints_on_request(saver: CheckpointSaver) -> None:
    from tests.ui.stories import deltas

    deltas(saver, turns=4)
    saver.prune(["delta-chat"])
    pages = pages_of(saver)
    (only,) = pages.data("/timeline", thread="delta-chat")["spots"]
    assert "Answer 4" in checkpoint_of(pages, "delta-chat")
    spots = pages.data("/timeline", thread="delta-chat", hidden="1")["spots"]
    assert len(spots) > 1
    assert spots[-1][0] == only[0]
    assert "hidden by a prune" in checkpoint_of(pages, "delta-chat", id=spots[0][0])
    assert "hidden" in pages.page("/checkpoints", thread="delta-chat")


def test_the_list_of_checkpoints_has_all_of_them(pages: Pages) -> None:
    found = [link for html in pages.pages("/checkpoints", thread="counter") for link in links_in(html, "thread")[1:]]
    assert len(found) == len(set(found)) == STEPS
    # A column of labels only if there are any.
    assert [">Labels<" in pages.page("/checkpoints", thread=name) for name in ("counter", "support-fork")] == [
        False,
        True,
    ]


def test_a_chat_of_another_framework(saver: CheckpointSaver) -> None:
    messages: Any = [{"role": "user", "content": "from a session"}, {"role": "assistant", "content": "hello"}]
    SessionStore(saver, "acme").save(SessionCheckpoint("chat", 1, messages, {}))
    pages = pages_of(saver)
    html = pages.page("/", kind="session")
    assert "acme / chat" in html
    (link,) = links_in(html, "thread")
    said = text_of(pages.page(link))
    assert "Human from a session AI hello" in said
    assert "the chat of a session thread" in said
    (address,) = re.findall(r'data-summary="([^"]*)"', html)
    assert pages.data(unescape(address))["text"] == "hello"


# Timelines


def test_the_timeline_says_whether_there_is_news(pages: Pages) -> None:
    found = pages.data("/timeline", thread="support-fork")
    assert pages.data("/timeline", thread="support-fork", since=found["state"]) == {"state": found["state"]}
    assert len(found["spots"]) == 16
    assert found["rows"] == 3
    labels = [label for spot in found["spots"] for label in spot[10]]
    assert sorted(labels) == ["before the answer", "the refund that was paid"]


# Differences, the inbox, and what takes room


def test_what_a_step_changed(pages: Pages) -> None:
    html = pages.page("/difference", thread="support-1042")
    assert "From step 4" in text_of(html)
    assert re.findall(r'<li class="change (\w+)">', html) == ["plus"]
    assert "129.00 €** are on their way" in html
    assert "The same: budget" in text_of(html)
    first = pages.data("/timeline", thread="support-1042")["spots"][0][0]
    said = text_of(pages.page("/difference", thread="support-1042", id=first))
    assert "nothing, it is the first one" in said


def test_any_two_checkpoints_can_be_compared(pages: Pages) -> None:
    spots = pages.data("/timeline", thread="support-fork")["spots"]
    changed = next(spot for spot in spots if spot[4] & 32)
    html = pages.page("/difference", thread="support-fork", id=changed[0])
    said = text_of(html)
    assert "- My lamp arrived broken" in said
    assert "+ It is the wrong colour." in said
    choices = re.findall(r'<option value="([^"]*)"', html)
    assert len(choices) == 15
    said = text_of(pages.page("/difference", thread="support-fork", id=choices[0], **{"from": choices[-1]}))
    assert "budget changed" in said or "budget added" in said
    pages.page("/difference", 404, thread="support-fork", id=choices[0], **{"from": "nothing"})


def test_the_inbox_has_the_longest_waiting_first(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    html = pages.page("/inbox")
    names = names_in(html)
    assert (names[0], names[-1], len(names)) == ("report-that-waits", "support-1043", 3)
    assert "May we quote the source on moths?" in html
    assert "129.00 € back" in html
    monkeypatch.setattr("langgraph_checkpoint_custom.ui.pages.PAGE", 2)
    _, last = map(names_in, pages.pages("/inbox"))
    assert last == ["support-1043"]
    assert "Nothing waits" in pages.page("/inbox", prefix="counter")


def test_the_page_of_a_state_with_many_channels_is_cut(saver: CheckpointSaver) -> None:
    put(saver, "wide", **{f"channel_{number:04}": f"value {number}" for number in range(300)})
    pages = pages_of(saver)
    html = pages.page("/thread", thread="wide")
    assert len(re.findall(r'aria-label="Channel [^"]*"', html)) == 200
    assert "100 more channels, not shown here" in text_of(html)
    (link,) = re.findall(r'<a href="([^"]*)">show all</a>', html)
    html = pages.page(unescape(link))
    assert len(re.findall(r'aria-label="Channel [^"]*"', html)) == 300
    assert "not shown here" not in html


def test_what_takes_room(pages: Pages) -> None:
    assert "Counting all rows" in pages.page("/space")  # The figures of a large store take long.
    html = pages.page("/space", count="1")
    links = links_in(html, "space")
    assert len(links) == len(THREADS)
    for link in set(links):
        assert "Namespaces" in pages.page(link)
    assert "messages" in text_of(pages.page("/space", thread="support-fork"))


# Hostile and unreadable values


@pytest.mark.parametrize(
    "path",
    ["/", "/thread", "/checkpoint", "/checkpoints", "/timeline", "/summary", "/difference", "/inbox", "/space?count=1"],
)
def test_hostile_texts_are_shown_and_do_nothing(pages: Pages, path: str) -> None:
    text = pages.page(path, **({} if path in ("/", "/inbox") or "?" in path else {"thread": HOSTILE_ID}))
    assert SCRIPT not in text
    assert "<img src=x" not in text
    assert str(77 * 77_777) not in text  # What a template in a text would have become.
    if path in ("/thread", "/checkpoint"):
        for mark in ("⟨U+202E⟩", "⟨U+001B⟩", "⟨U+E0041⟩"):
            assert mark in text


def test_no_class_is_imported_and_no_object_made(saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    put(saver, "t", message=HumanMessage("hello there"), large=[HumanMessage("x" * 3000)])
    first = put(saver, "d", meta=metadata(0, counters_since_delta_snapshot={"log": [1, 1]}))
    saver.put_writes(first, [("log", [HumanMessage("from a write", id="1")])], "task")
    put(saver, "d", parent=first, meta=metadata(1, counters_since_delta_snapshot={"log": [1, 1]}))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("an object was made")

    for name in ("find", "make"):
        monkeypatch.setattr(f"langgraph_checkpoint_custom.encoding.serde.{name}", refuse)
    monkeypatch.setattr(HumanMessage, "__init__", refuse)
    pages = pages_of(saver)
    assert "hello there" in checkpoint_of(pages, "t")
    assert "from a write" in checkpoint_of(pages, "d")
    assert pages.data("/summary", thread="t")["text"] == "hello there"


def test_an_encrypted_store_with_and_without_the_key(store: Store) -> None:
    key = EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 32)
    with store.open(serde=key) as saver:
        saver.setup()
        where = put(saver, "t", meta=metadata(0, user="ada"), secret="the word", large="s" * 20_000)
        saver.put_writes(where, [("secret", "another word")], "task", "~__pregel_pull, node")
        readable = pages_of(saver)
        assert "the word" in checkpoint_of(readable, "t")
        assert "another word" in checkpoint_of(readable, "t")
    with store.open() as saver:
        pages = pages_of(saver)
        assert 'class="id"' in pages.page("/")
        said = text_of(pages.page("/thread", thread="t"))
        for word in ("The values cannot be read", "it is encrypted", "keys have to be in the environment", "large"):
            assert word in said
        assert "not readable" in said
        assert "the word" not in said
        assert "another word" not in said
        assert len(pages.data("/timeline", thread="t")["spots"]) == 1
        assert pages.data("/summary", thread="t")["state"] == "unreadable"
        pages.page("/checkpoints", thread="t")
        assert "not compared" in pages.page("/difference", thread="t")
        pages.page("/value", 404, thread="t", channel="secret")


@pytest.mark.leaves_damage("a value is replaced by bytes that are none")
def test_a_damaged_value_leaves_the_structure(own_store: Store) -> None:
    with own_store.open() as saver:
        saver.setup()
        put(saver, "t", fine="here", large="s" * 20_000)
        Database(own_store).run("UPDATE blobs SET value = :data", data=b"\xc1\xc1")
        said = checkpoint_of(pages_of(saver), "t")
        assert "The values cannot be read" in said
        assert "large" in said


def test_it_can_be_mounted(stories: CheckpointSaver) -> None:
    app = FastAPI()
    app.mount("/inspect/it", create_app(stories))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        html = client.get("/inspect/it/").text
        addresses = re.findall(r'(?:href|src|action|data-summary)="([^"#]*)"', html)
        assert len(addresses) > 20
        assert all(address.startswith("/inspect/it/") for address in addresses)
        for address in addresses:
            assert client.get(unescape(address)).status_code == 200, address
