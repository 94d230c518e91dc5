"""Making the tables, and refusing those that are not ours or not of this version.

Must not know: SQL, connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ConfigError, SchemaForeign, SchemaMissing, SchemaOutdated, SchemaTooNew
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

_COMMAND = "python -m langgraph_checkpoint_custom"
_USUAL_SCHEMA = "langgraph_checkpoint"


@operation("migrate")
def setup(d: SqlDialect, partitions: int | None = None) -> Steps[None]:
    """Create or migrate the tables; does nothing if they are current.

    Trips: 3 if the tables are current, two and one a migration more if not; one more if `partitions` says what those
        that are current have to be like.
    Idempotent: yes, and by any number of processes at once: a lock lets one of them in after the other.
    Raises: SchemaForeign, SchemaTooNew, ConfigError if the tables are there already, in another number of partitions.
    """
    yield d.schema_lock()
    applied = yield from _applied(d)
    if applied is not None and partitions is not None:
        (((there,),),) = yield d.schema_partitions()
        if there != partitions:
            raise ConfigError(
                f"the tables in {d.location} are there already, in {there or 'no'} partitions, not in {partitions}; "
                "set up another schema and move there with transfer()"
            )
    if applied is None:
        applied = set()
        (((schema_exists, _, _),),) = yield d.schema_state()
        yield d.schema_create(whole=not schema_exists)
    for migration in d.migrations:
        if migration.number not in applied:
            yield d.schema_apply(migration)


@operation("read")
def check_schema(d: SqlDialect) -> Steps[None]:
    """See that the tables are there and current.

    Trips: 2, once in a saver's life.
    Raises: SchemaMissing, SchemaOutdated, SchemaForeign, SchemaTooNew.
    """
    applied = yield from _applied(d)
    if applied is None:
        raise SchemaMissing(f"there are no checkpoint tables in {d.location}; {_run_setup(d)}")
    if len(applied) < len(d.migrations):
        raise SchemaOutdated(
            f"the tables in {d.location} are of version {max(applied, default=0)}, this package needs version "
            f"{len(d.migrations)}; {_run_setup(d)}"
        )


def _run_setup(d: SqlDialect) -> str:
    """What to do, once."""
    own = f"--schema {quote(d._schema)} " if d.system == "postgresql" and d._schema != _USUAL_SCHEMA else ""
    return f"run setup() on the saver, or `{_COMMAND} setup {own}--url …`, once"


def _applied(d: SqlDialect) -> Steps[set[int] | None]:
    """The numbers of the migrations that were applied, or None if there are no tables of ours."""
    (((_, ours, taken),),) = yield d.schema_state()
    if not ours:
        if taken is not None:
            raise SchemaForeign(
                f"{d.location} already has a table {taken!r} that is not this package's (the official saver's, perhaps)"
                f"; nothing was changed. Choose another schema or file, and `{_COMMAND} migrate --from …` moves there "
                "what the official saver has stored"
            )
        return None
    (rows,) = yield d.schema_numbers()
    applied = {int(row[0]) for row in rows}
    if applied - {migration.number for migration in d.migrations}:
        raise SchemaTooNew(
            f"the tables in {d.location} are of version {max(applied)}, this package knows {len(d.migrations)} only; "
            "upgrade langgraph-checkpoint-custom"
        )
    return applied


def script(d: SqlDialect, after: int, searchable: Sequence[str] = ()) -> str:
    """What `setup` does, for tools that run SQL by themselves.

    Args:
        d: The statements.
        after: The last migration that was applied; 0 for none.
        searchable: The searchable keys, whose indexes are made outside of the transaction, beside live traffic.
    """
    lines = ["BEGIN;"]
    if after == 0:
        lines += [f"{statement.sql};" for statement in d.schema_create(whole=d.system == "postgresql").statements]
    for migration in d.migrations[after:]:
        lines.append(f"\n-- {migration.number:04} {migration.name}")
        *statements, applied = d.schema_apply(migration).statements
        lines += [f"{statement.sql};" for statement in statements]
        number, name = str(migration.number), f"'{migration.name}'"
        lines.append(
            re.sub(r"(?::|%\()name\b(\)s)?", name, re.sub(r"(?::|%\()number\b(\)s)?", number, applied.sql)) + ";"
        )
    lines += ["", "COMMIT;"]
    for key in searchable:
        index, *rest = (f"{statement.sql};" for statement in d.make_searchable(key).statements)
        lines += ["", index]
        if rest:  # Not at the same time as somebody's setup.
            lines += ["BEGIN;", *(f"{lock.sql};" for lock in d.lock_searchable().statements), *rest, "COMMIT;"]
    text = "\n".join(lines)
    if d.system == "postgresql":
        text = text.replace("CREATE INDEX IF NOT EXISTS", "CREATE INDEX CONCURRENTLY IF NOT EXISTS")
    return text.replace("%%", "%") if d.system == "postgresql" else text
