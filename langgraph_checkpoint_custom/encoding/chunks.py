"""Large lists and dicts as chunks, so that a version stores only what the previous version does not have.

Must not know: SQL, connections, encryption, the objects that a value is made of.

A value is cut by its bytes in msgpack. The chunks of the previous version are searched in the bytes of the new one, in
their order. What is found is named again, and what lies between becomes new chunks. So it does not matter where a
value changes: at the end, at the head or in the middle, at the top or inside. A chunk ends where a token of msgpack
ends, so that its classes can be found without the other chunks; not so next to a text that has the bytes of a chunk.

Each version that appends elements adds a small chunk. Small chunks that follow one another are stored again as one
when they have the size of a chunk together, or are too many. So most bytes are stored twice, and the list of names in
each version stays short.

The first bytes of a value have its length, which most changes change. They are in the version's own row.

A chunk is a blob of its own in the channel. Its name is random, so no later chunk gets the name of a deleted one.

A value is stored in chunks once it has something in common with the previous version. Many values never have: they are
written once, or replaced each time, and one piece is read faster. To find out, a few samples of the previous bytes are
searched in the new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from secrets import token_urlsafe
from typing import NamedTuple

import ormsgpack

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue

# Bytes of an encoded value. A smaller one stays in one piece: chunks would save less than their rows take.
SPLIT_FROM = 16_384
# Bytes. A change stores its complete chunk again, so smaller chunks save more, until their names in each version
# outweigh that. But each chunk is a row to read.
CHUNK_BYTES = 16_000
# The largest number of smaller chunks in a row; each is a row to read.
MOST_SMALL = 32
# Bytes at the start of a value that are in the version's own row: the heads of lists and dicts, with their lengths.
HEAD = 16
# Bytes at the start of a chunk that are searched. A message has its class before its text.
START = 256
# Bytes. A chunk is searched that far after the one before it, and further if few between them were not found.
REACH = 64_000
# Bytes. A smaller chunk is found only right after the chunk before it: it may be a text that is everywhere.
FINDABLE = 1_000
# The number of samples of a value in one piece, and the bytes of each. Shorter samples would match values whose entries
# share a template but have nothing else in common.
SAMPLES = 2
SAMPLE = 2_048

# Bytes that a large value and a chunk take in memory besides their own.
VALUE_MEMORY = 250
CHUNK_MEMORY = 180
# Bytes of the version of a channel, with its place in a dict.
NAME = 200
# Names of chunks start with this. No channel version does: after "#", a version continues with JSON.
NAME_MARK = "#/"


class Chunk(NamedTuple):
    """A piece of the bytes of a large value, and the name of its blob."""

    name: str
    data: bytes


class KnownValue(NamedTuple):
    """The large value of a version: its chunks, or its bytes if it is in one piece."""

    version: str
    chunks: Sequence[Chunk] = ()
    whole: bytes = b""

    @property
    def names(self) -> str:
        """The names of the chunks, as JSON."""
        return '["' + '","'.join([chunk.name for chunk in self.chunks]) + '"]'  # JSON escapes nothing in a name.

    @property
    def begins(self) -> str:
        """How the stored list of names starts if it has all of these; another saver may have stored other chunks."""
        return self.names[:-1]

    @property
    def memory(self) -> int:
        """The bytes that it keeps in memory."""
        return VALUE_MEMORY + len(self.whole) + sum([CHUNK_MEMORY + len(chunk.data) for chunk in self.chunks])


class KnownBlobs(NamedTuple):
    """The blobs of one stored checkpoint.

    Attributes:
        versions: The version of each channel whose value is a blob, as the checkpoint's row names them.
        large: The large values, by channel.
    """

    versions: Mapping[str, str]
    large: Mapping[str, KnownValue]

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory."""
        return NAME * len(self.versions) + sum([value.memory for value in self.large.values()])

    def without(self, channels: Collection[str]) -> KnownBlobs:
        """Return the blobs of other channels than these."""
        versions = {channel: version for channel, version in self.versions.items() if channel not in channels}
        return KnownBlobs(versions, {channel: each for channel, each in self.large.items() if channel not in channels})


NO_BLOBS = KnownBlobs({}, {})


class ChunkedValue(NamedTuple):
    """A value in chunks: all of them, the new ones, and the bytes of the version's own row."""

    value: KnownValue
    new: Sequence[Chunk]
    own_row: bytes


def is_splittable(data: bytes) -> bool:
    """Whether a value in msgpack may be worth cutting into chunks: it is a long list or dict."""
    return len(data) >= SPLIT_FROM and (0x80 <= data[0] < 0xA0 or 0xDC <= data[0] < 0xE0)


def cut(data: bytes, version: str, before: KnownValue) -> ChunkedValue | None:
    """Cut a large value into chunks, or return None if it has nothing in common with the previous version.

    Args:
        data: The value in msgpack.
        version: Its channel version.
        before: The value of the previous version, whose chunks are reused.
    """
    start = head = _head(data)
    chunks: list[Chunk] = []
    for chunk in before.chunks:  # Of a list that grows, all that are complete.
        if len(chunk.data) < CHUNK_BYTES or not data.startswith(chunk.data, start):
            break
        start += len(chunk.data)
        chunks.append(chunk)
    found = _found(data, start, before.chunks[len(chunks) :])
    if not (chunks or found or _has_samples_of(before.whole, data)):
        return None
    new: list[Chunk] = []
    token = NAME_MARK + token_urlsafe(9)
    for part in _parts(found, start, len(data)):
        if part.chunk:
            chunks.append(part.chunk)
            continue
        for start, end in _pieces(data, part.start, part.end):
            new.append(Chunk(f"{token}{len(new)}", data[start:end]))
            chunks.append(new[-1])
    return ChunkedValue(KnownValue(version, chunks), new, ormsgpack.packb([data[:head], len(data)]))


def join(own_row: bytes, chunks: Sequence[Chunk]) -> bytes:
    """Join the chunks of a value, given the bytes of the version's own row; returns the value in msgpack.

    Raises:
        UnreadableValue: The chunks do not belong together. Errors of ormsgpack pass through.
    """
    head, size = ormsgpack.unpackb(own_row)
    data: bytes = b"".join([head, *[chunk.data for chunk in chunks]])
    if len(data) != size:
        raise UnreadableValue("its chunks are not those that were stored")
    return data


class _Part(NamedTuple):
    """A part of a value's bytes: a chunk of the previous version, or something new."""

    start: int
    end: int
    chunk: Chunk | None = None


def _found(data: bytes, start: int, chunks: Sequence[Chunk]) -> list[_Part]:
    """Find chunks in bytes, in their order, from `start` on."""
    found: list[_Part] = []
    missing = 0
    for chunk in chunks:
        piece, at = chunk.data, start
        if not data.startswith(piece, start):
            at = _further(data, start, piece, max(REACH, len(data) // (missing + 1)))
        if at >= 0:
            start = at + len(piece)
            found.append(_Part(at, start, chunk))
            missing = 0
        else:
            missing += 1
    return found


def _further(data: bytes, start: int, chunk: bytes, reach: int) -> int:
    """Where a chunk is in bytes, after `start` and at most `reach` bytes further; -1 if it is not found."""
    if len(chunk) < FINDABLE:
        return -1
    at = data.find(chunk[:START], start, start + START + reach)
    return at if at >= 0 and data.startswith(chunk, at) else -1


def _parts(found: Sequence[_Part], start: int, end: int) -> Iterator[_Part]:
    """The parts of a value: those that were found, and what lies between; small ones together if they are many."""
    parts = []
    for part in [*found, _Part(end, end)]:
        if start < part.start:
            parts.append(_Part(start, part.start))
        parts.append(part)
        start = part.end
    small: list[_Part] = []
    for part in parts[:-1]:
        if part.end - part.start < CHUNK_BYTES:
            small.append(part)
            continue
        yield from _together(small)
        small = []
        yield part
    yield from _together(small)


def _together(run: Sequence[_Part]) -> Sequence[_Part]:
    """Small parts that follow one another; as one if they are many, or have the size of a chunk."""
    if run and (len(run) > MOST_SMALL or run[-1].end - run[0].start >= CHUNK_BYTES):
        return [_Part(run[0].start, run[-1].end)]
    return run


def _pieces(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where to cut bytes: the pieces have at least the size of a chunk, unless all bytes are fewer."""
    at = start
    while end - start >= 2 * CHUNK_BYTES:
        while at - start < CHUNK_BYTES:
            size = _FIXED[data[at]]  # As `end_of_token`, without a call: a value may have millions of tokens.
            at = at + size if size else end_of_token(data, at)
        if end - at < CHUNK_BYTES:
            break
        yield start, at
        start = at
    yield start, end


def _head(data: bytes) -> int:
    """Where the first bytes end that are in the version's own row."""
    head = 0
    while (end := end_of_token(data, head)) <= min(HEAD, len(data) - 1):
        head = end
    return head


def _has_samples_of(before: bytes, data: bytes) -> bool:
    """Whether bytes have a sample of other bytes in them."""
    step = len(before) // SAMPLES + 1
    return any(before[start : start + SAMPLE] in data for start in range(step // 2, len(before), step))


# The tokens of msgpack: the elements of an array or a map are the tokens after its own.

# By the first byte of a token: the number of bytes after it that hold the length of its content.
_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
# By the first byte of an extension: the number of bytes between it and the code of the extension.
EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD4: 0, 0xD5: 0, 0xD6: 0, 0xD7: 0, 0xD8: 0}
# By the first byte of any other token: the number of bytes after it.
_SIZES = dict.fromkeys(range(256), 0) | {0xA0 + size: size for size in range(32)}
_SIZES |= {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIZES |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
# By the first byte of a token: all of its bytes, or 0 if its content says how many.
_FIXED = [0 if first in _WIDTHS else 1 + _SIZES[first] for first in range(256)]


def end_of_token(data: bytes, start: int) -> int:
    """Return where a token ends; that may be after the end of the data, which then ends in the middle of it."""
    first = data[start]
    if size := _FIXED[first]:
        return start + size
    content = start + 1 + _WIDTHS[first]
    return content + int.from_bytes(data[start + 1 : content], "big") + (first in EXTENSIONS)
