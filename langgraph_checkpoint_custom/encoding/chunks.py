"""Large lists and dicts as chunks, so that a version stores only the chunks that the previous version does not have.

Must not know: SQL, connections, encryption.

In msgpack, the elements of a list and the pairs of a dict follow one another. So a value can be cut between any two of
them, and the chunks, joined, are the value again. The elements alone decide where to cut: after an element whose
checksum is below a limit, which grows with the size of the element and of the chunk so far. So a change moves few cuts,
whether elements are added at the end, removed from the start or changed in the middle, and every later cutting finds
the same chunks. The growing limit makes the chunks similar in size.

The chunks after the last cut are *tail chunks*: each version that appends elements adds one. When an appended element
causes a cut, its chunk and the tail chunks before it are stored again as one chunk. So most elements are stored at most
twice, and chunks can be large, which keeps the list of names in each version short: 1,000 steps of a chat take 5.3 MB
in SQLite. If each step stored a last chunk of 7 KB again, they would take 10.0 MB.

A chunk is a blob of its own in the channel. Its name is random, so no later chunk gets the name of a deleted one. Its
bytes start with a digest, by which a later value finds it. The digest is stored only there: a copy in each version
would take a tenth of a long chat. Elements that are the same objects as in the previous version, and unchanged, are not
encoded again.

A value is stored in chunks once it has something in common with the previous version. Many values never have: they are
written once, or replaced each time. In one piece they are read in a third of the time (20 values of 50 KB on SQLite in
2.6 ms instead of 7.9 ms). To find out, a few samples of the previous bytes are searched in the new ones: that takes
10 µs for 50 KB, and cutting takes 250 µs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, chain, compress, count, takewhile
from operator import attrgetter, is_not
from random import random
from secrets import token_urlsafe
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import ormsgpack

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.objects import is_unicode
from langgraph_checkpoint_custom.encoding.unchanged import Unchanged, unchanged

T = TypeVar("T")

# Bytes of an encoded value. A smaller one stays in one piece: chunks would save less than their rows take.
SPLIT_FROM = 16_384
# Bytes. The average chunk is a sixth larger. A changed element stores its complete chunk again, so smaller chunks save
# more, until their names in each version outweigh that. But each chunk is a row to read. Of 200 files of 5 KB each, a
# step that changes one stores 39 KB, and 23 KB with chunks of 6,000; the larger chunks are read in half the time.
CHUNK_BYTES = 16_000
# The largest number of tail chunks; each is a row to read.
MAX_TAIL_CHUNKS = 32
# Bytes. A chunk of at least this size is found by its first object, at any position in the next value.
FINDABLE = 1_000
# Bytes of a stored value, which may be compressed. A smaller one is not checked for being a large value.
LEAST = 6_000
# The number of samples of a value in one piece, and the bytes of each. Shorter samples would match values whose entries
# share a template but have nothing else in common.
SAMPLES = 4
SAMPLE = 2_048
# The least average size of an element, in bytes. Shorter ones, such as numbers, take longer to compare than to store.
ELEMENT = 32

# Bytes that the name and digest of a chunk take in memory, with the objects around them.
CHUNK_MEMORY = 300
# Names of chunks start with this. No channel version does: after "#", a version continues with JSON.
NAME_MARK = "#/"
_FOREIGN = "its chunks are not those that were stored"
_SAME, _SIZE, _LENGTH, _NAME = map(attrgetter, ("same", "size", "length", "name"))
_ONLY_TEXTS = frozenset({str})
DIGEST = 16  # Bytes. Two different chunks of a channel must not have the same digest by chance.
_DIGEST_HEAD = bytes([0xC4, DIGEST])  # The head of bytes in msgpack, so that a chunk is msgpack from its first byte.
_BODY = len(_DIGEST_HEAD) + DIGEST


class Chunk(NamedTuple):
    """A piece of a large value.

    Attributes:
        name: The name of its blob.
        digest: The digest of its objects' bytes.
        size: The size of these bytes.
        length: The number of its objects: elements of a list, or keys and values of a dict.
        ends: Whether a cut follows it; if not, it is a tail chunk.
        objects: The objects that it was made of; empty if nothing can tell whether they have changed since.
        same: The check whether these objects are unchanged.
    """

    name: str
    digest: bytes
    size: int
    length: int
    ends: bool
    objects: Sequence[Any] = ()
    same: Unchanged | None = None

    def of(self, objects: Sequence[Any]) -> Chunk:
        """The same chunk with the objects that it was made of, if a check for changes is possible."""
        same = unchanged(objects)
        return self._replace(objects=objects, same=same) if same else self


class ChunkedValue(NamedTuple):
    """The value of a version, in chunks."""

    version: str
    is_dict: bool
    chunks: Sequence[Chunk]

    @property
    def names(self) -> str:
        """The names of the chunks, as JSON."""
        return '["' + '","'.join(map(_NAME, self.chunks)) + '"]'  # No name has a character that JSON escapes.

    @property
    def begins(self) -> str:
        """How the stored list of names starts if it has all of these; another saver may have stored other chunks."""
        return self.names[:-1]

    @property
    def size(self) -> int:
        """The size of its chunks in bytes."""
        return sum(map(_SIZE, self.chunks))

    @property
    def memory(self) -> int:
        """The bytes that it keeps in memory: those of each chunk's name and digest, and of the objects that it has."""
        return sum([CHUNK_MEMORY + (chunk.size if chunk.objects else 0) for chunk in self.chunks])

    def without_objects(self) -> ChunkedValue:
        """The same value without the chunks' objects: a later value then has to be encoded to find its chunks."""
        return self._replace(chunks=[chunk._replace(objects=(), same=None) for chunk in self.chunks])


class UnchunkedValue(NamedTuple):
    """A large value of a version that is stored in one piece, with samples of its bytes."""

    version: str
    samples: Sequence[bytes]

    @property
    def memory(self) -> int:
        """The bytes of the samples."""
        return sum(map(len, self.samples))

    def without_objects(self) -> UnchunkedValue:
        """Itself, since it holds no objects."""
        return self

    def is_like(self, data: bytes) -> bool:
        """Whether other bytes contain one of the samples."""
        return any(sample in data for sample in self.samples)


Known = ChunkedValue | UnchunkedValue


def is_large(value: Any, size: int) -> bool:
    """Whether a value whose encoding has `size` bytes may be worth cutting into chunks."""
    return size >= SPLIT_FROM and type(value) in (list, dict) and size >= ELEMENT * len(value)


def chunk_value(
    value: Any, version: str, before: ChunkedValue | None, pack: Callable[[Any], bytes]
) -> tuple[ChunkedValue, Mapping[str, bytes]] | None:
    """Cut a value into chunks.

    Args:
        value: The value.
        version: Its channel version.
        before: The value of the previous version, whose chunks may be reused.
        pack: Encodes one element.

    Returns:
        The chunks, and the bytes of the new ones by name. None if the value cannot be cut or is too small, or if it has
        nothing in common with `before`.
    """
    if type(value) is list:
        objects, step = value, 1
    elif type(value) is dict and _ONLY_TEXTS.issuperset(map(type, value)) and is_unicode("".join(value)):
        objects, step = list(chain.from_iterable(value.items())), 2
    else:
        return None
    cutting = _Cutting(objects, step, before, pack)
    cutting.run()
    chunked = ChunkedValue(version, step == 2, cutting.chunks)
    if chunked.size < SPLIT_FROM or (before is not None and not cutting.shares):
        return None
    used = set(map(_NAME, cutting.chunks))  # A new tail chunk may have been merged into the chunk after it.
    return chunked, {name: data for name, data in cutting.new.items() if name in used}


def is_still(chunked: ChunkedValue, value: Any, pack: Callable[[Any], bytes]) -> bool:
    """Whether a value is unchanged since it was cut into these chunks."""
    objects = list(chain.from_iterable(value.items())) if chunked.is_dict else value
    starts = accumulate(map(_LENGTH, chunked.chunks), initial=0)
    return sum(map(_LENGTH, chunked.chunks)) == len(objects) and all(
        _digest_of(b"".join(map(pack, objects[start : start + chunk.length]))) == chunk.digest
        for chunk, start in zip(chunked.chunks, starts, strict=False)
    )


def contents(chunked: ChunkedValue) -> bytes:
    """The bytes for the version's own blob: how to join the chunks.

    The names of the chunks are not in it. They have a column, because the database has to read them.
    """
    chunks = chunked.chunks
    return ormsgpack.packb(
        [
            chunked.is_dict,
            sum(1 for _ in takewhile(_is_tail, reversed(chunks))),
            [chunk.length for chunk in chunks],
            [chunk.size for chunk in chunks],
        ]
    )


class JoinedChunks(NamedTuple):
    """A value that was joined from chunks, and the data of these chunks."""

    value: Any
    is_dict: bool
    tail_chunks: int
    lengths: Sequence[int]
    sizes: Sequence[int]
    digests: Sequence[bytes]

    def chunked(self, version: str, names: str) -> ChunkedValue:
        """The chunks with their objects, for the next version to reuse."""
        objects = list(chain.from_iterable(self.value.items())) if self.is_dict else self.value
        chunks = []
        start = 0
        for number, name in enumerate(json.loads(names)):
            length = self.lengths[number]
            own = objects[start : start + length]
            same = unchanged(own)
            ends = number < len(self.sizes) - self.tail_chunks
            chunks.append(
                Chunk(name, self.digests[number], self.sizes[number], length, ends, own if same else (), same)
            )
            start += length
        return ChunkedValue(version, self.is_dict, chunks)


def join_chunks(
    stored: bytes, chunks: Sequence[T], unseal: Callable[[T], bytes], loads: Callable[[bytes], Any]
) -> JoinedChunks:
    """Join the chunks of a value.

    Each chunk is unsealed and decoded before the next one, while its bytes are in the processor's cache: that takes a
    quarter less time.

    Args:
        stored: The bytes of the version's own blob, see `contents`.
        chunks: The chunks as they are stored, in the order of the value.
        unseal: Returns the bytes of a stored chunk.
        loads: Decodes an array in msgpack.

    Raises:
        UnreadableValue: The chunks do not belong together. Errors of `unseal` and `loads` pass through.
    """
    is_dict, tail_chunks, lengths, sizes = ormsgpack.unpackb(stored)
    objects: list[Any] = []
    digests = []
    if len(chunks) != len(sizes):
        raise UnreadableValue(_FOREIGN)
    for chunk, length, size in zip(chunks, lengths, sizes, strict=True):
        data = unseal(chunk)
        if len(data) != _BODY + size or not data.startswith(_DIGEST_HEAD):
            raise UnreadableValue(_FOREIGN)
        digests.append(data[len(_DIGEST_HEAD) : _BODY])
        objects += loads(_head(length) + memoryview(data)[_BODY:])
    # An array of keys and values, not a map: earlier releases also stored keys with surrogates here, as extensions.
    value = dict(zip(objects[::2], objects[1::2], strict=True)) if is_dict else objects
    return JoinedChunks(value, is_dict, tail_chunks, lengths, sizes, digests)


def with_samples(version: str, data: bytes) -> UnchunkedValue:
    """Take samples of a large value that is stored in one piece, as these bytes.

    Each call takes them from other positions: the changes of a value may always be at the same positions.
    """
    room = len(data) - SAMPLE
    first = random()
    starts = [int(room * (number + first) / SAMPLES) for number in range(SAMPLES)]
    return UnchunkedValue(version, [data[start : start + SAMPLE] for start in starts])


class _Cutting:
    """The cutting of one value: the chunks so far, and the chunks of the previous version that it may reuse."""

    def __init__(
        self, objects: Sequence[Any], step: int, before: ChunkedValue | None, pack: Callable[[Any], bytes]
    ) -> None:
        self.chunks: list[Chunk] = []
        self.new: dict[str, bytes] = {}
        self.shares = False  # Whether it reuses a chunk of the previous version.
        self._objects = objects
        self._step = step
        self._pack = pack
        # A list may hold the same objects as a dict now does, but its chunks need not end after a pair.
        self._before = before.chunks if before is not None and before.is_dict == (step == 2) else ()
        # Without small chunks: their first object may be a text that is everywhere, and each occurrence would match.
        self._by_object = {
            id(chunk.objects[0]): number
            for number, chunk in enumerate(self._before)
            if chunk.objects and chunk.size >= FINDABLE
        }
        self._by_digest = {chunk.digest: number for number, chunk in enumerate(self._before)}
        self._names: dict[bytes, str] = {}  # Of new chunks by digest; chunks with equal bytes have one name.
        self._token = NAME_MARK + token_urlsafe(9)
        self._start = 0  # The first object that is not in a chunk yet.
        self._next = 0  # The previous version's chunk that is expected at `_start`.
        self._span = len(self._before)  # The number of chunks to check for changes together.

    def run(self) -> None:
        """Cut it."""
        while self._start < len(self._objects):
            found = self._unchanged() or [self._unchanged_tail() or self._cut()]
            self.chunks += found
            self._start += sum(map(_LENGTH, found))

    def _unchanged(self) -> Sequence[Chunk]:
        """The chunks from here on that consist of the same, unchanged objects as in the previous version."""
        first = self._objects[self._start]
        number = self._next
        if number == len(self._before) or not (own := self._before[number].objects) or own[0] is not first:
            number = self._by_object.get(id(first), -1)
        if number < 0:
            return ()
        found = _still_there(self._before[number : number + self._span], self._objects, self._start)
        if not found:
            return ()
        if not Unchanged.hold(map(_SAME, found)):
            if self._span == 1:
                return ()
            self._span = 1
            return self._unchanged()
        self._span *= 2
        self.shares = True
        # If the tail chunks are not followed by what followed them before, later elements cannot extend them.
        if number != self._next and self.chunks and _is_tail(self.chunks[-1]):
            for index in range(len(self.chunks) - len(self._tail()), len(self.chunks)):
                self.chunks[index] = self.chunks[index]._replace(ends=True)
        self._next = number + len(found)
        return found

    def _unchanged_tail(self) -> Chunk | None:
        """The previous version's tail chunk that is expected here, if its bytes are the same."""
        if self._next == len(self._before):
            return None
        chunk = self._before[self._next]
        end = self._start + chunk.length
        if chunk.ends or end > len(self._objects):
            return None
        data = self._packed(self._start, end)
        if _digest_of(data) != chunk.digest:
            return None
        self._next += 1
        return self._chunk(data, end, ends=False)

    def _cut(self) -> Chunk:
        """The chunk from here to the next cut; it absorbs the tail chunks if there is a cut, or too many of them."""
        tail = self._tail()
        size = sum(map(_SIZE, tail))
        pieces = []
        ends = False
        for end in range(self._start + self._step, len(self._objects) + 1, self._step):
            piece = self._pack(self._objects[end - 1]) if self._step == 1 else self._packed(end - 2, end)
            pieces.append(piece)
            size += len(piece)
            if ends := crc32(piece) * CHUNK_BYTES**2 < len(piece) * size * 2**32:
                break
        if tail and (ends or len(tail) >= MAX_TAIL_CHUNKS):
            del self.chunks[-len(tail) :]
            first = self._start - sum(map(_LENGTH, tail))
            pieces.insert(0, self._packed(first, self._start))
            self._start = first
        chunk = self._chunk(b"".join(pieces), end, ends=ends)
        self._next = self._by_digest.get(chunk.digest, self._next - 1) + 1
        return chunk

    def _tail(self) -> Sequence[Chunk]:
        """The tail chunks so far, the last one first."""
        return list(takewhile(_is_tail, reversed(self.chunks)))

    def _packed(self, start: int, end: int) -> bytes:
        return b"".join(map(self._pack, self._objects[start:end]))

    def _chunk(self, data: bytes, end: int, *, ends: bool) -> Chunk:
        """The chunk from `_start` to `end`; if it is new, its bytes are added to those to store."""
        digest = _digest_of(data)
        number = self._by_digest.get(digest)
        name = self._names.get(digest)
        if number is not None:
            self.shares = True
            name = self._before[number].name
        if name is None:
            name = self._names[digest] = f"{self._token}{len(self.new)}"
            self.new[name] = _DIGEST_HEAD + digest + data
        objects = self._objects[self._start : end]
        return Chunk(name, digest, len(data), len(objects), ends).of(objects)


def _still_there(held: Iterable[Chunk], objects: Sequence[Any], start: int) -> Sequence[Chunk]:
    """The first of consecutive chunks whose objects a value has from `start` on, whether changed in place or not."""
    known = list(takewhile(_SAME, held))
    others = map(is_not, chain.from_iterable([chunk.objects for chunk in known]), objects[start:])
    end = next(compress(count(start), others), len(objects))  # Where the identical objects end.
    found: list[Chunk] = []
    for chunk in known:
        start += chunk.length
        if start > end:
            break
        found.append(chunk)
    return found


def _is_tail(chunk: Chunk) -> bool:
    return not chunk.ends


def _digest_of(data: bytes) -> bytes:
    return sha256(data).digest()[:DIGEST]


def _head(length: int) -> bytes:
    """The first bytes of an array of this length in msgpack."""
    if length < 16:
        return bytes([0x90 + length])
    if length < 2**16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")
