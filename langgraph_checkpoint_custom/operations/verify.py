"""Comparing the tables with those that this package ships: what is missing, what was added, what this role may do.

Must not know: SQL, connections. Changes nothing: it does not even create missing tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Tables that a run only reads.
READ_ONLY = frozenset({"langgraph_checkpoint_migrations", "tenant_roles"})


class Privilege(NamedTuple):
    """What a run needs on a table, or on the schema, and whether this role has it."""

    on: str
    name: str
    granted: bool


class Verified(NamedTuple):
    """The result of `verify`.

    Attributes:
        version: The last migration that was applied; None if this package's tables do not exist.
        shipped: The last migration that this package has.
        foreign: A table of another package that has the name of one of ours.
        missing: Lines of the shipped catalog that the database does not have.
        added: Lines that the database has and the shipped catalog does not.
        privileges: The privileges that a run needs; empty on SQLite.
    """

    version: int | None
    shipped: int
    foreign: str | None
    missing: Sequence[str]
    added: Sequence[str]
    privileges: Sequence[Privilege]

    @property
    def is_current(self) -> bool:
        """Whether the last migration that was applied is the last one of this package."""
        return self.version == self.shipped

    @property
    def holds(self) -> bool:
        """Whether the tables have everything that a run needs. Additions normally do no harm."""
        return self.is_current and not self.missing and all(privilege.granted for privilege in self.privileges)


@operation("read")
def verify(d: SqlDialect) -> Steps[Verified]:
    """Compare the tables with those that this package ships.

    Round trips: 1 if there are none; otherwise 3, and 1 more on PostgreSQL.
    """
    shipped = len(d.migrations)
    (((_, ours, taken, layout),),) = yield d.schema_state()
    if not ours:
        return Verified(None, shipped, taken, d.shipped(), [], [])
    d.learn_layout(layout)
    (numbers,) = yield d.schema_numbers()
    (lines,) = yield d.catalog_lines()
    there, wanted = {str(line) for (line,) in lines}, set(d.shipped())
    privileges: list[Privilege] = []
    if asked := d.catalog_privileges():
        (rows,) = yield asked
        tables = {line.split()[1].rstrip(",") for line in wanted if line.startswith("table ")}
        privileges = [
            Privilege(on, name, granted)
            for on, name, granted in rows
            if name == "USAGE" or (on in tables and (name == "SELECT" or on not in READ_ONLY))
        ]
    version = max((int(row[0]) for row in numbers), default=0)
    return Verified(version, shipped, None, sorted(wanted - there), sorted(there - wanted), privileges)
