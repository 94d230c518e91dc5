"""`lgckpt ui`: what it prints, who gets in, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.cookiejar import CookieJar
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli  # A fixture.
from tests.cli.test_reading import put


def test_it_serves_until_it_is_interrupted(cli: Cli) -> None:
    with cli.store.open() as saver:
        put(saver, "a-thread", text="hello")
    command = [sys.executable, "-m", "langgraph_checkpoint_custom", "ui"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while "Ctrl-C" not in printed:
                line = process.stdout.readline()
                assert line, process.communicate()
                printed += line
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S{40,}", printed)
            assert found
            assert "read-only" in printed
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            with pytest.raises(urllib.error.HTTPError, match="401"):
                opener.open(found[0].partition("?")[0])
            page = opener.open(found[0])
            assert "a-thread" in page.read().decode()
            assert page.headers["server"] is None
            assert page.geturl().endswith("/")
        finally:
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate()
    assert process.returncode == 0, errors
    assert rest.strip() == "Stopped."
    assert errors == ""


@pytest.mark.parametrize("write", [False, True])
def test_the_store_is_opened_for_reading_unless_changes_are_allowed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, write: bool
) -> None:
    """With --write, a change is logged, and what the log quotes of it cannot affect the terminal."""
    with cli.store.open() as saver:
        put(saver, "a\x1b[31m-thread", text="hello")

    def run(server: uvicorn.Server, sockets: Sequence[socket.socket]) -> None:
        address = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        pages = TestClient(server.config.app, base_url=address)  # type: ignore[arg-type]  # It is an application.
        pages.get("/?token=secret")
        given = {"what": "delete-thread", "thread": "a\x1b[31m-thread"}
        answer = pages.post("/change", data=given, headers={"origin": address}, follow_redirects=False)
        assert answer.status_code == (303 if write else 404)

    read_only: list[bool] = []

    def opening(url: str, **options: Any) -> CheckpointSaver:
        read_only.append(options["read_only"])
        return open_saver(url, **options)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "secret")
    monkeypatch.setattr("langgraph_checkpoint_custom.cli.common.open_saver", opening)
    cli("ui", *(["--write"] if write else []))
    assert read_only == [not write]
    assert ("inspector: delete-thread" in cli.error) is write
    with cli.store.open() as saver:
        assert saver.thread_exists("a\x1b[31m-thread") is not write


def test_it_binds_to_this_machine_only(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[object] = []

    def create_server(address: object, **options: object) -> socket.socket:
        bound.append(address)
        raise OSError("seen enough")

    monkeypatch.setattr(socket, "create_server", create_server)
    assert "port 8123 cannot be used" in cli.fail("ui", "--port", "8123", code=2)
    assert bound == [("127.0.0.1", 8123)]


def test_a_port_in_use(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "without --port, a free one is taken" in cli.fail("ui", "--port", str(port), code=2)
    assert "65535" in cli.fail("ui", "--port", "65536", code=2)


def test_a_store_that_is_not_there(cli: Cli) -> None:
    assert "there is no file" in cli.fail("ui", "--url", "sqlite:///nothing.db")
    assert not os.path.exists("nothing.db")
