"""Writes and reads LangGraph's msgpack format without silent changes.

Must not know: SQL, connections, checkpoints.

The format and the types that may be read are those of LangGraph's `JsonPlusSerializer`: it reads what this serializer
writes, and the other way round. They differ if an object cannot be rebuilt, because its class was moved, renamed or
changed, or because `strict` does not allow it. `JsonPlusSerializer` then returns the dict or list that is stored for
the object; this serializer raises an error that names the class. (A class that LangGraph's own allowlists reject comes
back as its stored data with both.) They also differ if an object would not come back as it was: `JsonPlusSerializer`
stores something similar; this serializer raises, or does the same and logs it. Serializers other than
`JsonPlusSerializer` are used as they are.

`JsonPlusSerializer` reads what this serializer writes as far as it can: a tuple and an object of `leaves.py` that its
class creates from its parts come back as they were. If its allowlist forbids that, they come back as their parts, such
as a list for a tuple. Of other objects of `leaves.py` it always returns the parts.

These come back as the closest type, as in LangGraph: a subclass of dict, list, str, int or float as that type; outside
of objects, a bytearray inside a value and a dict key that is an enum, a UUID or a datetime; any memoryview; an
exception as its text. To find these keys and bytearrays, each value would have to be searched before msgpack
encodes it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from io import BytesIO
from typing import Any, Literal, cast

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from ormsgpack import unpackb

from langgraph_checkpoint_custom.encoding.allowlist import ALWAYS_ALLOWED, Allowlist, Blocked, safe_model
from langgraph_checkpoint_custom.encoding.classes import NAMED, is_secret
from langgraph_checkpoint_custom.encoding.extensions import (
    DELTA,
    METHOD,
    NUMPY,
    PYDANTIC_1,
    PYDANTIC_2,
    REFERENCE,
    SINGLE,
    TUPLE,
    SecretInClear,
    UnreadableValue,
    stored_data,
)
from langgraph_checkpoint_custom.encoding.langgraph_private import (
    SAFE_METHODS,
    DeltaSnapshot,
    allowed_classes,
    allowed_json,
    is_langgraphs,
    restored,
)
from langgraph_checkpoint_custom.encoding.leaves import CODEC, PARTS, Leaf, codec_of, leaf_named
from langgraph_checkpoint_custom.encoding.objects import Packer, cause_of, error_text, is_empty, secret_in_clear
from langgraph_checkpoint_custom.encoding.restored import changed, find, make, restored_model
from langgraph_checkpoint_custom.errors import ConfigError

MSGPACK = "msgpack"
NULL = "null"
PICKLE = "pickle"
_READ = ormsgpack.OPT_NON_STR_KEYS

OnUnreadable = Literal["raise", "raw"]
OnInexact = Literal["store", "raise"]
# By the full name of a class when it was stored: the class to restore instead, or a function of the stored data.
OnLoad = Mapping[str, type | Callable[[Any], Any]]


def exact_serializer(
    serde: SerializerProtocol,
    *,
    on_inexact: OnInexact = "raise",
    raw: bool = False,
    on_load: OnLoad | None = None,
    encrypted: bool = False,
) -> SerializerProtocol:
    """Return a serializer for the same types that raises where `serde` would return something different.

    This is possible for a plain `JsonPlusSerializer`; any other serializer is returned as it is.

    Raises:
        ConfigError: The serializer would never use `on_load`.
    """
    if is_langgraphs(serde):
        return ExactSerializer(serde, on_inexact=on_inexact, raw=raw, on_load=on_load, encrypted=encrypted)
    if on_load and not isinstance(serde, ExactSerializer):
        raise ConfigError(
            "on_load works with LangGraph's JsonPlusSerializer, alone or inside an EncryptedSerializer; a "
            f"{type(serde).__name__} creates its objects itself, so change them there"
        )
    return serde


# ormsgpack drops an exception that is raised while an object is restored. This is the last one.
_RAISED: ContextVar[BaseException | None] = ContextVar("raised", default=None)
_DROPPED = "ext_hook failed"


class _WithoutSecrets(pickle.Pickler):
    """Pickles everything but secrets, which would be readable."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse a secret, and leave other objects to pickle."""
        if is_secret(type(obj)) and not is_empty(obj):
            raise secret_in_clear(type(obj))
        return NotImplemented


def _pickled(obj: Any, *, secrets: bool) -> bytes:
    if secrets:
        return pickle.dumps(obj)
    data = BytesIO()
    _WithoutSecrets(data).dump(obj)
    return data.getvalue()


# Their extensions are never those of leaves.
_OF_MODELS = (PYDANTIC_1, PYDANTIC_2)


class ExactSerializer(SerializerProtocol):
    """Writes and reads what a `JsonPlusSerializer` does, but raises instead of returning something different.

    Args:
        serde: The serializer.
        on_inexact: Whether to store an object that would not come back as it was as `serde` stores it, or to raise.
        raw: Whether to return the stored data of an object that cannot be restored.
        on_load: Replacements for stored objects, by the full name of their class.
        encrypted: Whether the bytes are encrypted before they are stored, so that they may have secrets.
    """

    def __init__(
        self,
        serde: JsonPlusSerializer,
        *,
        on_inexact: OnInexact = "raise",
        raw: bool = False,
        on_load: OnLoad | None = None,
        encrypted: bool = False,
    ) -> None:
        self._serde = serde
        self._allowlist = Allowlist(serde)
        self._raw = raw
        self._on_load = on_load or {}
        self._is_plain = not (raw or on_load)
        self._stores = on_inexact == "store"
        self._encrypted = encrypted
        # With `pickle_fallback`, pickle is tried before the inexact form, because it stores the object as it is.
        exactly, as_langgraph = Packer(exact=True, secrets=encrypted), Packer(exact=False, secrets=encrypted)
        self._pack_as_langgraph = as_langgraph.pack
        packer = as_langgraph if self._stores and not serde.pickle_fallback else exactly
        self.pack = packer.pack
        self._pack_at_once = packer.pack_at_once
        self._revive = self._object  # Bound once: a value may have thousands of objects.

    # Writing

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value.

        Raises:
            UnstorableValue: The value would come back as a different one. Errors of ormsgpack pass through.
        """
        if obj is None:
            return NULL, b""
        if type(obj) is bytes or type(obj) is bytearray:
            kind, data = self._serde.dumps_typed(obj)
            return kind, bytes(data)
        try:
            return MSGPACK, self._pack_at_once(obj)
        except ormsgpack.MsgpackEncodeError:
            pass
        try:
            return MSGPACK, self.pack(obj)
        except ormsgpack.MsgpackEncodeError as error:
            problem = cause_of(error)
        if self._serde.pickle_fallback and not isinstance(problem, SecretInClear):
            try:
                return PICKLE, _pickled(obj, secrets=self._encrypted)
            except SecretInClear as error:
                problem = error
            except Exception as error:
                problem = TypeError(error_text(error))
            if self._stores:
                with suppress(ormsgpack.MsgpackEncodeError):
                    return MSGPACK, self._pack_as_langgraph(obj)
        raise problem  # Outside of the handler, because the original error has values in its text.

    # Reading

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value.

        Raises:
            UnreadableValue: It cannot be restored as it was.
        """
        kind, stored = data
        if kind == MSGPACK:
            return self.unpack(stored)
        strict = allowed_classes(self._serde) is not True
        if kind == "json" and strict and not allowed_json(self._serde):
            raise UnreadableValue(
                "it was stored as 'json', which can name any constructor; pass a serde with allowed_json_modules"
            )
        return self._serde.loads_typed(data)

    def unpack(self, stored: bytes) -> Any:
        """Decode a value of the type msgpack; raises as `loads_typed` does."""
        try:
            return unpackb(stored, ext_hook=self._revive, option=_READ)
        except ValueError as error:
            if str(error) != _DROPPED:
                raise
        raised = _RAISED.get()
        _RAISED.set(None)
        raise raised or UnreadableValue("an exception from outside interrupted the reading; read it again")

    def _object(self, code: int, data: bytes) -> Any:
        """Restore an object from its extension."""
        try:
            if code == PYDANTIC_2:
                content = unpackb(data, ext_hook=self._revive, option=_READ)
                # A message, for example, whose fields are stored as they were, and which has no further state.
                if len(content) == 4 and type(content[3]) is not str and self._is_plain:
                    module, name, fields, given = content
                    if (model := safe_model(module, name)) and type(fields) is dict:
                        return restored_model(model, fields, given)
                return self._object_or_raw(code, content)
            if code > DELTA or code < SINGLE:
                found = restored(self._serde, code, data)
                if found is None and not self._raw:
                    raise UnreadableValue(f"msgpack extension {code} is unknown to this langgraph-checkpoint")
                return found
            if code == SINGLE and data.startswith(TUPLE):
                return tuple(unpackb(data[len(TUPLE) :], ext_hook=self._revive, option=_READ))
            content = unpackb(data, ext_hook=self._revive, option=_READ)
            if code == DELTA:
                return DeltaSnapshot(content)
            if code == NUMPY:
                content = ["numpy", "ndarray", content]
            return self._object_or_raw(code, content)
        except BaseException as error:
            if str(error) != _DROPPED:
                _RAISED.set(error)
            raise

    def _object_or_raw(self, code: int, content: Any) -> Any:
        try:
            return self._restore(code, *content)
        except Blocked:
            return stored_data(*content)
        except UnreadableValue:
            if not self._raw:
                raise
            return stored_data(*content)

    def _restore(self, code: int, module: str, name: str, stored: Any, method: Any = "", state: Any = None) -> Any:
        args = state["args"] if state and "args" in state else ()
        load = self._load_of(module, name) if self._on_load else None
        if load is not None and not isinstance(load, type):
            return _loaded(load, f"{module}.{name}", stored_data(module, name, stored, method, state))
        leaf = None if code in _OF_MODELS else self._leaf(code, module, name, method, load)
        try:
            if leaf is not None:
                return leaf.make(stored)
            if load is not None:
                target: Any = load
            elif code == METHOD:
                target = find(module, name)
            elif (module, name) == REFERENCE:
                return self._named(stored)
            else:
                target = self._allowlist.find(module, name, name.partition("[")[0] if args else name)
            # The type arguments of a generic class are checked like other classes; they are not called.
            cls = target[tuple([self._argument(*each) for each in args])] if args else target
            return make(code, cls, stored, method, state)
        except UnreadableValue as error:
            if load is None:
                raise
            raise UnreadableValue(f"{module}.{name} cannot become the class that on_load names: {error}") from None
        except Blocked:
            raise
        except Exception as error:
            problem = error_text(error)
        raise changed(f"{module}.{name}", problem)  # Outside of the handler: the original error has data in its text.

    def _leaf(self, code: int, module: str, name: str, method: Any, load: type | None) -> Leaf | None:
        """The leaf with which an object was stored, if any; an error if it names a method that is never called."""
        if code != METHOD:
            is_known = load is not None or (module, name) in ALWAYS_ALLOWED
            return None if is_known else leaf_named(code, module, name)
        leaf = None
        if load is None and method in (PARTS, CODEC):
            leaf = leaf_named(code, module, name, method)
        elif load is not None and method == CODEC and not (leaf := codec_of(load)):
            raise UnreadableValue(f"on_load names {load.__name__} for {module}.{name}, which has no registered codec")
        if leaf is None and (module, name, method) not in SAFE_METHODS:
            self._allowlist.refuse_method(module, name, method)
        return leaf

    def _named(self, path: str) -> Any:
        """The class or function that was stored by its name."""
        module, _, name = path.partition(":")
        load = self._load_of(module, name)
        if load is not None:
            return load if isinstance(load, type) else _loaded(load, f"{module}.{name}", path)
        found = self._uncalled(module, name, name)
        if not isinstance(found, NAMED):
            raise changed(f"{module}.{name}", "it is neither a class nor a function")
        return found

    def _load_of(self, module: str, name: str) -> type | Callable[[Any], Any] | None:
        """The replacement of a class in `on_load`; for a generic model, its type arguments do not matter."""
        return self._on_load.get(f"{module}.{name.partition('[')[0]}")

    def _argument(self, module: str, name: str, args: Sequence[Any] = ()) -> Any:
        """The class of a generic model's type argument, which may have arguments of its own."""
        load = self._load_of(module, name)
        found_as = name.partition("[")[0] if args else name
        found = cast("Any", load) if isinstance(load, type) else self._uncalled(module, name, found_as)
        return found[tuple([self._argument(*each) for each in args])] if args else found

    def _uncalled(self, module: str, name: str, found_as: str) -> Any:
        """A class or function that is not called; the classes of `builtins` are always allowed."""
        found = find(module, name) if module == "builtins" else None
        return found if isinstance(found, type) else self._allowlist.find(module, name, found_as)


def _loaded(load: Callable[[Any], Any], name: str, stored: Any) -> Any:
    """Call the application's function for the stored data of an object."""
    try:
        return load(stored)
    except Exception as error:
        inside = error.__traceback__ and error.__traceback__.tb_next
        line = f" on line {inside.tb_lineno}" if inside else ""
        problem = error_text(error)
    function = getattr(load, "__name__", type(load).__name__)
    raise UnreadableValue(f"{name} could not be created by {function}, which on_load names for it ({problem}{line})")
