"""Large lists and dicts in parts, so that a version stores only what its predecessor has not.

Must not know: SQL, connections, encryption.

The elements of a list, or the pairs of a dict, follow one another in msgpack, so any cut between two of them makes
parts that put together are the value again. Where to cut is decided by the elements alone: after one whose checksum is
low for its size and that of the part until there. So the cuts before and behind a change stay where they are, whether
elements come to the end, go from the start or change in the middle, and whoever cuts the value later finds the same
parts; and parts are of similar sizes.

What comes to the end is an open part of its own, until there is a cut: then it and the open parts before it are stored
again as one. So an element is stored twice at most, as a rule, and a part may be large, of which few have to be named
in each version: 1,000 steps of a chat take 5.3 MB of SQLite, and 10.0 if each stores the last part of 7 KB again.

A part is a blob of its own in the channel. Its name is random, so one that was deleted never comes back as another one.
It begins with a digest, by which it is found again in a later value: once beside the part, where to repeat it in each
version would take a tenth of a long chat. Elements that are the same objects as in the predecessor, and unchanged, are
not even encoded again.

A value is stored in parts once it has something in common with its predecessor. Many never have: they are written once,
or replaced each time, and stored whole they are read in a third of the time (20 of 50 KB on SQLite in 2.6 ms, not 7.9).
Of those a few samples are looked for in the next value, which takes 10 µs for each of 50 KB; to cut it takes 250 µs.
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

from langgraph_checkpoint_custom.encoding.objects import UnreadableValue, is_unicode
from langgraph_checkpoint_custom.encoding.unchanged import Unchanged, unchanged

T = TypeVar("T")

# Bytes of an encoded value. A smaller one is stored whole: its parts would save less than their rows take.
SPLIT_FROM = 16_384
# Bytes; a part has a sixth more on average. Of a part in which an element changes the others are stored again, so
# smaller ones save more, until their names in each version take more than that; but each part is a row to be read. Of
# 200 files of 5 KB a step with another one stores 39 KB, 23 with parts of 6,000, and they are read in half the time.
PART = 16_000
# Open parts; each is a row to be read.
OPEN = 32
# Bytes of a part that is looked for by its first object, wherever that is in the next value.
FINDABLE = 1_000
# Bytes of a stored value, perhaps compressed, from which on it may be a large one.
LEAST = 6_000
# Of a value that is stored whole: so many, of so many bytes. Shorter ones are alike where all entries have the same
# template and each has something new.
SAMPLES = 4
SAMPLE = 2_048
# Bytes of an element, on average; shorter ones, such as numbers, take longer to look at than to store again.
ELEMENT = 32

# No version begins so: one that begins with "#" goes on as JSON.
NAME_MARK = "#/"
_FOREIGN = "its parts are not those that were stored"
_SAME, _SIZE, _LENGTH, _NAME = map(attrgetter, ("same", "size", "length", "name"))
_ONLY_TEXTS = frozenset({str})
DIGEST = 16  # Bytes; two parts of a channel must not have the same by chance.
_DIGEST_HEAD = bytes([0xC4, DIGEST])  # In msgpack, so that a part is msgpack from its beginning.
_BODY = len(_DIGEST_HEAD) + DIGEST


class Chunk(NamedTuple):
    """A part of a value.

    Attributes:
        name: The blob that holds it.
        digest: Of the bytes of its objects.
        size: Of those, in bytes.
        length: The number of its objects: elements of a list, keys and values of a dict.
        ends: Whether there is a cut behind it; otherwise it is open.
        objects: What it was made of, if it can be told whether they have changed since; by `same`.
    """

    name: str
    digest: bytes
    size: int
    length: int
    ends: bool
    objects: Sequence[Any] = ()
    same: Unchanged | None = None

    def of(self, objects: Sequence[Any]) -> Chunk:
        """The same part, made of these objects."""
        same = unchanged(objects)
        return self._replace(objects=objects, same=same) if same else self


class ChunkedValue(NamedTuple):
    """The value of a version, in parts."""

    version: str
    is_dict: bool
    chunks: Sequence[Chunk]

    @property
    def names(self) -> str:
        """The names of the parts, as JSON."""
        return '["' + '","'.join(map(_NAME, self.chunks)) + '"]'  # They have no character that JSON would change.

    @property
    def begins(self) -> str:
        """How the names begin if all of these are there; another saver may have stored the same version otherwise."""
        return self.names[:-1]

    @property
    def size(self) -> int:
        """The bytes of its parts."""
        return sum(map(_SIZE, self.chunks))

    @property
    def pieces(self) -> int:
        """How many things are known of it when its objects are forgotten."""
        return len(self.chunks)

    def without_objects(self) -> ChunkedValue:
        """The same, but to find a part it has to be encoded."""
        return self._replace(chunks=[chunk._replace(objects=(), same=None) for chunk in self.chunks])


class Whole(NamedTuple):
    """The value of a version that is stored in one piece, and samples of its bytes."""

    version: str
    samples: Sequence[bytes]

    @property
    def size(self) -> int:
        """The bytes that are held of it."""
        return sum(map(len, self.samples))

    @property
    def pieces(self) -> int:
        """As `ChunkedValue` has it: what as many bytes would be."""
        return self.size // 300

    def without_objects(self) -> Whole:
        """As `ChunkedValue` has it."""
        return self

    def is_like(self, data: bytes) -> bool:
        """Whether other bytes have something in common with it."""
        return any(sample in data for sample in self.samples)


Known = ChunkedValue | Whole


def is_large(value: Any, size: int) -> bool:
    """Whether a value of that many bytes may be worth dividing."""
    return size >= SPLIT_FROM and type(value) in (list, dict) and size >= ELEMENT * len(value)


def chunk_value(
    value: Any, version: str, before: ChunkedValue | None, pack: Callable[[Any], bytes]
) -> tuple[ChunkedValue, Mapping[str, bytes]] | None:
    """Cut a value; also those parts, by name, that are to be stored.

    None if that makes no parts, or none of the value is in the one before.
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
    used = set(map(_NAME, cutting.chunks))  # An open part may have become one with what follows.
    return chunked, {name: data for name, data in cutting.new.items() if name in used}


def is_still(chunked: ChunkedValue, value: Any, pack: Callable[[Any], bytes]) -> bool:
    """Whether a value is what it was when it was divided."""
    objects = list(chain.from_iterable(value.items())) if chunked.is_dict else value
    starts = accumulate(map(_LENGTH, chunked.chunks), initial=0)
    return sum(map(_LENGTH, chunked.chunks)) == len(objects) and all(
        _digest_of(b"".join(map(pack, objects[start : start + chunk.length]))) == chunk.digest
        for chunk, start in zip(chunked.chunks, starts, strict=False)
    )


def contents(chunked: ChunkedValue) -> bytes:
    """What the blob of the version holds: all but the names of the parts, which the database has to read."""
    chunks = chunked.chunks
    return ormsgpack.packb(
        [
            chunked.is_dict,
            sum(1 for _ in takewhile(_is_open, reversed(chunks))),
            [chunk.length for chunk in chunks],
            [chunk.size for chunk in chunks],
        ]
    )


class JoinedChunks(NamedTuple):
    """A value that was put together, and what it was made of."""

    value: Any
    is_dict: bool
    opened: int
    lengths: Sequence[int]
    sizes: Sequence[int]
    digests: Sequence[bytes]

    def chunked(self, version: str, names: str) -> ChunkedValue:
        """What is known of it for the next value."""
        objects = list(chain.from_iterable(self.value.items())) if self.is_dict else self.value
        chunks = []
        start = 0
        for number, name in enumerate(json.loads(names)):
            length = self.lengths[number]
            own = objects[start : start + length]
            same = unchanged(own)
            ends = number < len(self.sizes) - self.opened
            chunks.append(
                Chunk(name, self.digests[number], self.sizes[number], length, ends, own if same else (), same)
            )
            start += length
        return ChunkedValue(version, self.is_dict, chunks)


def join_chunks(
    stored: bytes, chunks: Sequence[T], opened: Callable[[T], bytes], loads: Callable[[bytes], Any]
) -> JoinedChunks:
    """The value of parts.

    They are opened and decoded one by one, while they are in the processor's cache: a quarter less time.

    Raises: UnreadableValue if they do not belong together; what `opened` and `loads` raise.
    """
    is_dict, open_ones, lengths, sizes = ormsgpack.unpackb(stored)
    objects: list[Any] = []
    digests = []
    if len(chunks) != len(sizes):
        raise UnreadableValue(_FOREIGN)
    for chunk, length, size in zip(chunks, lengths, sizes, strict=True):
        data = opened(chunk)
        if len(data) != _BODY + size or not data.startswith(_DIGEST_HEAD):
            raise UnreadableValue(_FOREIGN)
        digests.append(data[len(_DIGEST_HEAD) : _BODY])
        objects += loads(_head(length) + memoryview(data)[_BODY:])
    # An array of keys and values, and no map: versions before stored keys with half a character, which are extensions.
    value = dict(zip(objects[::2], objects[1::2], strict=True)) if is_dict else objects
    return JoinedChunks(value, is_dict, open_ones, lengths, sizes, digests)


def as_whole(version: str, data: bytes) -> Whole:
    """What to know of a large value that is stored in one piece, as these bytes.

    The samples are from other places each time, since what changes in such a value may always be in the same ones.
    """
    room = len(data) - SAMPLE
    first = random()
    starts = [int(room * (number + first) / SAMPLES) for number in range(SAMPLES)]
    return Whole(version, [data[start : start + SAMPLE] for start in starts])


class _Cutting:
    """A value that is being cut: what it may have of the one before, and its parts so far."""

    def __init__(
        self, objects: Sequence[Any], step: int, before: ChunkedValue | None, pack: Callable[[Any], bytes]
    ) -> None:
        self.chunks: list[Chunk] = []
        self.new: dict[str, bytes] = {}
        self.shares = False  # Whether anything of it was in the value before.
        self._objects = objects
        self._step = step
        self._pack = pack
        # A list may have had the same objects as a dict has, but its parts need not end behind a pair.
        self._before = before.chunks if before is not None and before.is_dict == (step == 2) else ()
        # Not of small parts: what they begin with may be a text that is everywhere, and each time one would be found.
        self._by_object = {
            id(chunk.objects[0]): number
            for number, chunk in enumerate(self._before)
            if chunk.objects and chunk.size >= FINDABLE
        }
        self._by_digest = {chunk.digest: number for number, chunk in enumerate(self._before)}
        self._names: dict[bytes, str] = {}  # Of new parts; some may be alike.
        self._token = NAME_MARK + token_urlsafe(9)
        self._start = 0
        self._next = 0  # The part that goes on from here, in the value before.
        self._span = len(self._before)  # How many are looked at together.

    def run(self) -> None:
        """Cut it."""
        while self._start < len(self._objects):
            found = self._unchanged() or [self._open_again() or self._cut()]
            self.chunks += found
            self._start += sum(map(_LENGTH, found))

    def _unchanged(self) -> Sequence[Chunk]:
        """The parts from here on that are made of the same objects as before, if none of these has been changed."""
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
        if number != self._next and self.chunks and _is_open(self.chunks[-1]):  # It goes on with something else.
            for location in range(len(self.chunks) - len(self._opened()), len(self.chunks)):
                self.chunks[location] = self.chunks[location]._replace(ends=True)
        self._next = number + len(found)
        return found

    def _open_again(self) -> Chunk | None:
        """The open part that goes on from here, if its bytes are those of before."""
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
        """The part from here to the next cut, with the open ones before it if there is one, or if they are many."""
        opened = self._opened()
        size = sum(map(_SIZE, opened))
        pieces = []
        ends = False
        for end in range(self._start + self._step, len(self._objects) + 1, self._step):
            piece = self._pack(self._objects[end - 1]) if self._step == 1 else self._packed(end - 2, end)
            pieces.append(piece)
            size += len(piece)
            if ends := crc32(piece) * PART**2 < len(piece) * size * 2**32:
                break
        if opened and (ends or len(opened) >= OPEN):
            del self.chunks[-len(opened) :]
            first = self._start - sum(map(_LENGTH, opened))
            pieces.insert(0, self._packed(first, self._start))
            self._start = first
        chunk = self._chunk(b"".join(pieces), end, ends=ends)
        self._next = self._by_digest.get(chunk.digest, self._next - 1) + 1
        return chunk

    def _opened(self) -> Sequence[Chunk]:
        """The open parts at the end, the last one first."""
        return list(takewhile(_is_open, reversed(self.chunks)))

    def _packed(self, start: int, end: int) -> bytes:
        return b"".join(map(self._pack, self._objects[start:end]))

    def _chunk(self, data: bytes, end: int, *, ends: bool) -> Chunk:
        """A part, which is to be stored if it is new."""
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
    """Of parts that followed one another, those whose objects a value has from one of its own on, changed or not."""
    known = list(takewhile(_SAME, held))
    others = map(is_not, chain.from_iterable([chunk.objects for chunk in known]), objects[start:])
    end = next(compress(count(start), others), len(objects))  # Of those that are the same objects.
    found: list[Chunk] = []
    for chunk in known:
        start += chunk.length
        if start > end:
            break
        found.append(chunk)
    return found


def _is_open(chunk: Chunk) -> bool:
    return not chunk.ends


def _digest_of(data: bytes) -> bytes:
    return sha256(data).digest()[:DIGEST]


def _head(length: int) -> bytes:
    """The first bytes of an array in msgpack."""
    if length < 16:
        return bytes([0x90 + length])
    if length < 2**16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")
