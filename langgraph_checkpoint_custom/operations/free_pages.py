"""Giving the space of deleted rows back to the file system, in steps that stop other writes for milliseconds.

Must not know: SQL, connections.

PostgreSQL has autovacuum.
"""

from __future__ import annotations

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Of this number of pages, one may stay free: what is stored next uses it.
KEEPS_FREE = 10
# Pages of a step. SQLite looks for a page among all free ones: 0.25 ms a page if these take a gigabyte.
STEP = 100


@operation("write")
def give_back_pages(d: SqlDialect) -> Steps[bool]:
    """Give some free pages of a SQLite file back to the file system; returns whether there are more to give back.

    A file that this package has not created does not give any back.

    Round trips: 2, or 1 if there are none; 0 on PostgreSQL.
    Idempotent: yes.
    """
    if not d.has("free_pages"):
        return False
    (rows,) = yield d.ask("free_pages")
    for pages, free in rows:
        if free * KEEPS_FREE > pages:
            yield d.ask_each("give_back_page", [{}] * min(free, STEP))
            return True
    return False
