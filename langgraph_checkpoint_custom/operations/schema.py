"""The tables: creating and migrating them, refusing those of another package or version, comparing, indexes of keys.

Must not know: SQL, connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ConfigError, SchemaForeign, SchemaMissing, SchemaOutdated, SchemaTooNew
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.files import first_searchable

_COMMAND = "python -m langgraph_checkpoint_custom"
_USUAL_SCHEMA = "langgraph_checkpoint"


@operation("migrate")
def setup(d: SqlDialect, distribute: str | None = None) -> Steps[None]:
    """Create or migrate the tables; does nothing if they are current.

    Round trips: 3, or 4 if there are no tables yet, and one for each missing migration. If there are none and
        `distribute` is given, three more.
    Idempotent: yes. Any number of processes may run it concurrently: a lock lets them in one after the other.
    Raises: SchemaForeign; SchemaTooNew; ConfigError if the tables exist and are not distributed.
    """
    yield d.ask("schema_lock")
    applied = yield from _applied(d)
    if applied is not None and distribute is not None and d.layout != distribute:
        raise ConfigError(
            f"the tables in {d.location} already exist and are not distributed; set up another schema and move the "
            "data there with transfer()"
        )
    is_new = applied is None
    if is_new and distribute is not None:
        yield from _check_cluster(d)
    if applied is None:
        applied = frozenset()
        (((schema_exists, *_),),) = yield d.ask("schema_state")
        yield d.schema_create(with_schema=not schema_exists)
    for migration in d.migrations_of(distribute if is_new else d.layout):
        if migration.number not in applied:
            yield d.schema_apply(migration)
    if is_new:
        if distribute is not None:
            yield d.ask("schema_distribute")
        d.learn_layout(distribute)


def _check_cluster(d: SqlDialect) -> Steps[None]:
    """Check that tables can be distributed.

    Raises: ConfigError.
    """
    (extension,) = yield d.ask("schema_extension")
    if not extension:
        raise ConfigError(
            "the database does not have Citus: CREATE EXTENSION citus on each server, and SELECT citus_add_node(…) on "
            "the coordinator for each worker"
        )
    (compiling,) = yield d.ask("schema_compiling")
    if compiling:
        workers = ", ".join(f"{host}:{port}" for host, port in compiling)
        raise ConfigError(
            f"jit is on at {workers}, where it would make histories many times slower; the saver's own setting does "
            "not reach these servers: ALTER DATABASE … SET jit = off on the coordinator, which Citus passes on to them"
        )


@operation("read")
def check_schema(d: SqlDialect) -> Steps[None]:
    """Check that the tables exist, and that this package can use them.

    Round trips: 2, once for each saver.
    Raises: SchemaMissing, SchemaOutdated, SchemaForeign, SchemaTooNew.
    """
    applied = yield from _applied(d)
    if applied is None:
        raise SchemaMissing(f"there are no checkpoint tables in {d.location}; {_run_setup(d)}")
    if not applied.issuperset(migration.number for migration in d.migrations):
        raise SchemaOutdated(
            f"the tables in {d.location} have version {max(applied, default=0)}, this package needs version "
            f"{len(d.migrations)}; {_run_setup(d)}"
        )


def _run_setup(d: SqlDialect) -> str:
    """Return the advice to run `setup` once, with the command for this schema."""
    own = f"--schema {quote(d._schema)} " if d.system == "postgresql" and d._schema != _USUAL_SCHEMA else ""
    return f"run setup() on the saver, or `{_COMMAND} setup {own}--url …`, once"


def _applied(d: SqlDialect) -> Steps[frozenset[int] | None]:
    """Return the numbers of the applied migrations, or None if this package's tables do not exist.

    There may be migrations of a newer version, if they let this one use the tables.
    """
    foreign, migrations = yield from _migrations(d)
    if foreign is not None:
        raise SchemaForeign(
            f"{d.location} already has a table {foreign!r} that does not belong to this package (perhaps to the "
            "official saver); nothing was changed. Choose another schema or file; "
            f"`{_COMMAND} migrate --from …` copies there what the official saver has stored"
        )
    if migrations is None:
        return None
    oldest = max(migrations.values(), default=0)
    if oldest > len(d.migrations):
        raise SchemaTooNew(
            f"the tables in {d.location} have version {max(migrations)}, for which a package has to know version "
            f"{oldest}; this one knows only {len(d.migrations)}: upgrade langgraph-checkpoint-custom"
        )
    return frozenset(migrations)


def _migrations(d: SqlDialect) -> Steps[tuple[str | None, Mapping[int, int] | None]]:
    """Return a table of another package with the name of one of ours, and the applied migrations, if there are tables.

    With the number of each migration comes the oldest version of a package that can use the tables after it.
    """
    (((_, is_ours, taken, layout),),) = yield d.ask("schema_state")
    if not is_ours:
        return taken, None
    d.learn_layout(layout)
    (rows,) = yield d.ask("schema_numbers")
    return None, dict(rows)


def script(d: SqlDialect, after: int, searchable: Sequence[str] = ()) -> str:
    """Return what `setup` does as an SQL script, for tools that run SQL themselves.

    Args:
        d: The dialect.
        after: The last migration that was applied; 0 for none.
        searchable: The searchable keys. Their indexes are made outside of the transaction, and on PostgreSQL
            concurrently with other writes.
    """
    lines = ["BEGIN;"]
    if after == 0:
        lines += [f"{statement.sql};" for statement in d.schema_create(with_schema=d.system == "postgresql").statements]
    for migration in d.migrations[after:]:
        lines.append(f"\n-- {migration.number:04} {migration.name}")
        *statements, applied = d.schema_apply(migration).statements
        lines += [f"{statement.sql};" for statement in statements]
        row = applied.sql
        for name, value in ("number", migration.number), ("name", f"'{migration.name}'"), ("oldest", migration.oldest):
            row = re.sub(rf"(?::|%\(){name}(?:\)s)?", str(value), row)
        lines.append(f"{row};")
    lines += ["", "COMMIT;"]
    for key in searchable:
        made = {statement.name: f"{statement.sql};" for statement in d.make_searchable(key).statements}
        lines += ["", made["searchable_make"]]
        if view := made.get("searchable_make_view"):
            # The lock keeps another process's setup from doing the same concurrently.
            lines += ["BEGIN;", *(f"{lock.sql};" for lock in d.ask("searchable_lock").statements), view, "COMMIT;"]
    text = "\n".join(lines)
    if d.system == "postgresql":
        text = text.replace("CREATE INDEX IF NOT EXISTS", "CREATE INDEX CONCURRENTLY IF NOT EXISTS")
    return text.replace("%%", "%") if d.system == "postgresql" else text


# Indexes of searchable metadata keys, which `sql/files.py` describes


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
    yield d.ask("searchable_lock")
    for key in (yield from missing_searchable(d, keys).start()):
        yield d.make_searchable(key)


# Comparing the tables with those that this package ships: what is missing, and what was added


class Verified(NamedTuple):
    """The result of `verify`.

    Attributes:
        version: The last migration that was applied; None if this package's tables do not exist.
        oldest: The migration that a package must have to use the tables.
        shipped: The last migration that this package has.
        foreign: A table of another package that has the name of one of ours.
        missing: Lines of the shipped catalog that the database does not have.
        added: Lines that the database has and the shipped catalog does not.
    """

    version: int | None
    oldest: int
    shipped: int
    foreign: str | None
    missing: Sequence[str]
    added: Sequence[str]

    @property
    def is_usable(self) -> bool:
        """Whether this package can use tables of this version."""
        return self.version is not None and self.oldest <= self.shipped <= self.version

    @property
    def holds(self) -> bool:
        """Whether the tables have everything that a run needs. Additions normally do no harm."""
        return self.is_usable and not self.missing


@operation("read")
def verify(d: SqlDialect) -> Steps[Verified]:
    """Compare the tables with those that this package ships.

    Round trips: 1 if there are none; otherwise 3.
    """
    shipped = len(d.migrations)
    foreign, migrations = yield from _migrations(d)
    if migrations is None:
        return Verified(None, 0, shipped, foreign, d.shipped(), [])
    (lines,) = yield d.ask("catalog_lines")
    there, wanted = {str(line) for (line,) in lines}, set(d.shipped())
    version, oldest = max(migrations, default=0), max(migrations.values(), default=0)
    return Verified(version, oldest, shipped, None, sorted(wanted - there), sorted(there - wanted))
