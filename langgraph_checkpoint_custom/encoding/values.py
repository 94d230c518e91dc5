"""What lies between a value and the bytes in its row: the serializer, compression, and encryption bound to a place.

Must not know: SQL, connections, checkpoints.

The type in a row is the serializer's own word. Where something was laid around the serializer's bytes, a bar and a
letter for each layer follow:

- `p`: in parts; these are the bytes that tell how to put them together, see `parts`.
- `z`: compressed with Zstandard, where that saves a tenth. On PostgreSQL that takes less time than to send and store
  what is saved. In a SQLite file it does not: without it, a put of 50 KB of text takes 1.3 ms instead of 1.8, and a get
  of 1 MB 1.4 instead of 4. Files have about twice the size then, still a tenth of the official saver's and less.
- `b`: encrypted together with a digest of its type and its place, so that it can be read there and nowhere else. Such
  bytes are not compressed: the length would tell something about the text.

A letter that is not known here was written by a later version, and is refused. The thread is no part of a place, since
a thread is copied inside the database, without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from ormsgpack import MsgpackEncodeError
from zstandard import ZstdCompressor, ZstdDecompressor, frame_content_size

from langgraph_checkpoint_custom.encoding.chunks import (
    LEAST,
    ChunkedValue,
    JoinedChunks,
    Known,
    Whole,
    as_whole,
    chunk_value,
    contents,
    is_large,
    join_chunks,
)
from langgraph_checkpoint_custom.encoding.objects import UnreadableValue, pack
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, ExactSerializer, OnInexact, OnLoad, exact_serializer
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import Location

DIVIDED = "p"
COMPRESSED = "z"
BOUND = "b"
DIGEST = 16  # Bytes; nobody can look for a collision without the key.

# Bytes. Compressing a smaller value takes about as long as storing what is saved (20 µs), and rows are padded anyway.
COMPRESS_FROM = 1000
LEVEL = 1  # Level 3 saves 5 % more of a chat and takes twice as long.
# Bytes that no row of either database could have held before it was compressed; a row that claims more is a trap.
LARGEST = 2**30
# They are dear to make, and only one OS thread may use one at a time.
_COMPRESSORS: list[ZstdCompressor] = []
_DECOMPRESSORS: list[ZstdDecompressor] = []

# What a serializer is asked to store once, to see whether it can be read there.
PROBE = {"can this key be read?": "can this value be read?"}


class Stored(NamedTuple):
    """A value as its row has it."""

    type: str
    value: bytes


class Large(NamedTuple):
    """A large value: the bytes of its own row, the names of its parts, and by name those that are new.

    Without names it is stored in one piece.
    """

    whole: Stored
    names: str | None
    new: Mapping[str, Stored]
    known: Known


class Ciphers(NamedTuple):
    """What may have encrypted a row: ciphers to try in this order, and whether it may be plain."""

    known: Sequence[CipherProtocol]
    plain: bool


NO_CIPHERS = Ciphers((), False)


def ciphers_of(serdes: Sequence[SerializerProtocol]) -> Ciphers:
    """What `previous_serdes` stand for: with which keys, or with none, the rows may have been written."""
    chunks = []
    for serde in serdes:
        cipher, inner = _parts(serde)
        if not isinstance(inner, JsonPlusSerializer):
            raise ConfigError(
                "previous_serdes has EncryptedSerializers with earlier keys, or a JsonPlusSerializer if rows may be "
                f"without encryption, not a {type(serde).__name__}"
            )
        chunks.append(cipher)
    return Ciphers([cipher for cipher in chunks if cipher], None in chunks)


class Values:
    """How values become bytes in rows, and bytes values.

    Args:
        serde: The serializer; an `EncryptedSerializer` encrypts what its inner one gives.
        earlier: What may have encrypted what is read, besides.
        clear: Metadata keys that may be read in the database although the serializer encrypts.
        compress: Whether to compress what is large and not encrypted.
        raw: Whether to give what was stored of an object that cannot be made.
        on_inexact: Whether to store what would not come back as it was as LangGraph stores it, or to raise.
        on_load: What objects of these classes are made of instead.

    Raises:
        ConfigError: The serializer makes objects where `on_load` cannot be asked.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        *,
        earlier: Ciphers = NO_CIPHERS,
        clear: Collection[str] = (),
        compress: bool = True,
        raw: bool = False,
        on_inexact: OnInexact = "raise",
        on_load: OnLoad | None = None,
    ) -> None:
        self.serde = serde
        self.cipher, inner = _parts(serde)
        """What encrypts; only values with the same one share their parts."""
        self._given = inner
        self._serde = exact_serializer(inner, on_inexact=on_inexact, raw=raw, on_load=on_load)
        self._earlier = earlier
        self._clear = clear
        self._compress = compress
        self._raw = raw
        self._reads_plain = self.cipher is None or earlier.plain or raw
        unpack = self._serde.unpack if isinstance(self._serde, ExactSerializer) else None
        self.unpack: Callable[[bytes], Any] = unpack or (lambda data: self._serde.loads_typed((MSGPACK, data)))
        """Gives the value of bytes with the type msgpack and no layers; `reason` says why not."""
        self.plain = unpack if self._reads_plain else None
        """As `unpack`, for the bytes of a row with the type msgpack; None if these are not to be read so."""

    @property
    def plaintext_keys(self) -> Collection[str] | None:
        """The metadata keys whose values may be readable in the database; None is all."""
        return self._clear if self.cipher is not None or self._hides else None

    @cached_property
    def _hides(self) -> bool:
        """Whether what a serializer of any kind stores cannot be read: one that encrypts, around another or not."""
        stored = bytes(self._given.dumps_typed(PROBE)[1])
        return not all(text.encode() in stored for pair in PROBE.items() for text in pair)

    @property
    def packs(self) -> bool:
        """Whether a value's bytes are msgpack, which `unpack` reads by itself."""
        return isinstance(self._serde, ExactSerializer)

    def reason(self, data: bytes, error: Exception) -> Exception:
        """What was wrong with bytes that `unpack` or `plain` could not read: their error, or a better one."""
        if isinstance(error, UnreadableValue) or not isinstance(error, ValueError):
            return error  # Bytes that were not to be read are not looked at again.
        return (isinstance(self._serde, ExactSerializer) and self._serde.reason(data)) or error

    def dumps(self, value: Any, location: Location) -> Stored:
        """A value as its row has it; raises what the serializer raises."""
        stored = self.dumps_unsealed(value)
        return self.seal(stored, location) if self.is_unsealed(stored) else stored

    def dumps_unsealed(self, value: Any) -> Stored:
        """A value as bytes, which are still to be closed if `is_open` says so; that needs the value no more."""
        type_, data = self._serde.dumps_typed(value)
        return Stored(type_, bytes(data))

    def is_unsealed(self, stored: Stored) -> bool:
        """Whether such bytes are still to be closed; most are not."""
        type_, data = stored
        return self.cipher is not None or (self._compress and len(data) >= COMPRESS_FROM) or "|" in type_

    def seal(self, stored: Stored, location: Location, names: str | None = None) -> Stored:
        """Bytes as their row has them: compressed or encrypted. With `names`, those of a value that is in parts."""
        return self._seal(*stored, location) if names is None else self._seal(*stored, (*location, names), DIVIDED)

    def dumps_blob(self, value: Any, location: Location, before: Known | None = None) -> Stored | Large:
        """A channel value as bytes or, if it is a large one, as parts that it may share with the value before.

        They are as those of `dumps_unsealed`, and those of a value in parts are to be closed in any case.
        """
        if isinstance(before, ChunkedValue) and (found := self._chunk(value, location, before)):
            return found
        whole = self.dumps_unsealed(value)
        if not is_large(value, len(whole.value)):
            return whole
        if isinstance(before, Whole) and before.is_like(whole.value) and (found := self._chunk(value, location)):
            return found
        return Large(whole, None, {}, as_whole(location[-1], whole.value))

    def loads(self, type_: str, data: bytes, location: Location) -> Any:
        """The value of bytes; raises UnreadableValue, or what the serializer raises."""
        return self._serde.loads_typed(self._unseal(type_, data, location))

    def unsealed(self, type_: str, data: bytes, location: Location) -> tuple[str, bytes]:
        """The serializer's own type and bytes, as `dumps_unsealed` gave them; raises UnreadableValue."""
        return self._unseal(type_, data, location)

    def loads_unsealed(self, type_: str, data: bytes) -> Any:
        """The value of what `opened` gives; raises what the serializer raises."""
        return self._serde.loads_typed((type_, data))

    def loads_blob(self, type_: str, data: bytes, location: Location) -> tuple[Any, Whole | None]:
        """A channel value in one piece, and what to know of it if it is a large one; raises as `loads` does."""
        if len(data) < LEAST:
            return self.loads(type_, data, location), None
        own, plain = self._unseal(type_, data, location)
        value = self._serde.loads_typed((own, plain))
        return value, as_whole(location[-1], plain) if is_large(value, len(plain)) else None

    def loads_many(self, stored: Sequence[bytes]) -> list[Any]:
        """The values of bytes with the type msgpack and no layers; raises as `loads` does, but not of which value."""
        if self._reads_plain and isinstance(self._serde, ExactSerializer):
            return self._serde.loads_many(stored)
        return [self.loads(MSGPACK, data, ()) for data in stored]

    def loads_chunks(
        self, whole: Stored, names: str, chunks: Sequence[tuple[str, Stored]], location: Location
    ) -> JoinedChunks:
        """The value of parts; raises as `loads` does."""
        stored = self._unseal(*whole, (*location, names), DIVIDED)[1]

        def unsealed(named: tuple[str, Stored]) -> bytes:
            name, part = named
            return self._unseal(*part, (*location[:-1], name))[1]

        return join_chunks(stored, chunks, unsealed, lambda data: self._serde.loads_typed((MSGPACK, data)))

    def unsealed_if_closed(self, type_: str, data: bytes, location: Location) -> tuple[str, bytes] | None:
        """The serializer's own type and bytes, or None for what only puts parts together.

        Raises: UnreadableValue if it cannot be decrypted, say.
        """
        if _layers(type_)[1].startswith(DIVIDED):
            return None
        return self._unseal(type_, data, location)

    def renewed(self, type_: str, data: bytes, location: Location) -> Stored | None:
        """The same bytes as they would be stored now, or None if they are. No object is made of them."""
        own, layers = _layers(type_)
        if layers.endswith(BOUND) and self.cipher is not None:
            with suppress(Exception):  # Whatever a cipher says to another key's text.
                self.cipher.decrypt(_of_cipher(own)[1], data)
                return None
        form = DIVIDED if layers.startswith(DIVIDED) else ""
        renewed = self._seal(*self._unseal(type_, data, location, form), location, form)
        return None if renewed.type == type_ and not layers.endswith(BOUND) else renewed

    def _chunk(self, value: Any, location: Location, before: ChunkedValue | None = None) -> Large | None:
        if not isinstance(self._serde, ExactSerializer):
            return None
        try:
            found = chunk_value(value, location[-1], before, pack)
        except MsgpackEncodeError:
            return None  # The serializer may have another form for it, or says what is wrong.
        if found is None:
            return None
        chunked, new = found
        chunks = {name: Stored(MSGPACK, data) for name, data in new.items()}
        return Large(Stored(MSGPACK, contents(chunked)), chunked.names, chunks, chunked)

    def _seal(self, type_: str, data: bytes, location: Location, form: str = "") -> Stored:
        if self.cipher is not None:
            name, data = self.cipher.encrypt(_digest(type_, location) + data)
            return Stored(f"{type_}+{name}|{form}{BOUND}", data)
        if self._compress and len(data) >= COMPRESS_FROM and not self._hides:
            compressed = _compress(data)
            if len(compressed) < len(data) * 0.9:
                return Stored(f"{type_}|{form}{COMPRESSED}", compressed)
        return Stored(f"{type_}|{form}" if form or "|" in type_ else type_, data)

    def _unseal(self, stored_type: str, data: bytes, location: Location, form: str = "") -> tuple[str, bytes]:
        """The serializer's own type and bytes."""
        type_, layers = _layers(stored_type)
        if layers.startswith(DIVIDED) != (form == DIVIDED):
            raise UnreadableValue(f"it is stored as {stored_type!r}, but " + ("in parts" if form else "without parts"))
        layers = layers.removeprefix(form)
        if layers == BOUND:
            return self._decrypt(type_, data, location)
        if layers not in ("", COMPRESSED):
            raise UnreadableValue(
                f"it was stored in the form {layers!r}, which this version does not know; upgrade "
                "langgraph-checkpoint-custom"
            )
        if not self._reads_plain:
            raise UnreadableValue(
                f"it was stored as {type_!r} without encryption, which anybody with access to the database can do; if "
                "it was you, pass previous_serdes=[JsonPlusSerializer()] and call reencrypt()"
            )
        return type_, _decompress(data) if layers else data

    def _decrypt(self, stored_type: str, data: bytes, location: Location) -> tuple[str, bytes]:
        type_, name = _of_cipher(stored_type)
        ciphers = [*([self.cipher] if self.cipher is not None else []), *self._earlier.known]
        if not ciphers:
            raise UnreadableValue("it is encrypted; pass the EncryptedSerializer that has its key as serde")
        failure: Exception | None = None
        for cipher in ciphers:
            try:
                plain = cipher.decrypt(name, data)
            except Exception as error:  # Whatever a cipher says to another key's text.
                failure = failure or error
                continue
            if plain[:DIGEST] == _digest(type_, location) or self._raw:
                return type_, plain[DIGEST:]
            raise UnreadableValue("it was encrypted for another place; somebody has moved it here inside the database")
        raise UnreadableValue(
            f"no key decrypts it ({type(failure).__name__}: {failure}): it was changed, or encrypted with a key that "
            "is neither in serde nor in previous_serdes"
        ) from failure


def _parts(serde: SerializerProtocol) -> tuple[CipherProtocol | None, SerializerProtocol]:
    """The cipher of an `EncryptedSerializer`, and its inner serializer; one of another kind is whole."""
    kind = type(serde)
    if (
        getattr(kind, "dumps_typed", None) is EncryptedSerializer.dumps_typed
        and getattr(kind, "loads_typed", None) is EncryptedSerializer.loads_typed
        and isinstance(serde, EncryptedSerializer)  # Last, since to ask a protocol's subclass takes 3 µs.
    ):
        return serde.cipher, serde.serde
    return None, serde


def _layers(type_: str) -> tuple[str, str]:
    """The serializer's part of a type, and the letters of the layers around it."""
    own, bar, layers = type_.rpartition("|")
    return (own, layers) if bar else (type_, "")


def _compress(data: bytes) -> bytes:
    try:
        compressor = _COMPRESSORS.pop()
    except IndexError:
        compressor = ZstdCompressor(level=LEVEL)
    try:
        return compressor.compress(data)
    finally:
        _COMPRESSORS.append(compressor)


def _decompress(data: bytes) -> bytes:
    if not 0 <= frame_content_size(data) <= LARGEST:
        raise UnreadableValue(f"it would have more than {LARGEST:,} bytes, or does not say how many")
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = ZstdDecompressor()
    try:
        return decompressor.decompress(data)
    finally:
        _DECOMPRESSORS.append(decompressor)


def _of_cipher(type_: str) -> tuple[str, str]:
    """The type before encryption, and the name of the cipher."""
    own, _, name = type_.partition("+")
    return own, name


def _digest(type_: str, location: Location) -> bytes:
    chunks = [part.encode() for part in (type_, *location)]
    return blake2b(b"".join(len(part).to_bytes(4, "big") + part for part in chunks), digest_size=DIGEST).digest()
