"""A saver that reads values raw.

Must not know: SQL, connections.
"""

from __future__ import annotations

from copy import copy
from typing import TypeVar

from langgraph_checkpoint_custom.encoding.raw import raw_reader
from langgraph_checkpoint_custom.saver import CheckpointSaver

S = TypeVar("S", bound=CheckpointSaver)


def without_classes(saver: S) -> S:
    """Return a copy of the saver that reads values without importing classes or making objects.

    Raises:
        ConfigError: The format of its serializer is not known.
    """
    clone = copy(saver)
    clone.serde = raw_reader(saver.serde)
    return clone
