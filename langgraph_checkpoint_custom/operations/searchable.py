"""Creating the indexes of searchable metadata keys; `sql/searchable.py` describes them.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.searchable import first_searchable


@operation("read")
def missing_searchable(d: SqlDialect, keys: Sequence[str]) -> Steps[list[str]]:
    """Return the keys that have no index which this role can use.

    Round trips: 1, or 0 without keys.
    """
    if not keys:
        return []
    (there,) = yield d.select_searchable(keys)
    return [key for key in keys if first_searchable([key], there) is None]


@operation("migrate")
def make_searchable(d: SqlDialect, keys: Sequence[str]) -> Steps[None]:
    """Create the missing indexes of these keys, and the views that they are used through.

    Round trips: 2, and one for each key.
    Idempotent: yes. Any number of processes may run it concurrently.
    """
    # Wait until no other process creates an index concurrently. Until then this transaction must hold no other lock and
    # no snapshot, because CREATE INDEX CONCURRENTLY waits for those.
    yield d.lock_searchable()
    for key in (yield from missing_searchable(d, keys).start()):
        yield d.make_searchable(key)
