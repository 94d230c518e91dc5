"""A web application for the official savers runs with ours, with one line changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.conftest import made_database
from tests.switching.loading import module_of, with_one_line_changed

PROGRAM = Path(__file__).parent / "application.py"


def test_an_application_for_the_official_saver_replies_the_same_with_one_line_changed(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = PROGRAM.read_text()
    ours = with_one_line_changed(
        official,
        "from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver",
        "from langgraph_checkpoint_custom.aio import AsyncPostgresSaver",
    )

    answers = []
    for program in (official, ours):
        with made_database(postgres_dsn) as (_, url), module_of("refunds", program) as module:
            monkeypatch.setenv("DATABASE_URL", url)
            answers.append(conversation(module.app))

    assert answers[1] == answers[0]
    asked = {"refund": {"order": "B2", "euros": 80.0, "approved_by": None}, "limit": 50}
    assert answers[1][1]["asked"] == [asked]
    assert answers[1][4]["messages"][-1] == "ai: paid 80.0 for B2, 2 orders so far"
    assert answers[1][-1] == {"next": [], "messages": [], "notes": [], "refund": None, "asked": []}


def conversation(app: FastAPI) -> list[Any]:
    """The replies of the application, in two consecutive processes."""
    answers: list[Any] = []
    with TestClient(app) as client:
        answers.append(client.post("/cases/small/say", params={"text": "A1 20"}).json())
        answers.append(client.post("/cases/large/say", params={"text": "B2 80"}).json())
        answers.append(client.get("/cases/large").json())
    # The application restarts; the interrupt is still open.
    with TestClient(app) as client:
        answers.append(client.get("/cases/large").json())
        answers.append(client.post("/cases/large/answer", params={"by": "Ada"}).json())
        answers.append(client.post("/cases/large/say", params={"text": "C3 10"}).json())
        answers.append(client.get("/cases/large/history").json())
        answers.append(client.get("/steps", params={"source": "input"}).json())
        client.delete("/cases/large").raise_for_status()
        answers.append(client.get("/cases/large").json())
    return answers
