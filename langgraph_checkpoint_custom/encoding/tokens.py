"""The tokens of msgpack: the elements of an array or a map are the tokens after its own.

Must not know: what a value is made of.
"""

from __future__ import annotations

# By the first byte of a token: the number of bytes after it that hold the length of its content.
WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
# By the first byte of an extension: the number of bytes between it and the code of the extension.
EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD4: 0, 0xD5: 0, 0xD6: 0, 0xD7: 0, 0xD8: 0}
# By the first byte of any other token: the number of bytes after it.
_SIZES = dict.fromkeys(range(256), 0) | {0xA0 + size: size for size in range(32)}
_SIZES |= {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIZES |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def end_of_token(data: bytes, start: int) -> int:
    """Return where a token ends; that may be after the end of the data, which then ends in the middle of it."""
    first = data[start]
    width = WIDTHS.get(first)
    if width is None:
        return start + 1 + _SIZES[first]
    content = start + 1 + width
    return content + int.from_bytes(data[start + 1 : content], "big") + (first in EXTENSIONS)


def is_container(data: bytes) -> bool:
    """Whether a value in msgpack is a list or a dict."""
    return bool(data) and (0x80 <= data[0] < 0xA0 or 0xDC <= data[0] < 0xE0)
