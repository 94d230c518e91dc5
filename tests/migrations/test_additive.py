"""Within 1.x, migrations only add, and none rewrites a table or changes its rows, so that older versions go on."""

from __future__ import annotations

import re

import pytest

from langgraph_checkpoint_custom.migrations import Migration, load_migrations
from tests.migrations.conftest import ADDS
from tests.migrations.test_two_versions import RENAMES

_LITERAL = r"('[^']*'|-?\d+|true|false|NULL)"
# A new table with everything on it; a column that statements which do not know it can leave out, and whose default is a
# constant, for which neither database rewrites the table; an index, a view, a function; how a column is stored.
ADDITIONS = re.compile(
    r"CREATE TABLE "
    rf"|ALTER TABLE \S+ ADD COLUMN \w+ \w+( COLLATE \S+)?(( NOT NULL)? DEFAULT {_LITERAL})?$"
    r"|CREATE INDEX "
    r"|(CREATE|DROP|CREATE OR REPLACE) VIEW "
    r"|CREATE (OR REPLACE )?FUNCTION "
    r"|ALTER TABLE \S+ ALTER \w+ SET STORAGE "
    r"|ALTER TABLE \S+ ENABLE ROW LEVEL SECURITY$|CREATE POLICY "
)


def not_additive(migrations: tuple[Migration, ...]) -> list[str]:
    """The statements after the first migration that do more than add, and migrations that lock older versions out."""
    found: list[str] = []
    for migration in migrations[1:]:
        statements = [" ".join(re.sub("--.*", "", statement).split()) for statement in migration.statements]
        found += [statement for statement in statements if not ADDITIONS.match(statement)]
        found += [migration.name] if migration.oldest > 1 else []
    return found


def following(text: str, oldest: int = 1) -> tuple[Migration, ...]:
    statements = tuple(part.strip() for part in text.replace("{}", "").split(";\n") if part.strip())
    return (Migration(1, "tables", 1, ()), Migration(2, "more", oldest, statements))


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_every_migration_of_1_x_only_adds(database: str) -> None:
    assert not_additive(load_migrations(database)) == []


@pytest.mark.parametrize(
    "statement",
    [
        RENAMES.replace("{}", "").strip().rstrip(";"),
        "UPDATE writes SET task_path = ''",
        "ALTER TABLE writes DROP COLUMN task_path",
        "ALTER TABLE writes ALTER idx TYPE bigint",
        "ALTER TABLE writes ADD COLUMN note text NOT NULL",
        "ALTER TABLE writes ADD COLUMN note double precision DEFAULT random()",
        "ALTER TABLE writes ADD COLUMN note double DEFAULT random()",
        "CREATE UNIQUE INDEX one ON writes (channel)",
        "DROP TABLE moves",
        "DELETE FROM moves",
        "ALTER TABLE writes ADD CONSTRAINT short CHECK (length(channel) < 9)",
    ],
)
def test_what_does_more_is_found(statement: str) -> None:
    assert not_additive(following(f"{ADDS}{statement};\n")) == [statement]


def test_a_migration_that_only_adds_passes_unless_it_locks_older_versions_out() -> None:
    assert not_additive(following(ADDS)) == []
    assert not_additive(following(ADDS, oldest=2)) == ["more"]
