"""What people type to find threads and checkpoints: conditions on metadata, beginnings and ends of ids, labels.

Must not know: SQL, connections, terminals, pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from langgraph_checkpoint_custom.errors import CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.model.keys import Key, config_of, key_of
from langgraph_checkpoint_custom.operations.export_rows import next_threads
from langgraph_checkpoint_custom.saver import CheckpointSaver

# The newest checkpoint, unless a label has this name.
LATEST = "latest"
# Ids that an error lists where several match.
LISTED = 5


def wanted_of(pairs: Iterable[str]) -> dict[str, Any] | None:
    """Return the filter in texts such as `user=ada`; a value is JSON, otherwise text."""
    wanted: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise ConfigError(f"{pair!r} is not KEY=VALUE, such as user=ann")
        try:
            wanted[key] = json.loads(text)
        except ValueError:
            wanted[key] = text
        except RecursionError:
            raise ConfigError(f"the value of {key!r} is nested too deeply") from None
    return wanted or None


def pairs_in(text: str) -> list[str]:
    """Return the pairs in a text such as `user=ada, step={"$in": [1, 2]}`: a comma inside of JSON separates none."""
    pairs: list[str] = []
    for part in text.split(","):
        if pairs and _is_open(pairs[-1]):
            pairs[-1] += f",{part}"
        elif part.strip():
            pairs.append(part)
    return ["=".join(each.strip() for each in pair.split("=", 1)) for pair in pairs]


def _is_open(pair: str) -> bool:
    value = pair.partition("=")[2].strip()
    if not value.startswith(("{", "[", '"')):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return True
    return False


def savers_of(saver: CheckpointSaver, tenants: bool) -> list[CheckpointSaver]:
    """Return the saver and, with `tenants` and unless it is a tenant's itself, a saver for each tenant."""
    names = saver.tenants() if tenants and not saver.backend.dialect.tenant else ()
    return [saver, *map(saver.for_tenant, names)]


def thread_ids(saver: CheckpointSaver, prefix: str, after: str, limit: int) -> list[str]:
    """Return the ids above `after` that begin with `prefix`, in their order, from one to the next."""
    found = [prefix] if prefix > after and saver.thread_exists(prefix) else []
    following = saver.backend.driver.run(next_threads(saver.backend.dialect, max(prefix, after), limit))
    return [each for each in [*found, *following] if each.startswith(prefix)][:limit]


def thread_named(saver: CheckpointSaver, text: str) -> str:
    """Return the thread with this id, or the only one whose id begins with it.

    Raises:
        CheckpointNotFound: There is none, or there are several.
    """
    if saver.thread_exists(text):
        return text
    return _only("thread", text, "begins", thread_ids(saver, text, "", LISTED + 1))


def checkpoint_named(saver: CheckpointSaver, thread_id: str, text: str, namespace: str) -> Key:
    """Return the checkpoint with this label, or the only one whose id ends so; without an id for `latest`.

    Ends of ids are unique, where beginnings are alike. A checkpoint with a label may be in any namespace.

    Raises:
        CheckpointNotFound: There is none, or there are several.
    """
    labels = saver.labels(thread_id)
    if text in labels:
        return key_of(labels[text])
    if text == LATEST:
        return Key(thread_id, namespace, None)
    records = saver.history(config_of(thread_id, namespace, ""))
    ids = [record.checkpoint_id for record in records if record.checkpoint_id.endswith(text)]
    return Key(thread_id, namespace, _only("checkpoint", text, "ends", ids))


def labels_by_checkpoint(saver: CheckpointSaver, thread_id: str) -> dict[tuple[str, str], list[str]]:
    """Return the labels of a thread, by namespace and checkpoint."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, config in saver.labels(thread_id).items():
        _, checkpoint_ns, checkpoint_id = key_of(config)
        found.setdefault((checkpoint_ns, checkpoint_id or ""), []).append(name)
    return found


def _only(what: str, text: str, how: str, found: list[str]) -> str:
    if len(found) == 1:
        return found[0]
    if not found:
        raise CheckpointNotFound(f"there is no {what} {text!r}, and none whose id {how} with it")
    listed = ", ".join(found[:LISTED]) + (", …" if len(found) > LISTED else "")
    raise CheckpointNotFound(f"the ids of several {what}s {how.removesuffix('s')} with {text!r}: {listed}")
