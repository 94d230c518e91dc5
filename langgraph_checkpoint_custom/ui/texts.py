"""Prepares stored text for a page: what is hostile or invisible becomes visible.

Must not know: the store, requests.

Jinja2 escapes HTML. It leaves characters that a browser interprets or hides: control characters, marks that change the
direction of text, invisible letters that can carry a message past a reader. Each is shown by its code point.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

# Control and format characters, line separators, lone surrogates, private and invisible letters. Not among them are
# newline and tab, and the two joiners, which emoji and several scripts need.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def marked(text: str) -> str:
    """Return a text in which each unseen character is replaced by its code point in brackets."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))


def line(text: str, limit: int = 160) -> str:
    """Return the beginning of a text in one line, marked."""
    short = marked(" ".join(text[: limit * 4].split()))
    return short if len(short) <= limit else short[: limit - 1] + "…"


def age(time: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, in one unit; empty if it is not known."""
    if time is None:
        return ""
    seconds = (now - (time if time.tzinfo else time.replace(tzinfo=timezone.utc))).total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length):,} {unit} ago"
    return "just now" if seconds < 10 else f"{int(seconds)} s ago"


def clock(time: datetime | None) -> str:
    """Return a time in the zone of this process, with the name of the zone."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if time else ""


def namespace(checkpoint_ns: str) -> str:
    """Return a namespace for people: the nodes that called subgraphs, each with the beginning of its task's id."""
    parts = (part.partition(":") for part in checkpoint_ns.split("|"))
    return " / ".join(f"{name} ({task[:8]})" if task else name for name, _, task in parts)
