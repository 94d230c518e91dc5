"""Metadata keys in `exclude_metadata` are stored nowhere, and the log names secrets that are stored in clear, once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import ConfigError
from langgraph_checkpoint_custom.encoding import metadata as metadata_module
from langgraph_checkpoint_custom.encoding.metadata import _SECRET, NEEDED
from tests.behaviour.helpers import Database, checkpoint, config, get, metadata
from tests.stores import Client, Store

AES = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
SECRET = "sk-1234567890"


def given(**configurable: Any) -> RunnableConfig:
    """A config with further values in `configurable`."""
    return {"configurable": {"thread_id": "thread", "checkpoint_ns": "", **configurable}}


@pytest.fixture(autouse=True)
def nothing_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys that earlier tests have logged are forgotten."""
    monkeypatch.setattr(metadata_module, "_WARNED", set())


async def test_an_excluded_key_is_stored_nowhere(store: Store, database: Database, api: str) -> None:
    with store.open(exclude_metadata=["user_token", "private"]) as saver:
        client = Client(saver, api)
        where = given(user_token=SECRET, user="ann") | {"metadata": {"private": SECRET, "mine": 1}}
        await client.put(where, checkpoint("1"), metadata(0, private=SECRET), {})
        assert (await get(client, config())).metadata == metadata(0, user="ann", mine=1)
        assert len(await client.all(config(), filter={"user": "ann", "mine": 1})) == 1
        assert await client.all(config(), filter={"user_token": SECRET}) == []
        assert len(await client.all(config(), filter={"user_token": None})) == 1
    cells = b" ".join(database.cells())
    assert SECRET.encode() not in cells
    assert b"user_token" not in cells


@pytest.mark.parametrize("name", [*NEEDED])
def test_a_key_that_is_needed_cannot_be_excluded(store: Store, name: str) -> None:
    with pytest.raises(ConfigError, match=f"exclude_metadata cannot contain '{name}': .*{NEEDED[name][:10]}"):
        store.open(exclude_metadata=["mine", name])


async def test_a_secret_that_is_stored_in_clear_is_logged_once_for_each_key(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        where = given(api_key=SECRET, max_tokens="100", user="ann") | {"metadata": {"password": SECRET}}
        await client.put(where, checkpoint(str(number)), metadata(), {})
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(logged) == 2
    for key, text in zip(("password", "api_key"), logged, strict=True):
        assert f"exclude_metadata=[{key!r}]" in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"exclude_metadata": ["token"]}, {"token": SECRET}),
        ({"plaintext_metadata": ["token"]}, {"token": SECRET}),
        ({"serde": AES}, {"token": SECRET}),
        ({}, {"token": 5, "password": True, "secret": "", "credentials": [SECRET], "__token": SECRET}),
        ({}, {"langgraph_auth_token": SECRET}),
    ],
    ids=["excluded", "known to be readable", "encrypted", "no text", "never stored"],
)
async def test_nothing_is_logged_if_no_secret_is_stored_in_clear(
    store: Store, api: str, options: Any, values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with store.open(**options) as saver:
        await Client(saver, api).put(given(**values), checkpoint("1"), metadata(), {})
    assert "exclude_metadata" not in caplog.text


async def test_nothing_is_logged_of_metadata_that_the_caller_passes(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.put(given(), checkpoint("1"), metadata(token=SECRET), {})
    assert "exclude_metadata" not in caplog.text


NAMES_OF_SECRETS = """
    token access_token accessToken hf_token GITHUB_TOKEN user-token token2 OAuthToken secret client_secret password
    userPassword db_passwd passphrase api_key apiKey APIKey openai_api_key x-api-key apikey API_KEY_2 secretKey
    aws_secret_access_key private_key signing_key encryption_key authorization Authorization credential credentials
    bearer jwt session_cookie
"""
OTHER_NAMES = """
    max_tokens maxTokens token_count token_type tokens tokenizer token_limit secretary secret_santa
    password_policy key keyboard public_key primary_key sort_key idempotency_key monkey author authorized user user_id
    thread_name credential_type cookies_accepted assistant_id graph_id 5 _ é
"""


def test_names_of_secrets_are_known_and_others_are_no_false_alarm() -> None:
    assert [name for name in NAMES_OF_SECRETS.split() if not _SECRET.search(name)] == []
    assert [name for name in ["", *OTHER_NAMES.split()] if _SECRET.search(name)] == []
