"""`open_saver` takes the URLs that it documents, and says what is wrong with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import (
    ConfigError,
    PostgresSaver,
    SqliteSaver,
    StorageError,
    open_saver,
)
from tests.behaviour.helpers import checkpoint, config, metadata


def use(url: str) -> None:
    with open_saver(url) as saver:
        saver.put(config(), checkpoint("1"), metadata(), {})
        assert len(list(saver.list(None))) == 1  # On a connection that only reads.


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///{}/a.db", "a.db"),
        ("sqlite:///{}/with%20space.db", "with space.db"),
        ("sqlite:///{}/100%25.db", "100%.db"),
        ("sqlite:///{}/na%C3%AFve.db", "naïve.db"),
        ("sqlite:///{}/naïve too.db", "naïve too.db"),
        ("sqlite:///{}/no-suffix", "no-suffix"),
        ("sqlite:///{}/a%3Fmode=memory%23%2541.db", "a?mode=memory#%41.db"),
        ("{}/a path 100%.db", "a path 100%.db"),
    ],
)
def test_a_sqlite_url_names_a_file(tmp_path: Path, url: str, name: str) -> None:
    use(url.format(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_three_slashes_are_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///relative.db", "relative.db", "./relative.db"):
        use(url)
        assert [path.name for path in tmp_path.iterdir()] == ["relative.db"]


def test_the_url_chooses_the_class_and_options_are_passed_on() -> None:
    assert type(open_saver("sqlite:///a.db", busy_timeout=1.0)) is SqliteSaver
    for url in ("postgresql://u:p@localhost:1/db", "postgres:///db?host=/tmp", "postgresql://"):
        assert type(open_saver(url, schema="mine", max_size=3)) is PostgresSaver


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgres+asyncpg", "postgresql+psycopg2"])
def test_the_error_about_a_sqlalchemy_url_says_what_to_write(scheme: str) -> None:
    for make in (open_saver, PostgresSaver, PostgresSaver.from_conn_string):
        with pytest.raises(ConfigError, match=r"postgresql://") as raised:
            make(f"{scheme}://user:secret@localhost/db")
        assert f"{scheme}:// is a URL of SQLAlchemy's" in str(raised.value)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        ":memory:",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:a.db",
        "sqlite:/a.db",
        "sqlite://a.db",
        "sqlite:///a.db?mode=ro",
        "sqlite3:///a.db",
        "mysql://localhost/db",
        "http://localhost",
        "postgresql+psycopg://localhost/db",
        "host=localhost dbname=db",
    ],
)
def test_other_urls_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"sqlite:///|postgresql://|connection string|the path .* is empty"):
        open_saver(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [None, Path("a.db")], ids=repr)
def test_something_other_than_text_is_refused(url: Any) -> None:
    """Such as an environment variable that is not set, or a path instead of a URL."""
    with pytest.raises(ConfigError):
        open_saver(url)


def test_a_password_may_have_any_character() -> None:
    """Python's URL parser cannot handle `[`; libpq can."""
    for password in ("p[ss", "p]ss", "p%5Bss", "p#ss", "p?ss", "p%40ss"):
        assert type(open_saver(f"postgresql://user:{password}@localhost/db")) is PostgresSaver


@pytest.mark.parametrize(
    "path", ["{}/no/such/folder/a.db", "{}", "{}/" + "x" * 300], ids=["no folder", "a folder", "long"]
)
def test_a_file_that_cannot_be_opened_raises_storage_error(tmp_path: Path, path: str) -> None:
    """Whatever the reason of the operating system."""
    with SqliteSaver(path.format(tmp_path)) as saver:
        for _ in range(2):
            with pytest.raises((StorageError, ConfigError)):
                saver.get_tuple(config())
    assert list(tmp_path.iterdir()) == []
