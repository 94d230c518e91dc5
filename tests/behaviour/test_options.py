"""A misspelled option or word, and options that exclude each other, are refused when they are passed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import Unpack

from langgraph_checkpoint_custom import (
    CheckpointSaver,
    ConfigError,
    PostgresSaver,
    Retention,
    SqliteSaver,
    open_saver,
)
from langgraph_checkpoint_custom.options import Options, PostgresOptions, SaverOptions, SqliteOptions
from langgraph_checkpoint_custom.tools.exchange import export_file, transfer
from tests.stores import Client

NOWHERE = "postgresql://nobody@localhost:1/nothing"
SAVERS: dict[type[CheckpointSaver], Any] = {SqliteSaver: SqliteOptions, PostgresSaver: PostgresOptions}


def keywords(of: Any) -> set[str]:
    """The keyword-only parameters, and those that LangGraph passes by position: `serde`."""
    parameters = inspect.signature(of).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY or each.name == "serde"}


@pytest.mark.parametrize("saver", SAVERS)
def test_type_checkers_know_every_option(saver: type[CheckpointSaver]) -> None:
    assert keywords(saver) | set(SaverOptions.__annotations__) == set(SAVERS[saver].__annotations__)
    assert keywords(CheckpointSaver) == set(SaverOptions.__annotations__) | {"serde"}
    assert set(SqliteOptions.__annotations__) | set(PostgresOptions.__annotations__) == set(Options.__annotations__)
    makers = {saver.__init__: SaverOptions, saver.from_conn_string: SAVERS[saver], open_saver: Options}  # type: ignore[attr-defined]
    for make, options in makers.items():
        hint = get_type_hints(make)["options"] if make is open_saver else None
        if hint is not None:
            assert get_origin(hint) is Unpack
            assert get_args(hint) == (options,)
        else:
            said = inspect.signature(make).parameters["options"].annotation
            assert said == f"Unpack[{options.__name__}]"


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        (NOWHERE, {"busy_timeout": 1}, "PostgresSaver has no option 'busy_timeout'; it is an option of SqliteSaver"),
        ("sqlite:///a.db", {"schema": "x"}, "SqliteSaver has no option 'schema'; it is an option of PostgresSaver"),
        ("sqlite:///a.db", {"busy_timout": 1}, "no option 'busy_timout'; did you mean busy_timeout"),
        ("sqlite:///a.db", {"nonsense": 1}, "SqliteSaver has no option 'nonsense'$"),
        (
            "sqlite:///a.db",
            {"synchronous": "MAYBE"},
            "synchronous must be one of OFF, NORMAL, FULL, EXTRA, not 'M",
        ),
        ("sqlite:///a.db", {"journal_mode": "OFF"}, "journal_mode must be one of WAL, DELETE, TRUNCATE, not 'OFF'"),
        ("sqlite:///a.db", {"on_unreadable": "row"}, "on_unreadable must be one of raise, raw, not 'row'"),
        (NOWHERE, {"on_inexact": True}, "on_inexact must be one of store, raise, not True"),
        (NOWHERE, {"concurrent_writers": "Reject"}, "concurrent_writers must be one of allow, reject, not 'Reject'"),
        (NOWHERE, {"exclude_metadata": "token"}, "exclude_metadata must be a list of metadata keys, not 'token'"),
        ("sqlite:///a.db", {"plaintext_metadata": "user"}, "plaintext_metadata must be a list of metadata keys, not"),
        ("sqlite:///a.db", {"previous_serdes": [object()]}, "previous_serdes"),
        ("sqlite:///a.db", {"previous_serdes": [JsonPlusSerializer]}, "previous_serdes"),
        ("sqlite:///a.db", {"busy_timeout": float("nan")}, "busy_timeout must be 0 or more"),
        ("sqlite:///a.db", {"busy_timeout": -1}, "busy_timeout must be 0 or more"),
        (NOWHERE, {"answer_timeout": 60.0}, "PostgresSaver has no option 'answer_timeout'"),
        (NOWHERE, {"connect_timeout": float("nan")}, "connect_timeout must be more than 0 seconds, not nan"),
        (NOWHERE, {"connect_timeout": 0}, "connect_timeout must be more than 0"),
    ],
)
def test_an_impossible_option_is_refused(url: str, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_saver(url, **options)


@pytest.mark.parametrize("pipe", ["mine", {"schema": "mine"}, 5])
def test_a_second_argument_that_is_not_a_pipeline_is_refused(pipe: Any) -> None:
    with pytest.raises(ConfigError, match="pipe must be a pipeline of psycopg"):
        PostgresSaver(NOWHERE, pipe)


async def test_arguments_of_methods_are_checked(client: Client) -> None:
    with pytest.raises(ConfigError, match="unknown prune strategy 'latest'"):
        await client.prune(["1"], strategy="latest")
    with pytest.raises(ConfigError, match="unknown prune strategy"):
        await client.prune([], strategy="latest")
    for name in ("list", "threads", "history"):
        with pytest.raises(ConfigError, match="before must be the config of a checkpoint"):
            await client.collect(name, *(() if name == "threads" else (None,)), before="x")
    for keys in (5, "user", [5], [None]):
        with pytest.raises(ConfigError, match="searchable must be a list"):
            await client.do("setup", searchable=keys)
    for name in ("sweep", "reencrypt"):
        args = [Retention(keep_last=1)] if name == "sweep" else []
        with pytest.raises(
            ConfigError, match=r"tenants must be True or False, not 'acme'; .*saver.for_tenant\('acme'\)"
        ):
            await client.do(name, *args, tenants="acme")
        with pytest.raises(ConfigError, match="dry_run must be True or False, not None"):
            await client.do(name, *args, dry_run=None)
    for ttl in ("30", -1, float("nan")):
        with pytest.raises(ConfigError, match="ttl_seconds must be more than 0 seconds"):
            client.saver.claim("1", ttl_seconds=ttl)  # type: ignore[attr-defined]


def test_export_and_transfer_check_their_tenants_option(tmp_path: Path) -> None:
    with SqliteSaver(":memory:") as saver, SqliteSaver(":memory:") as other:
        with pytest.raises(ConfigError, match="tenants must be True or False, not 'acme'"):
            export_file(saver, tmp_path / "file", tenants="acme")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="tenants must be True or False, not 'acme'"):
            transfer(saver, other, tenants="acme")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
