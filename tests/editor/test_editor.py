"""What an editor knows of the savers: which methods are awaited, docstrings, and a repr without the password."""

from __future__ import annotations

from inspect import getmembers, iscoroutinefunction, isfunction

import pytest

from langgraph_checkpoint_custom import AsyncPostgresSaver, AsyncSqliteSaver, PostgresSaver, SqliteSaver
from langgraph_checkpoint_custom.adapters.key_values import KeyValueStore
from langgraph_checkpoint_custom.adapters.sessions import SessionStore
from langgraph_checkpoint_custom.options import SaverOptions
from tests.stores import Store


@pytest.mark.parametrize("saver", [AsyncPostgresSaver, AsyncSqliteSaver])
def test_setup_of_the_async_savers_is_awaited(saver: type) -> None:
    assert iscoroutinefunction(vars(saver)["setup"])


@pytest.mark.parametrize("cls", [PostgresSaver, SqliteSaver, AsyncPostgresSaver, SessionStore, KeyValueStore])
def test_each_method_says_what_it_does(cls: type) -> None:
    for name, method in getmembers(cls, isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
            assert not method.__doc__.startswith("Async version"), name
            assert method.__name__ == method.__qualname__.rpartition(".")[2] == name, name
    if issubclass(cls, SqliteSaver):
        assert cls.aput.__doc__ == cls.put.__doc__


@pytest.mark.parametrize("cls", [PostgresSaver, SqliteSaver])
def test_the_options_of_every_saver_are_in_the_help(cls: type) -> None:
    assert [name for name in SaverOptions.__annotations__ if f"`{name}`" not in (cls.__doc__ or "")] == []


def test_a_saver_is_printed_without_its_password(store: Store) -> None:
    with store.open() as saver:
        assert repr(saver).startswith(f"<{type(saver).__name__} of ")
        assert repr(saver.for_tenant("acme")).endswith(", tenant 'acme'>")
    url = "postgresql://me:secret@db.example:5433/app?application_name=x"
    assert repr(PostgresSaver(url)) == "<PostgresSaver of app on db.example, schema 'langgraph_checkpoint'>"
    assert "secret" not in repr(PostgresSaver("host=db.example password=secret dbname=app"))
    assert repr(SqliteSaver("a.db")) == "<SqliteSaver of a.db>"
