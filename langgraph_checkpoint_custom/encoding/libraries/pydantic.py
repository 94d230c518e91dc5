"""pydantic's URLs and DSNs, its sizes in bytes, and the zone of the times that it has read from text.

A URL is not validated again: it was valid when it was stored, and its class may since have other rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ByteSize, networks
from pydantic_core import MultiHostUrl, TzInfo, Url

from langgraph_checkpoint_custom.encoding.extensions import SINGLE
from langgraph_checkpoint_custom.encoding.leaves import Leaf, called


def _parsed(core: Any) -> Callable[[str], Any]:
    def make(text: str) -> Any:
        made = core(text)
        return made if str(made) == text else core(text, preserve_empty_path=True)  # Without the slash after a host.

    return make


def _url(cls: type, core: Any) -> Leaf:
    parsed = _parsed(core)

    def make(text: str) -> Any:
        made: Any = object.__new__(cls)
        made._url = parsed(text)
        return made

    return Leaf(cls, SINGLE, cls.__module__, cls.__name__, str, make)


# Before pydantic 2.10, all URLs are of the two types of pydantic_core.
_KINDS = {"_BaseUrl": Url, "_BaseMultiHostUrl": MultiHostUrl}
LEAVES = [
    Leaf(Url, SINGLE, "pydantic_core", "Url", str, _parsed(Url)),
    Leaf(MultiHostUrl, SINGLE, "pydantic_core", "MultiHostUrl", str, _parsed(MultiHostUrl)),
    called(ByteSize, SINGLE, "pydantic", int),
    called(TzInfo, SINGLE, "pydantic_core", lambda zone: int(zone.utcoffset(None).total_seconds())),
    *(
        _url(cls, core)
        for base, core in _KINDS.items()
        for cls in vars(networks).values()
        if isinstance(cls, type) and issubclass(cls, getattr(networks, base, ()))
    ),
]
