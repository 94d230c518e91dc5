"""Making the indexes by which threads are found by metadata keys; `sql/searchable.py` says what they are.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.searchable import first_searchable, index_of


@operation("read")
def missing_searchable(d: SqlDialect, keys: Sequence[str]) -> Steps[list[str]]:
    """Those of the keys that have no index which this role can use.

    Trips: 1, or 0 without keys.
    """
    if not keys:
        return []
    (there,) = yield d.select_searchable(keys)
    return [key for key in keys if first_searchable({key: ""}, there) is None]


@operation("migrate")
def make_searchable(d: SqlDialect, missing: Sequence[str]) -> Steps[None]:
    """Make what is missing to find threads by these keys.

    Trips: 2 and one a key, and one more for a key whose index was left half made.
    Idempotent: yes, and by any number of processes at once.
    """
    # After whoever makes an index beside live traffic: what is half made then is nobody's. No lock may be held and no
    # snapshot be in use until then, which are waited for over there.
    yield d.lock_searchable()
    (there,) = yield d.select_searchable(missing)
    broken = {name for name, valid, _ in there if not valid}
    for key in missing:
        if index_of(key) in broken:
            yield d.drop_searchable(key)
        yield d.make_searchable(key)
