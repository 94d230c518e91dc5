"""An object whose class was deleted, changed or is not allowed raises an error that names the class."""

from __future__ import annotations

import dataclasses
import sys
from collections import namedtuple
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from itertools import product
from types import ModuleType
from typing import Any

import ormsgpack
import pydantic.v1
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from langgraph_checkpoint_custom import CheckpointError, ConfigError, CorruptCheckpoint
from tests.behaviour.helpers import LONG, Database, config, get, metadata, put
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

MODULE = "a_module_of_the_application"


class Defined:
    """Classes as an application has them in its own module; each is defined, and then defined differently."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def __call__(self, kind: str, fields: dict[str, Any]) -> Any:
        name = f"A{kind.title()}"
        hints = dict.fromkeys(fields, Any) | {key: type(value) for key, value in fields.items()}
        make: dict[str, Callable[[], Any]] = {
            "dataclass": lambda: dataclasses.make_dataclass(name, list(hints.items())),
            "model": lambda: type(name, (BaseModel,), {"__annotations__": hints, "__module__": MODULE}),
            "old": lambda: type(name, (pydantic.v1.BaseModel,), {"__annotations__": hints, "__module__": MODULE}),
            "tuple": lambda: namedtuple(name, list(fields)),
            "enum": lambda: Enum(name, fields),
        }
        made = make[kind]()
        made.__module__, made.__qualname__ = MODULE, name
        setattr(self.module, name, made)
        return made if kind != "enum" else lambda **_: next(iter(made))


@pytest.fixture
def define() -> Iterator[Defined]:
    module = sys.modules[MODULE] = ModuleType(MODULE)
    yield Defined(module)
    sys.modules.pop(MODULE, None)


TYPES = ("dataclass", "model", "old", "tuple", "enum")
FIELDS: dict[str, Any] = {"one": 1, "two": "b"}
CHANGES: dict[str, Callable[[Defined, str], Any]] = {
    "its module is missing": lambda define, kind: sys.modules.pop(MODULE),
    "it is missing": lambda define, kind: delattr(define.module, f"A{kind.title()}"),
    "a field is missing": lambda define, kind: define(kind, {"two": "b"}),
    "a field has another name": lambda define, kind: define(kind, {"other": 1, "two": "b"}),
    "another field is wanted": lambda define, kind: define(kind, FIELDS | {"three": 3} if kind != "enum" else {"x": 5}),
}
# An enum is stored by value.
HARMLESS = [("enum", "a field has another name")]
READS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "newest": lambda client: client.get_tuple(config(checkpoint_id="1")),
    "list": lambda client: client.all(config()),
    "history": lambda client: client.history(config(checkpoint_id="2"), ["a", "w"]),
}


async def put_both(client: Client, value: Any) -> None:
    """Store a value as the seed of a channel with a write to it."""
    first = await put(client, "1", {"a": value})
    await client.put_writes(first, [("w", value)], "task")
    await put(client, "2", parent=first)


async def test_an_object_of_a_changed_class_raises(client: Client, define: Defined) -> None:
    for kind, change in product(TYPES, CHANGES):
        if (kind, change) in HARMLESS:
            continue
        sys.modules[MODULE] = define.module
        await put_both(client, [define(kind, FIELDS)(**FIELDS)])
        for read in READS.values():
            await read(client)
        CHANGES[change](define, kind)
        for name, read in READS.items():
            with pytest.raises(CorruptCheckpoint) as raised:
                pytest.fail(f"{kind}, {change}, {name}: {await read(client)}")
            error = raised.value
            assert (error.thread_id, error.checkpoint_ns, error.checkpoint_id) == ("thread", "", "1")
            assert error.channel in ("a", "w")
            for word in ("'thread'", "'1'", repr(error.channel), f"{MODULE}.A{kind.title()}", "on_unreadable='raw'"):
                assert word in str(error), name
        await client.delete_thread("thread")


@pytest.mark.parametrize("kind", ["dataclass", "model", "old"])
async def test_a_field_with_a_default_may_be_added(client: Client, define: Defined, kind: str) -> None:
    """No stored data is lost."""
    await put(client, "1", {"a": define(kind, FIELDS)(**FIELDS)})
    changed = define(kind, FIELDS)
    if kind == "dataclass":
        extended: Any = dataclasses.make_dataclass("Extended", [("three", int, 3)], bases=(changed,))
    else:
        extended = type("Extended", (changed,), {"three": 3, "__annotations__": {"three": int}, "__module__": MODULE})
    setattr(define.module, f"A{kind.title()}", extended)
    found = (await get(client, config())).checkpoint["channel_values"]["a"]
    assert isinstance(found, extended)
    assert [getattr(found, name) for name in ("one", "two", "three")] == [1, "b", 3]


@pytest.mark.parametrize("kind", TYPES)
async def test_raw_returns_the_stored_fields(store: Store, api: str, define: Defined, kind: str) -> None:
    with store.open() as saver, store.open(on_unreadable="raw") as rescuing:
        await put_both(Client(saver, api), {"deep": [define(kind, FIELDS)(**FIELDS)]})
        delattr(define.module, f"A{kind.title()}")
        left = {"deep": [1 if kind == "enum" else FIELDS]}
        client = Client(rescuing, api)
        first = config(checkpoint_id="1")
        assert (await get(client, first)).checkpoint["channel_values"] == {"a": left}
        assert (await get(client, first)).pending_writes == [("task", "w", left)]
        assert [found.checkpoint["channel_values"] for found in await client.all(config())] == [{}, {"a": left}]
        history = await client.history(config(checkpoint_id="2"), ["a", "w"])
        assert (history["a"]["seed"], history["w"]["writes"]) == (left, [("task", "w", left)])


@dataclasses.dataclass
class Mine:
    value: int

    def shout(self) -> str:
        """Upper case."""
        return f"{self.value}!"


@dataclasses.dataclass
class Other:
    value: int


def touch(path: str) -> str:
    """What hostile data would call."""
    with open(path, "x") as file:
        return file.name


def restored(path: str) -> dict[str, tuple[int, Any]]:
    """Extensions that pass a function, or something that is not a field, to the code that restores fields."""
    fields = {"path": path}
    return {
        "keyword fields": (2, (__name__, "touch", fields, None)),
        "keyword fields and more": (2, (__name__, "touch", fields, None, {"other": {"x": 1}})),
        "old model": (4, (__name__, "touch", fields, None)),
        "model": (5, (__name__, "touch", fields, None)),
        "a generic model": (5, (__name__, "touch", fields, None, {"args": [["builtins", "str"]]})),
        "of a function": (5, (__name__, "Mine", fields, None, {"args": [[__name__, "touch"]]})),
        "a path through a module": (0, (__name__, "sys.exit", path)),
        "a path through a class": (0, (__name__, "Store.open", path)),
        "no field": (2, (__name__, "Mine", {"value": 1, "__class__": 2}, None)),
        "a method": (2, (__name__, "Mine", {"value": 1}, None, {"other": {"shout": 2}})),
        "a special attribute": (2, (__name__, "Mine", {"value": 1}, None, {"other": {"__class__": 2}})),
        "a field too few": (2, (__name__, "Mine", {}, None)),
        "a size": (0, ("builtins", "bytearray", 10**12)),
    }


def hostile(path: str) -> dict[str, tuple[str, bytes]]:
    """Stored values that call something when they are read."""
    call = (__name__, "touch", path)
    content = {
        0: call,
        1: (__name__, "touch", (path,)),
        2: (__name__, "touch", {"path": path}),
        3: ("builtins", "str", path, "encode"),
        4: (__name__, "touch", {"path": path}),
        5: (__name__, "touch", {"path": path}, "model_validate_json"),
    }
    named = {f"extension {code}": (code, inside) for code, inside in content.items()} | restored(path)
    found = {
        name: ("msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(inside))))
        for name, (code, inside) in named.items()
    }
    inner = ormsgpack.Ext(0, ormsgpack.packb(call))
    outer = ormsgpack.Ext(0, ormsgpack.packb(("builtins", "set", [inner])))
    found["nested"] = ("msgpack", ormsgpack.packb({"a": [outer]}))
    constructor = f'{{"lc": 2, "type": "constructor", "id": ["{__name__}", "touch"], "args": ["{path}"]}}'
    found["json"] = ("json", constructor.encode())
    found["pickle"] = ("pickle", b"cbuiltins\neval\n.")
    return found


async def test_strict_calls_nothing_that_is_not_allowed(
    store: Store, api: str, database: Database, tmp_path: Any
) -> None:
    path = tmp_path / "called"
    with store.open(strict=True, allow=[Mine]) as saver:
        client = Client(saver, api)
        for kind, data in hostile(str(path)).values():
            await put_both(client, [LONG])
            for table in ("blobs", "writes"):
                database.run(f"UPDATE {table} SET type = :kind, value = :data", kind=kind, data=data)
            for read in READS.values():
                with pytest.raises(CorruptCheckpoint):
                    await read(client)
            await client.copy_thread("thread", "copy")
            await client.prune(["copy"])
            database.run("UPDATE checkpoints SET metadata_type = :kind, metadata = :data", kind=kind, data=data)
            for where in (config(), None):
                with pytest.raises(CorruptCheckpoint, match="'metadata'"):
                    await client.all(where, filter={"source": "loop"})
            database.run("UPDATE checkpoints SET checkpoint_type = :kind, checkpoint = :data", kind=kind, data=data)
            with pytest.raises(CorruptCheckpoint):
                await client.get_tuple(config())
            for thread_id in ("thread", "copy"):
                await client.delete_thread(thread_id)
    assert not path.exists()


async def test_fields_are_restored_only_in_classes_that_have_them(
    client: Client, database: Database, tmp_path: Any
) -> None:
    """Whatever may be read: none of these was ever written by us."""
    path = tmp_path / "called"
    await put_both(client, [LONG])
    for name in restored(""):
        kind, data = hostile(str(path))[name]
        database.run("UPDATE blobs SET type = :kind, value = :data", kind=kind, data=data)
        with pytest.raises(CorruptCheckpoint):
            pytest.fail(f"{name}: {await client.get_tuple(config(checkpoint_id='1'))}")
    assert not path.exists()


@pytest.mark.leaves_values("a checkpoint that is stored again with other versions leaves its old values")
async def test_strict_reads_what_is_allowed(store: Store, api: str) -> None:
    values = {"mine": [Mine(1)], "safe": {frozenset({1}), "x"}}
    allow: list[Any] = [Mine, (Mine.__module__, Mine.__name__)]
    for item in allow:
        with store.open(strict=True, allow=[item]) as saver:
            client = Client(saver, api)
            where = await put(client, "1", values, meta=metadata(0, mine=Mine(2)))
            assert (await get(client, where)).checkpoint["channel_values"] == values
            assert (await get(client, where)).metadata == metadata(0, mine=Mine(2))
            where = await put(client, "2", {"a": [Mine(1), Other(1)]})
            with pytest.raises(CorruptCheckpoint) as raised:
                await client.get_tuple(where)
            assert f"allow=[('{__name__}', 'Other')]" in str(raised.value)
            more = saver.with_allowlist([(Other.__module__, Other.__name__)])
            assert (await get(Client(more, api), where)).checkpoint["channel_values"] == {"a": [Mine(1), Other(1)]}


async def test_an_encrypting_serializer_may_be_strict_too(store: Store, api: str) -> None:
    inner = JsonPlusSerializer(allowed_msgpack_modules=[Mine])
    serde = EncryptedSerializer.from_pycryptodome_aes(inner, key=b"0123456789abcdef")
    with store.open(serde=serde) as saver:
        client = Client(saver, api)
        await put(client, "1", {"a": [Mine(1)]})
        assert (await get(client, config())).checkpoint["channel_values"] == {"a": [Mine(1)]}
        await put(client, "2", {"a": [Other(1)]})
        # With LangGraph's own allowlist, other types are read as their stored fields; strict=True refuses them.
        assert (await get(client, config())).checkpoint["channel_values"] == {"a": [{"value": 1}]}
    plain = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    for encrypting, options in ((plain, {"allow": [Mine]}), (serde, {})):
        with store.open(serde=encrypting, strict=True, **options) as saver:
            client = Client(saver, api)
            first = config(checkpoint_id="1")
            assert (await get(client, first)).checkpoint["channel_values"] == {"a": [Mine(1)]}
            with pytest.raises(CorruptCheckpoint, match=r"Other is not allowed to be read; .* allow=\["):
                await get(client, config())
            more = saver.with_allowlist([(Other.__module__, Other.__name__)])
            assert (await get(Client(more, api), config())).checkpoint["channel_values"] == {"a": [Other(1)]}


class Encrypting(EncryptedSerializer):
    """An application's own way to encrypt."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return super().dumps_typed(obj)


async def test_unencrypted_values_are_refused_with_a_key(store: Store, api: str) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with store.open() as plain, store.open(serde=serde) as encrypting:
        await put_both(Client(plain, api), ["x"])
        for read in READS.values():
            with pytest.raises(CorruptCheckpoint, match="without encryption"):
                await read(Client(encrypting, api))
        with store.open(serde=serde, on_unreadable="raw") as rescuing:
            found = await get(Client(rescuing, api), config(checkpoint_id="1"))
            assert found.checkpoint["channel_values"] == {"a": ["x"]}


async def test_no_object_is_created_from_injected_unencrypted_values(
    store: Store, database: Database, api: str
) -> None:
    made: list[Any] = []
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with store.open(serde=serde, on_load={f"{__name__}.Mine": made.append}) as saver:
        client = Client(saver, api)
        where = await put(client, "1", {"a": [1]})
        await client.put_writes(where, [("a", Mine(1))], "task")
        await get(client, where)
        assert len(made) == 1
        kind, planted = JsonPlusSerializer().dumps_typed(Mine(1))
        database.run("UPDATE writes SET type = :kind, value = :planted", kind=kind, planted=planted)
        with pytest.raises(CorruptCheckpoint, match="without encryption"):
            await client.get_tuple(where)
        assert len(made) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_unreadable": "ignore"}, "one of raise, raw, not 'ignore'"),
        ({"strict": True, "serde": JsonPlusSerializer(pickle_fallback=True)}, "pickle_fallback"),
        ({"strict": True, "serde": JsonPlusSerializer(allowed_json_modules=True)}, "allowed_json_modules"),
        ({"strict": True, "serde": Encrypting(object(), JsonPlusSerializer())}, "a Encrypting creates its objects"),  # type: ignore[arg-type]
        ({"allow": [Mine]}, "strict=True"),
        ({"strict": True, "allow": ["Mine"]}, "not 'Mine'"),
        ({"strict": True, "allow": [("a", "b", "c")]}, "pairs"),
    ],
)
def test_the_error_about_contradictory_options_says_so(store: Store, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        store.open(**options)
    assert issubclass(ConfigError, CheckpointError)
