"""Pickling of savers, for processes that are spawned: each makes a saver from the same arguments.

A pickle is meant for a process with the same version of this package, and not to be kept.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.langgraph_private import has_own_hook, to_pickle
from langgraph_checkpoint_custom.errors import ConfigError

NOT_YOURS = (
    "no connection or pool of yours works in another process; give it the path or the connection string, or create "
    "it in the other process"
)


class Arguments:
    """The arguments of a saver's constructor; they have no repr, because they may contain a password."""

    def __init__(self, conn: Any, options: Mapping[str, Any]) -> None:
        self._conn = conn
        self._options = options

    def pickled(self, serde: Any) -> dict[str, bytes]:
        """Pickle each argument, with the current serializer.

        Raises:
            ConfigError: It names the argument that cannot be pickled.
        """
        return {
            name: _dumps(name, value) for name, value in {"conn": self._conn, **self._options, "serde": serde}.items()
        }


def unpickled(arguments: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the arguments that `Arguments.pickled` has pickled."""
    return {name: pickle.loads(data) for name, data in arguments.items()}


def _dumps(name: str, value: Any) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception as error:
        raise ConfigError(
            f"the saver cannot be pickled: its {name} cannot ({error}); create the saver in the other process, or use "
            "only functions and classes that a module has by name"
        ) from error
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Also pickles LangGraph's serializer, which has a function that cannot be pickled, but can be made again."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, JsonPlusSerializer) or has_own_hook(obj):
            return NotImplemented
        return to_pickle(obj)
