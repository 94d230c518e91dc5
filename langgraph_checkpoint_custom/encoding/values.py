"""Between a value and the bytes in its row: the serializer, and sealing, which is compression or encryption.

Must not know: SQL, connections, checkpoints.

The type in a row is the serializer's own type. If the bytes in the row are not the serializer's own, a bar and one
letter for each layer follow:

- `p`: the value is in chunks, and these bytes say how to join them, see `chunks.py`.
- `z`: compressed with Zstandard, if that saves a tenth. On PostgreSQL, compression takes less time than sending and
  storing the saved bytes. In a SQLite file it takes more: without it, a put of 50 KB of text takes 1.3 ms instead of
  1.8 ms, and a get of 1 MB takes 1.4 ms instead of 4 ms. Files are about twice as large then, which is still at most a
  tenth of the official saver's.
- `b`: encrypted together with a digest of the type and the location, so that the value can be read only there. Such
  bytes are not compressed: their length would reveal something about the text.

An unknown letter was written by a later version of this package, and raises an error. The thread is not part of the
location, because threads are copied inside the database, without a key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from typing import Any

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from zstandard import ZstdCompressor, ZstdDecompressor, frame_content_size

from langgraph_checkpoint_custom.encoding.allowlist import cipher_and_inner
from langgraph_checkpoint_custom.encoding.chunks import is_splittable
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.serde import (
    MSGPACK,
    ExactSerializer,
    OnInexact,
    OnLoad,
    exact_serializer,
)
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import Location

CHUNKED = "p"
COMPRESSED = "z"
BOUND = "b"
_COMPRESSED_MSGPACK = f"{MSGPACK}|{COMPRESSED}"
DIGEST = 16  # Bytes. They are enough, because searching for a collision needs the key.

# Bytes. PostgreSQL keeps a row of up to 2 KB in one piece: such a value, and a checkpoint's keys and metadata.
# Compressing a smaller value, and decompressing it with each read, takes longer than storing the saved bytes.
COMPRESS_FROM = 1600
LEVEL = 1  # Level 3 saves 5 % more of a chat and takes twice as long.
# Bytes. Up to this size, level -1 takes a third of the time and leaves a fifth more bytes.
SMALL, SMALL_LEVEL = 4_096, -1
# Bytes. No row of either database can have held more before compression; a row that claims more is an attack.
LARGEST = 2**30
# Pools, because these objects are expensive to create, and only one OS thread may use one at a time.
_COMPRESSORS: dict[int, list[ZstdCompressor]] = {LEVEL: [], SMALL_LEVEL: []}
_DECOMPRESSORS: list[ZstdDecompressor] = []

# A value to serialize once, to see whether its texts are readable in the serializer's bytes.
PROBE = {"can this key be read?": "can this value be read?"}


TypedBytes = tuple[str, bytes]
"""The type and bytes of a value, as in its row or still unsealed."""


class ValueCodec:
    """Encodes and seals values for their rows, and unseals and decodes them.

    Args:
        serde: The serializer; an `EncryptedSerializer` encrypts the bytes of its inner one.
        previous: `EncryptedSerializer`s with earlier keys of the rows, and a `JsonPlusSerializer` if some rows may be
            unencrypted.
        clear: Metadata keys that stay readable in the database although the serializer encrypts.
        excluded: Metadata keys that are not stored.
        compress: Whether to compress values that are large and not encrypted.
        raw: Whether to return the stored data of an object that cannot be restored.
        on_inexact: Whether to store an object that would not come back as it was as LangGraph stores it, or to raise.
        on_load: Replacements for stored objects, by the full name of their class.

    Raises:
        ConfigError: The serializer would never use `on_load`, or one of `previous` is of another class.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        *,
        previous: Sequence[SerializerProtocol] = (),
        clear: Collection[str] = (),
        excluded: Collection[str] = (),
        compress: bool = True,
        raw: bool = False,
        on_inexact: OnInexact = "raise",
        on_load: OnLoad | None = None,
    ) -> None:
        self.serde = serde
        self.cipher, inner = cipher_and_inner(serde)
        """The cipher, or None. A value reuses chunks only if the same cipher has encrypted them."""
        self._given = inner
        encrypted = self.cipher is not None
        self._serde = exact_serializer(inner, on_inexact=on_inexact, raw=raw, on_load=on_load, encrypted=encrypted)
        self.clear = clear
        self.excluded = frozenset(excluded)
        self._compress = compress
        self.seals_from = 0 if self.cipher else COMPRESS_FROM if compress else math.inf
        """The bytes of a value of the type msgpack from which on it has to be sealed."""
        self._raw = raw
        earlier = list(map(_cipher_of, previous))
        self._ciphers = [cipher for cipher in (self.cipher, *earlier) if cipher is not None]
        self._reads_plain = self.cipher is None or None in earlier or raw
        exact = self._serde if isinstance(self._serde, ExactSerializer) else None
        self.packs = exact is not None
        """Whether the serializer writes LangGraph's msgpack, of which each part can be read alone."""
        self.encode: Callable[[Any], TypedBytes] = exact.dumps_typed if exact else self._encode
        """Encodes a value without sealing it: the serializer's type and bytes."""
        self.pack: Callable[[Any], bytes] = exact.pack if exact else pack
        """Encodes a value in msgpack; raises for one that the serializer would rather pickle."""
        self.decode: Callable[[TypedBytes], Any] = self._serde.loads_typed
        """Decodes the type and bytes that `encode` or `unseal` returned; errors of the serializer pass through."""
        self.plain: Mapping[str | None, Callable[[Any], Any]] = {}
        """What decodes the bytes of a row of msgpack, compressed or not, by its type; empty if it must be encrypted."""
        if exact and self._reads_plain:
            unpack = exact.unpack
            self.plain = {MSGPACK: unpack, _COMPRESSED_MSGPACK: lambda data: unpack(_decompress(data))}

    @cached_property
    def plaintext_keys(self) -> Collection[str] | None:
        """The metadata keys that may be readable in the database; None means all."""
        return self.clear if self.cipher is not None or self._hides else None

    @cached_property
    def _hides(self) -> bool:
        """Whether the serializer's bytes are unreadable, because a serializer of another class encrypts them."""
        stored = bytes(self._given.dumps_typed(PROBE)[1])
        return not all(text.encode() in stored for pair in PROBE.items() for text in pair)

    def dumps(self, value: Any, location: Location) -> TypedBytes:
        """Encode and seal a value for its row; errors of the serializer pass through."""
        return self.seal(*self.encode(value), location)

    def loads(self, type_: str, data: bytes, location: Location) -> Any:
        """Unseal and decode a value.

        Raises:
            UnreadableValue: The bytes cannot be unsealed, or the value cannot be restored. Errors of the serializer
                pass through.
        """
        return self.decode(self.unseal(type_, data, location))

    def _encode(self, value: Any) -> TypedBytes:
        type_, data = self._serde.dumps_typed(value)
        return type_, bytes(data)

    def is_splittable(self, type_: str, data: bytes) -> bool:
        """Whether unsealed bytes may be worth cutting into chunks."""
        return self.packs and type_ == MSGPACK and is_splittable(data)

    def seal(self, type_: str, data: bytes, location: Location, form: str = "") -> TypedBytes:
        """Compress or encrypt bytes for their row, which needs only them, not the value.

        `form` is `CHUNKED` for the own row of a value in chunks, whose names are the end of its location.
        """
        if self.cipher is not None:
            name, data = self.cipher.encrypt(_digest(type_, location) + data)
            return f"{type_}+{name}|{form}{BOUND}", data
        if self._compress and len(data) >= COMPRESS_FROM and not self._hides:
            compressed = _compress(data)
            if len(compressed) < len(data) * 0.9:
                return f"{type_}|{form}{COMPRESSED}", compressed
        return f"{type_}|{form}" if form or "|" in type_ else type_, data

    def unseal(self, stored_type: str, data: bytes, location: Location, form: str = "") -> TypedBytes:
        """Return the bytes as they were before `seal`, with the same `location` and `form`.

        Raises:
            UnreadableValue: The bytes cannot be unsealed.
        """
        if stored_type == MSGPACK and self._reads_plain and not form:
            return stored_type, data
        type_, layers = _layers(stored_type)
        if layers.startswith(CHUNKED) != (form == CHUNKED):
            raise UnreadableValue(
                f"it is stored as {stored_type!r}, but " + ("in chunks" if form else "without chunks")
            )
        layers = layers.removeprefix(form)
        if layers == BOUND:
            return self._decrypt(type_, data, location)
        if layers not in ("", COMPRESSED):
            raise UnreadableValue(
                f"it was stored in the format {layers!r}, which this version does not know; upgrade "
                "langgraph-checkpoint-custom"
            )
        if not self._reads_plain:
            raise UnreadableValue(
                f"it was stored as {type_!r} without encryption, which anybody with access to the database can do; if "
                "it was you, pass previous_serdes=[JsonPlusSerializer()] and call reencrypt()"
            )
        return type_, _decompress(data) if layers else data

    def decompress(self, stored_type: str, data: bytes) -> TypedBytes:
        """Return a row's type and bytes without compression, if `seal` did no more; other bytes as they are."""
        if stored_type == _COMPRESSED_MSGPACK and self._reads_plain:
            with suppress(Exception):  # `unseal` raises for damaged bytes, too.
                return MSGPACK, _decompress(data)
        return stored_type, data

    def renewed(self, type_: str, data: bytes, location: Location) -> TypedBytes | None:
        """Seal stored bytes again with the current settings, or return None if they are current. Creates no object."""
        own, layers = _layers(type_)
        if layers.endswith(BOUND) and self.cipher is not None:
            with suppress(Exception):  # A cipher may raise anything for bytes of another key.
                self.cipher.decrypt(_of_cipher(own)[1], data)
                return None
        form = CHUNKED if layers.startswith(CHUNKED) else ""
        renewed = self.seal(*self.unseal(type_, data, location, form), location, form)
        return None if renewed[0] == type_ and not layers.endswith(BOUND) else renewed

    def _decrypt(self, stored_type: str, data: bytes, location: Location) -> TypedBytes:
        type_, name = _of_cipher(stored_type)
        if not self._ciphers:
            raise UnreadableValue("it is encrypted; pass the EncryptedSerializer that has its key as serde")
        failure: Exception | None = None
        for cipher in self._ciphers:
            try:
                plain = cipher.decrypt(name, data)
            except Exception as error:  # A cipher may raise anything for bytes of another key.
                failure = failure or error
                continue
            if plain[:DIGEST] == _digest(type_, location) or self._raw:
                return type_, plain[DIGEST:]
            raise UnreadableValue("it was encrypted for another location; somebody has moved it here in the database")
        raise UnreadableValue(
            f"no key decrypts it ({type(failure).__name__}: {failure}): it was changed, or encrypted with a key that "
            "is neither in serde nor in previous_serdes"
        ) from failure


def _cipher_of(serde: SerializerProtocol) -> CipherProtocol | None:
    """The cipher of one of `previous_serdes`; None if it reads what is not encrypted."""
    cipher, inner = cipher_and_inner(serde)
    if not isinstance(inner, JsonPlusSerializer):
        raise ConfigError(
            "previous_serdes must contain EncryptedSerializers with earlier keys, or a JsonPlusSerializer if rows "
            f"may be unencrypted, not a {type(serde).__name__}"
        )
    return cipher


def _layers(type_: str) -> tuple[str, str]:
    """Split the type of a row into the serializer's own type and the letters of the layers."""
    own, bar, layers = type_.rpartition("|")
    return (own, layers) if bar else (type_, "")


def is_chunked(type_: str) -> bool:
    """Whether a row of this type only joins the chunks of a value."""
    return _layers(type_)[1].startswith(CHUNKED)


def _compress(data: bytes) -> bytes:
    level = LEVEL if len(data) > SMALL else SMALL_LEVEL
    try:
        compressor = _COMPRESSORS[level].pop()
    except IndexError:
        compressor = ZstdCompressor(level=level)
    try:
        return compressor.compress(data)
    finally:
        _COMPRESSORS[level].append(compressor)


def _decompress(data: bytes) -> bytes:
    if not 0 <= frame_content_size(data) <= LARGEST:
        raise UnreadableValue(f"it would unpack to more than {LARGEST:,} bytes, or does not state its size")
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = ZstdDecompressor()
    try:
        return decompressor.decompress(data)
    finally:
        _DECOMPRESSORS.append(decompressor)


def _of_cipher(type_: str) -> tuple[str, str]:
    """Split a type into the one before encryption and the name of the cipher."""
    own, _, name = type_.partition("+")
    return own, name


def _digest(type_: str, location: Location) -> bytes:
    texts = [text.encode() for text in (type_, *location)]
    return blake2b(b"".join(len(text).to_bytes(4, "big") + text for text in texts), digest_size=DIGEST).digest()
