"""The metadata to store with a checkpoint: LangGraph's own, and what it merges from the config.

Must not know: SQL, connections.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, CheckpointMetadata

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import LONG_NAME

_LOG = logging.getLogger("langgraph_checkpoint_custom")

# Keys that `exclude_metadata` refuses, with the reason.
NEEDED = MappingProxyType(
    {
        "source": "histories and the inspector show how a checkpoint was made",
        "step": "LangGraph counts supersteps with it",
        "parents": "the checkpoint of a subgraph names that of the root graph with it",
        "run_id": "runs are listed and deleted by it",
        "thread_id": "the thread id is part of every key, so nothing would be hidden",
        "counters_since_delta_snapshot": "a DeltaChannel is rebuilt with it",
    }
)

# The end of a key that names a secret, such as my_apiKey, and not max_tokens.
_SECRET = re.compile(
    r"(authorization|bearer|cookie|credentials?|jwt|passphrase|password|passwd|pwd|secret|token"
    r"|(access|api|encryption|master|private|secret|signing)[_-]?key)[_\d]*$",
    re.IGNORECASE,
)
_WARNED: set[int] = set()  # Hashes: a key may be long.
_MOST_WARNED = 1000  # A program may create keys without end.


def check_excluded(keys: Collection[str]) -> None:
    """Refuse to exclude metadata that is needed.

    Raises:
        ConfigError: It names the key, and says what needs it.
    """
    for key in keys:
        if key in NEEDED:
            raise ConfigError(f"exclude_metadata cannot contain {key!r}: {NEEDED[key]}")


def merge_metadata(
    config: RunnableConfig, metadata: CheckpointMetadata, codec: ValueCodec | None = None
) -> dict[str, Any]:
    """The metadata to store: LangGraph's, and what it merges from the config, without request-scoped keys.

    With `codec`, its excluded keys are left out, and secrets that it would store in clear are logged.

    Source: `get_checkpoint_metadata`; unlike it, this function retains NUL characters, because they can be stored.
    """
    excluded = codec.excluded if codec else frozenset()
    merged: dict[str, Any] = dict(metadata)
    if excluded:
        for key in excluded.intersection(merged):
            del merged[key]
    for part in (config.get("metadata"), config.get("configurable")):
        for key, value in (part or {}).items():
            kind = _kind(key)
            if kind == "request" or key in merged or key in excluded or not isinstance(value, (str, int, float)):
                continue
            merged[key] = value
            if kind == "secret" and codec and value and isinstance(value, str):
                _warn_if_clear(key, codec)
    counters = merged.get("counters_since_delta_snapshot")
    if isinstance(counters, dict):  # LangGraph makes tuples of them, and expects lists, which its own savers return.
        merged["counters_since_delta_snapshot"] = {
            channel: [*each] if type(each) is tuple else each for channel, each in counters.items()
        }
    return merged


@lru_cache(maxsize=1000)
def _kind(key: str) -> str:
    """Whether a key of a config is of this request only, and not stored, or looks like a secret, or is any other."""
    if len(key) > LONG_NAME:
        _kind.cache_clear()
    if key in EXCLUDED_METADATA_KEYS or key.startswith(("__", "langgraph_auth_")) or key == "langgraph_request_id":
        return "request"
    return "secret" if _SECRET.search(key) else "other"


def _warn_if_clear(key: str, codec: ValueCodec) -> None:
    if hash(key) in _WARNED or len(_WARNED) >= _MOST_WARNED:
        return
    if codec.plaintext_keys is None and key not in codec.clear:
        _WARNED.add(hash(key))
        _LOG.warning(
            "the value of %r comes from the config and is stored in clear, as metadata of checkpoints; it looks like a "
            "secret. exclude_metadata=[%r] does not store it; plaintext_metadata=[%r] says that anybody may read it. "
            "This is logged once for each key",
            key,
            key,
            key,
        )
