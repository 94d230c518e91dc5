"""Nobody else gets in: a test for each guard in `ui/security.py`, and for what it cannot do itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, open_saver
from langgraph_checkpoint_custom.ui import create_app, inspector
from langgraph_checkpoint_custom.ui.security import HEADERS, POLICY
from tests.behaviour.helpers import metadata
from tests.cli.test_reading import put
from tests.ui.conftest import Pages, pages_of

HOST = "127.0.0.1:8000"
TOKEN = "the-token-of-the-test"
FOLDER = Path(inspector.__file__).parent


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Pages]:
    """An inspector as the command serves it, on a small store."""
    with open_saver(f"sqlite:///{tmp_path / 'a.db'}") as saver:
        put(saver, "t", meta=metadata(0), word="hello")
        yield pages_of(saver, token=TOKEN, hosts=[HOST, "localhost:8000"])


def entered(pages: Pages) -> Pages:
    assert pages.get("/", params={"token": TOKEN}).status_code == 303
    return pages


# The token


@pytest.mark.parametrize("path", ["/", "/thread?thread=t", "/timeline?thread=t", "/static/style.css", "/nothing"])
def test_nothing_is_shown_without_the_token(guarded: Pages, path: str) -> None:
    for query in ("", "token=", "token=wrong", f"token={TOKEN}x", f"token={TOKEN[:-1]}", f"Token={TOKEN}"):
        response = guarded.get(path + ("&" if "?" in path else "?") + query)
        assert response.status_code == 401
        assert "set-cookie" not in response.headers
        assert "hello" not in response.text
        assert TOKEN not in response.text


def test_an_empty_token_is_refused(stories: CheckpointSaver) -> None:
    """As of a variable that is not set: the address would have to contain nothing."""
    with pytest.raises(ConfigError, match="an empty token lets everybody in"):
        create_app(stories, token="")


def test_the_token_moves_into_a_cookie_that_scripts_cannot_read(guarded: Pages) -> None:
    response = guarded.get("/thread", params={"token": TOKEN, "thread": "t"})
    assert response.status_code == 303
    assert response.headers["location"] == "/thread?thread=t"
    cookie = response.headers["set-cookie"]
    assert TOKEN not in cookie
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert attribute in cookie
    assert "Domain" not in cookie
    assert "hello" in guarded.get("/thread", params={"thread": "t"}).text


def test_a_wrong_cookie_is_no_entry(guarded: Pages) -> None:
    name = "checkpoint-ui-8000"
    for value in ("", "x", TOKEN, "\x7f", "ü", '"'):
        response = guarded.get("/", headers=[(b"cookie", f"{name}={value}".encode("latin-1"))])
        assert response.status_code == 401
    other = entered(guarded).cookies[name]
    assert guarded.get("/").status_code == 200
    guarded.cookies.clear()
    # Each inspector has a secret of its own.
    with open_saver("sqlite:///:memory:") as saver:
        another = pages_of(saver, token=TOKEN, hosts=[HOST])
        assert another.get("/", headers={"cookie": f"{name}={other}"}).status_code == 401


def test_the_token_is_not_accepted_from_a_form(guarded: Pages) -> None:
    headers = {"origin": f"http://{HOST}"}
    assert guarded.post("/", params={"token": TOKEN}, headers=headers).status_code == 401


# The Host header


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "localhost.evil.example:8000", ""]
)
def test_another_host_is_refused(guarded: Pages, host: str) -> None:
    """A page on the internet can make its own name mean 127.0.0.1."""
    entered(guarded)
    response = guarded.get("/", headers={"host": host})
    assert response.status_code == 421
    assert "Threads" not in response.text
    assert guarded.get("/", headers={"host": "LOCALHOST:8000"}).status_code in (200, 401)


# Requests from other pages


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        "http://127.0.0.1:8001",
        "http://localhost:8000",
        "https://evil:8000",
        "http://[",
    ],
)
def test_a_change_from_another_page_is_refused(guarded: Pages, origin: str | None) -> None:
    entered(guarded)
    headers = {} if origin is None else {"origin": origin}
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert guarded.request(method, "/thread", headers=headers).status_code == 403
    own = {"origin": f"http://{HOST}"}
    assert guarded.post("/thread", headers=own | {"sec-fetch-site": "same-site"}).status_code == 403
    assert guarded.post("/thread", headers=own | {"sec-fetch-site": "same-origin"}).status_code == 405


def test_a_request_that_a_browser_says_is_another_pages_is_refused(guarded: Pages) -> None:
    entered(guarded)
    for site in ("cross-site", "same-site"):
        for mode in ("cors", "no-cors", "websocket"):
            headers = {"sec-fetch-site": site, "sec-fetch-mode": mode}
            assert guarded.get("/thread", params={"thread": "t"}, headers=headers).status_code == 403
        # A link, which the cookie does not follow.
        headers = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
        assert guarded.get("/", headers=headers).status_code == 200
    for site in ("same-origin", "none"):
        assert guarded.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "cors"}).status_code == 200


# Headers


@pytest.mark.parametrize("path", ["/", "/thread?thread=t", "/timeline?thread=t", "/static/style.css", "/no", "/thread"])
def test_every_answer_has_the_headers(guarded: Pages, path: str) -> None:
    answers = [guarded.get(path), guarded.get(path, headers={"host": "evil"}), entered(guarded).get(path)]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_the_policy_allows_nothing_inline_and_no_other_host() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert set(rules.values()) == {"'none'", "'self'"}
    assert {"script-src", "style-src", "img-src", "connect-src", "form-action"} <= rules.keys()


def test_no_template_has_what_the_policy_forbids() -> None:
    for path in sorted((FOLDER / "templates").iterdir()):
        text = path.read_text("utf-8")
        assert not re.search(
            r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|javascript:|<base|<iframe|<object", text
        ), path
        assert "|safe" not in text.replace(" ", ""), path
        assert "autoescape" not in text, path


def test_nothing_names_another_host() -> None:
    for folder in ("templates", "static"):
        for path in sorted((FOLDER / folder).iterdir()):
            text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"(?:https?:)?//[\w.]+\.\w+|@import", text), path
            assert path.suffix != ".css" or "url(" not in text


def test_scripts_make_no_markup_of_text() -> None:
    paths = sorted((FOLDER / "static").glob("*.js"))
    assert paths
    for path in paths:
        text = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path
        )


# Texts


def test_templates_escape_by_themselves() -> None:
    made: Environment = inspector.templates()
    shown = made.from_string('<p title="{{ x }}">{{ x }}</p>').render(x="<b>\"'\u202e\x00</b>")
    assert (
        shown
        == '<p title="&lt;b&gt;&#34;&#39;⟨U+202E⟩⟨U+0000⟩&lt;/b&gt;">&lt;b&gt;&#34;&#39;⟨U+202E⟩⟨U+0000⟩&lt;/b&gt;</p>'
    )


def test_errors_show_no_traceback(guarded: Pages, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("langgraph_checkpoint_custom.ui.reading.Store.state", fail)
    entered(guarded)
    text = guarded.page("/thread", 500, thread="t")
    assert "RuntimeError" in text
    assert "secret" not in text
    assert "a secret detail" in caplog.text


def test_without_a_token_the_application_around_it_decides(stories: CheckpointSaver) -> None:
    client = TestClient(create_app(stories), base_url="http://any.example")
    assert client.get("/").status_code == 200
    assert client.post("/", headers={"origin": "http://other.example"}).status_code == 403
