"""Stores that real graphs have filled, and the inspector over them without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.ui import create_app
from tests.conftest import BACKENDS, made_database
from tests.ui.stories import all_stories

# Characters that no page may contain as they are stored.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
STEPS = 300


class Pages(TestClient):
    """A browser without scripts: gets pages, and checks what holds for all of them."""

    def page(self, path: str, status: int = 200, /, **params: str) -> str:
        """The HTML of a page."""
        response = self.get(path, params=params or None)
        assert response.status_code == status, response.text[:2000]
        assert not UNSEEN.search(response.text), UNSEEN.search(response.text)
        assert "<script>" not in response.text
        assert "Traceback" not in response.text
        return response.text

    def data(self, path: str, /, **params: str) -> Any:
        """The JSON of an address."""
        response = self.get(path, params=params or None, headers={"accept": "application/json"})
        assert response.status_code == 200, response.text
        assert response.text.isascii()
        return response.json()


def pages_of(saver: CheckpointSaver, **options: Any) -> Pages:
    """The inspector of a saver."""
    return Pages(create_app(saver, **options), base_url="http://127.0.0.1:8000", follow_redirects=False)


@pytest.fixture(scope="session", params=BACKENDS)
def stories_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with all stories, once for each database. Tests only read it."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('stories') / 'stories.db'}"
        _fill(url)
        yield url
        return
    dsn = request.getfixturevalue("postgres_dsn")
    with made_database(dsn, request.getfixturevalue("postgres_template")) as (_, url):
        _fill(url)
        yield url


def _fill(url: str) -> None:
    with open_saver(url) as saver:
        saver.setup()
        all_stories(saver, steps=STEPS)


@pytest.fixture
def stories(stories_url: str) -> Iterator[CheckpointSaver]:
    """A saver that only reads the stories."""
    with open_saver(stories_url, read_only=True) as saver:
        yield saver


@pytest.fixture
def pages(stories: CheckpointSaver) -> Pages:
    """The inspector over the stories."""
    return pages_of(stories, name="the stories")
