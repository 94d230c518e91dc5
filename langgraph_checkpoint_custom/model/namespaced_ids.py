"""The thread ids of other frameworks.

Must not know: SQL, connections, serializers.

Such an id starts with a mark that no thread id of LangGraph's starts with. The kind of thread and the parts of its name
follow, separated by slashes as in a path. A slash inside a part is written as `%2F`, so the names `a/b`, `c` and `a`,
`b/c` have different ids. In such a thread, the newest checkpoint of a namespace holds a record, and the earlier ones
hold its earlier versions.
"""

from __future__ import annotations

import re

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import KIND_MARK, MAX_THREAD_ID, text

_RESERVED = re.compile(r"[%/\x00-\x1f\x7f]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def thread_of(kind: str, *name: str) -> str:
    """Return the id of another framework's thread, from its kind, such as "cubeloop", and the parts of its name."""
    for part in name:
        if not isinstance(part, str):
            raise ConfigError(f"the name of a {kind} must be text, not {type(part).__name__}")
    return text(f"the name of a {kind}", "/".join([f"{KIND_MARK}{kind}", *map(_escaped, name)]), MAX_THREAD_ID)


def kind_of(thread_id: str) -> str | None:
    """The kind of a thread; None for a thread of LangGraph's."""
    return thread_id[len(KIND_MARK) :].split("/", 1)[0] if thread_id.startswith(KIND_MARK) else None


def name_of(thread_id: str) -> tuple[str, ...]:
    """The parts of the name of a thread; for a thread of LangGraph's, only its id."""
    if kind_of(thread_id) is None:
        return (thread_id,)
    return tuple(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), part) for part in thread_id.split("/")[1:])


def check_kind(operation: str, thread_id: str, target: str) -> None:
    """Raise ConfigError if an operation would copy a thread to another kind."""
    if kind_of(target) != kind_of(thread_id):
        own, other = (which or "LangGraph" for which in (kind_of(thread_id), kind_of(target)))
        raise ConfigError(
            f"{operation} cannot make thread {target!r} of the framework {other} from one of the framework {own}"
        )


def _escaped(part: str) -> str:
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", part)
