"""`on_load` converts old state to the current classes: a graph continues from a thread that was stored with others."""

from __future__ import annotations

import operator
import random
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import pydantic.v1
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, PrivateAttr, create_model

from langgraph_checkpoint_custom import ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.encoding.chunks import NAME_MARK
from tests.behaviour.helpers import (
    LONG,
    CountingSerializer,
    Database,
    config,
    get,
    metadata,
    put,
    run_graph,
    state_of,
    states_of,
)
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

SHOP = "the_shop_as_it_was"


class Customer(BaseModel):
    """Formerly a `Person`, with one field `name`."""

    first: str
    last: str


@dataclass
class Purchase:
    """Formerly an `Order`."""

    sku: str
    buyer: Any
    color: Any
    coupon: Any = None

    def __post_init__(self) -> None:
        raise AssertionError("the constructor of a stored object is called again")


def split(person: dict[str, Any]) -> Customer:
    first, _, last = person.pop("name").partition(" ")
    return Customer(first=first, last=last, **person)


class OldShop(NamedTuple):
    """The module of an application, with classes that will be renamed, changed and deleted."""

    module: ModuleType

    def define(self, made: Any, name: str) -> Any:
        made.__module__, made.__qualname__, made.__name__ = SHOP, name, name
        setattr(self.module, name, made)
        return made

    def order(self, sku: str) -> Any:
        shop = self.module
        return shop.Order(sku=sku, buyer=shop.Person(name="Ann Lee"), color=shop.Color.RED, coupon=shop.Coupon(5))

    def forget(self) -> None:
        """Remove the classes, as a new release does."""
        sys.modules.pop(SHOP)


@pytest.fixture
def shop() -> Iterator[OldShop]:
    found = OldShop(ModuleType(SHOP))
    sys.modules[SHOP] = found.module
    found.define(make_dataclass("Order", ["sku", "buyer", "color", "coupon"]), "Order")
    found.define(create_model("Person", name=(str, ...)), "Person")
    found.define(Enum("Color", {"RED": "red"}), "Color")
    found.define(make_dataclass("Coupon", ["percent"]), "Coupon")
    yield found
    sys.modules.pop(SHOP, None)


ON_LOAD: dict[str, Any] = {
    f"{SHOP}.Order": Purchase,
    f"{SHOP}.Person": split,
    f"{SHOP}.Color": lambda value: value,
    f"{SHOP}.Coupon": lambda _: None,
}


def purchase(sku: str) -> Purchase:
    made = object.__new__(Purchase)
    vars(made).update(sku=sku, buyer=Customer(first="Ann", last="Lee"), color="red", coupon=None)
    return made


def several_of(turn: int) -> list[str]:
    """Texts that compression does not shrink."""
    return [random.Random(f"{turn}/{number}").randbytes(500).hex() for number in range(60)]


def extend(log: Sequence[Any], more: Sequence[Sequence[Any]]) -> list[Any]:
    return [*log, *(each for items in more for each in items)]


class State(TypedDict, total=False):
    turn: int
    small: Any
    large: Any
    items: Annotated[list[Any], operator.add]
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=100)]
    seldom: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=3)]
    packed: Any
    answers: Annotated[list[Any], operator.add]


def graph_of(make: Callable[[str], Any], saver: Any) -> Any:
    """A graph that stores orders everywhere: values of each size, histories, writes, interrupts."""

    def work(state: State) -> State:
        turn = state["turn"]
        several = list(map(make, several_of(turn)))
        one = [make(f"log {turn}")]
        return {"small": make(f"{turn}"), "large": [make(LONG)], "items": several, "log": one, "seldom": one}

    def pack(state: State) -> State:
        return {"packed": make(f"packed {state['turn']}")}

    def ask(state: State) -> State:
        return {"answers": [interrupt(make(f"question {state['turn']}"))]}

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_node("pack", pack)
    builder.add_node("ask", ask)
    builder.add_edge(START, "work")
    builder.add_edge("work", "pack")
    builder.add_edge("work", "ask")
    return builder.compile(checkpointer=saver)


def expected(turns: int) -> dict[str, Any]:
    return {
        "turn": turns,
        "small": purchase(f"{turns}"),
        "large": [purchase(LONG)],
        "items": [purchase(sku) for turn in range(1, turns + 1) for sku in several_of(turn)],
        "log": [purchase(f"log {turn}") for turn in range(1, turns + 1)],
        "seldom": [purchase(f"log {turn}") for turn in range(1, turns + 1)],
        "packed": purchase(f"packed {turns}"),
        "answers": [purchase(f"answer {turn}") for turn in range(1, turns + 1)],
    }


SERDES: dict[str, Any] = {
    "plain": None,
    "encrypted": EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"),
    "strict": JsonPlusSerializer(allowed_msgpack_modules=[Purchase, Customer]),
}


@pytest.mark.parametrize("serde", SERDES.values(), ids=SERDES)
async def test_a_graph_continues_from_an_old_thread(
    store: Store, api: str, database: Database, shop: OldShop, serde: Any
) -> None:
    thread: Any = {"configurable": {"thread_id": "thread"}}
    with store.open(serde=None if serde is SERDES["strict"] else serde) as saver:
        client = Client(saver, api)
        graph = graph_of(shop.order, saver)
        for turn in (1, 2):
            await run_graph(client, graph, {"turn": turn}, thread)
            await run_graph(client, graph, Command(resume=shop.order(f"answer {turn}")), thread)
        await run_graph(client, graph, {"turn": 3}, thread)
    chunks = database.run("SELECT count(*) FROM blobs WHERE version LIKE :mark", mark=f"{NAME_MARK}%")
    assert chunks[0][0] > 1
    shop.forget()

    with store.open(serde=serde, on_load=ON_LOAD) as saver:
        client = Client(saver, api)
        graph = graph_of(purchase, saver)
        state = await state_of(client, graph, thread)
        assert state.values == {**expected(3), "answers": expected(2)["answers"]}
        assert [each.value for each in state.interrupts] == [purchase("question 3")]
        writes = (await get(client, config())).pending_writes or []
        assert purchase("packed 3") in [value for _, channel, value in writes if channel == "packed"]
        seen = await states_of(client, graph, thread)
        assert len(seen) > 10
        finished = [each.values for each in seen if not each.next and (each.metadata or {})["step"] > 0]
        assert finished == [expected(2), expected(1)]
        (waiting,) = await client.do("interrupts")
        assert [each.value for each in waiting.interrupts] == [purchase("question 3")]

        await run_graph(client, graph, Command(resume=purchase("answer 3")), thread)
        assert (await state_of(client, graph, thread)).values == expected(3)
        await run_graph(client, graph, {"turn": 4}, thread)
        await run_graph(client, graph, Command(resume=purchase("answer 4")), thread)
        assert (await state_of(client, graph, thread)).values == expected(4)
        await client.copy_thread("thread", "copy")
        await client.prune(["copy"])
        assert (await state_of(client, graph, config("copy"))).values == expected(4)

    with store.open(serde=serde) as saver:
        values = (await get(Client(saver, api), config())).checkpoint["channel_values"]
        assert {name: values[name] for name in ("small", "items", "answers")} == {
            name: expected(4)[name] for name in ("small", "items", "answers")
        }


async def test_without_on_load_an_old_thread_raises(store: Store, api: str, shop: OldShop) -> None:
    thread: Any = {"configurable": {"thread_id": "thread"}}
    with store.open() as saver:
        client = Client(saver, api)
        await run_graph(client, graph_of(shop.order, saver), {"turn": 1}, thread)
        shop.forget()
        with pytest.raises(CorruptCheckpoint, match=rf"{SHOP}\.\w+ cannot be found .* with on_load"):
            await run_graph(client, graph_of(purchase, saver), Command(resume=1), thread)


# What the functions receive

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    held: T


class Crate(BaseModel, Generic[T]):
    held: T


class Item(BaseModel):
    """A model that records which fields were given, has extra fields and a private attribute, and validates."""

    model_config = {"extra": "allow"}

    size: int = 1
    note: str = "none"
    _seen: list[int] = PrivateAttr(default_factory=list)


def item(cls: Any) -> Any:
    made = cls(size=2, more="x")
    made._seen = [1]
    return made


async def test_a_function_receives_what_raw_returns(store: Store, api: str, shop: OldShop) -> None:
    """For a named tuple, a model of pydantic v1, and a class that is stored as the arguments of its constructor."""
    named = shop.define(namedtuple("Named", ["a", "b"]), "Named")
    old = shop.define(type("Old", (pydantic.v1.BaseModel,), {"__annotations__": {"a": int}, "__module__": SHOP}), "Old")
    other = shop.define(type("Other", (set,), {}), "Other")
    with store.open() as saver:
        await put(Client(saver, api), "1", {"a": [named(1, (2,)), old(a=1), other({3})]})
    shop.forget()
    contents = [{"a": 1, "b": (2,)}, {"a": 1}, [3]]
    given: list[Any] = []
    on_load = {f"{SHOP}.{name}": given.append for name in ("Named", "Old", "Other")}
    with store.open(on_load=on_load) as saver, store.open(on_unreadable="raw") as raw:
        assert (await get(Client(saver, api), config())).checkpoint["channel_values"] == {"a": [None] * 3}
        assert given == contents
        assert (await get(Client(raw, api), config())).checkpoint["channel_values"] == {"a": contents}


async def test_a_class_that_was_renamed_is_restored_as_it_was(store: Store, api: str, shop: OldShop) -> None:
    """With the record of which fields were given, with private attributes, and without a validator."""
    old = item(shop.define(type("Both", (Item,), {"__module__": SHOP}), "Both"))
    old.size = "no number"
    box: Any = shop.define(create_model("Box", __base__=Box, __module__=SHOP), "Box")
    with store.open() as saver:
        of_old: Any = Box.__class_getitem__(type(old))
        values = {"item": old, "box": box[int](held=1), "other": of_old(held=old)}
        await put(Client(saver, api), "1", values)
    shop.forget()
    with store.open(on_load={f"{SHOP}.Both": Item, f"{SHOP}.Box": Crate}) as saver:
        found = (await get(Client(saver, api), config())).checkpoint["channel_values"]
    new = item(Item)
    new.size = "no number"
    assert found == {"item": new, "box": Crate[int](held=1), "other": Box[Item].model_construct(held=new)}
    assert (found["item"]._seen, found["item"].model_fields_set) == ([1], {"size", "more"})
    classes = {"item": Item, "box": Crate[int], "other": Box[Item]}
    assert {name: type(value) for name, value in found.items()} == classes


async def test_on_load_works_for_messages(store: Store, api: str) -> None:
    said = [HumanMessage("one"), AIMessage("two")]
    with store.open() as saver:
        await put(Client(saver, api), "1", {"a": said})
    with store.open(on_load={"langchain_core.messages.human.HumanMessage": lambda of: of["content"]}) as saver:
        assert (await get(Client(saver, api), config())).checkpoint["channel_values"] == {"a": ["one", said[1]]}


async def test_on_load_works_for_metadata_and_filters(store: Store, api: str, shop: OldShop) -> None:
    with store.open() as saver:
        client = Client(saver, api)
        await put(client, "1", meta=metadata(0, order=shop.module.Color.RED))
        await put(client, "2", meta=metadata(1, order=shop.module.Coupon(3)))
    shop.forget()
    with store.open(on_load=ON_LOAD) as saver:
        client = Client(saver, api)
        assert [found.metadata for found in await client.all(config(), filter={"order": "red"})] == [
            metadata(0, order="red")
        ]
        assert [found.metadata for found in await client.all(config(), filter={"order": None})] == [
            metadata(1, order=None)
        ]


# Errors


def fail(stored: dict[str, Any]) -> None:
    raise KeyError(stored["name"])


@pytest.mark.parametrize("where", ["a", "w", "metadata"])
async def test_an_error_in_the_function_raises(
    store: Store, api: str, database: Database, shop: OldShop, where: str
) -> None:
    secret = shop.module.Person(name="a secret")
    with store.open() as saver:
        client = Client(saver, api)
        first = await put(client, "1", {"a": [secret]} if where == "a" else None, meta=metadata(0, **{where: secret}))
        if where == "w":
            await client.put_writes(first, [("w", secret)], "task")
    before = database.cells()
    with store.open(on_load={f"{SHOP}.Person": fail}) as saver:
        for read in (Client(saver, api).get_tuple, Client(saver, api).all):
            with pytest.raises(CorruptCheckpoint) as raised:
                await read(config())
            error = raised.value
            assert (error.thread_id, error.checkpoint_ns, error.checkpoint_id) == ("thread", "", "1")
            assert error.channel in (where, "metadata")
            line = fail.__code__.co_firstlineno + 1
            words = f"{SHOP}.Person could not be created by fail, which on_load names for it (KeyError on line {line})"
            assert words in str(error)
            assert "secret" not in f"{error} {error.__cause__} {error.__context__}"
    assert database.cells() == before
    with store.open(on_load={f"{SHOP}.Person": fail}, on_unreadable="raw") as saver:
        found = (await get(Client(saver, api), config())).metadata
        assert found == metadata(0, **{where: {"name": "a secret"}})


async def test_a_class_that_does_not_fit_the_fields_raises(store: Store, api: str, shop: OldShop) -> None:
    with store.open() as saver:
        await put(Client(saver, api), "1", {"a": shop.module.Person(name="Ann")})
    with store.open(on_load={f"{SHOP}.Person": Customer}) as saver:
        words = f"{SHOP}.Person cannot become the class that on_load names: .*Customer cannot be .*it has no field name"
        with pytest.raises(CorruptCheckpoint, match=words):
            await Client(saver, api).get_tuple(config())


@pytest.mark.parametrize("strict", [True, False])
async def test_a_class_named_in_on_load_need_not_be_allowed(
    store: Store, api: str, shop: OldShop, strict: bool
) -> None:
    with store.open() as saver:
        await put(Client(saver, api), "1", {"a": shop.order("1"), "b": shop.module.Person(name="Ann Lee")})
    shop.forget()
    options: Any = {"strict": True} if strict else {"serde": JsonPlusSerializer(allowed_msgpack_modules=None)}
    with store.open(on_load=ON_LOAD, **options) as saver:
        found = (await get(Client(saver, api), config())).checkpoint["channel_values"]
        assert found == {"a": purchase("1"), "b": Customer(first="Ann", last="Lee")}


def test_a_custom_serializer_with_on_load_is_refused(store: Store) -> None:
    for serde in (CountingSerializer(), EncryptedSerializer.from_pycryptodome_aes(CountingSerializer(), key=b"k" * 16)):
        with pytest.raises(ConfigError, match="a CountingSerializer creates its objects itself, so change them there"):
            store.open(on_load=ON_LOAD, serde=serde)
        store.open(on_load={}, serde=serde).close()
