"""How statements are composed of the fragments in `.sql` files."""

from __future__ import annotations

import pytest

from langgraph_checkpoint_custom.sql.files import compose, in_sqlite, with_rows

NEWEST = """-- What the file is about.

-- fragment: newest
-- A comment.
SELECT id FROM checkpoints
WHERE NOT hidden

-- fragment: one
SELECT * FROM (
    -- include: newest
)
"""


def test_a_statement_includes_fragments_by_name_from_any_file() -> None:
    statement = """-- name: latest
-- include: one
ORDER BY id
"""
    assert compose([statement, NEWEST]) == {
        "latest": "SELECT * FROM (\n    SELECT id FROM checkpoints\n    WHERE NOT hidden\n)\nORDER BY id"
    }


def test_an_unknown_fragment_is_an_error_that_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"'latest' includes 'oldest', but the \.sql files have no line '-- fragment: oldest'"
    ):
        compose([NEWEST, "-- name: latest\n-- include: oldest\n"])
    # A statement is no fragment.
    with pytest.raises(ValueError, match="'b' includes 'a'"):
        compose(["-- name: a\nSELECT 1\n-- name: b\n-- include: a\n"])


def test_fragments_that_include_each_other_are_an_error_that_names_them() -> None:
    text = "-- name: s\n-- include: a\n-- fragment: a\n-- include: b\n-- fragment: b\n    -- include: a\n"
    with pytest.raises(ValueError, match="in a circle: s -> a -> b -> a"):
        compose([text])


def test_two_blocks_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"two blocks of the \.sql files are named 'newest'"):
        compose([NEWEST, "-- name: newest\nSELECT 1\n"])


def test_a_row_of_values_is_repeated() -> None:
    statement = compose(["-- name: s\nVALUES\n    -- repeat\n    (%s, %b)\nDO NOTHING\n"])["s"]
    assert with_rows(statement, 1) == "VALUES\n    (%s, %b)\nDO NOTHING"
    assert with_rows(statement, 3) == "VALUES\n    (%s, %b),\n    (%s, %b),\n    (%s, %b)\nDO NOTHING"


def test_sqlite_gets_common_statements_in_its_own_words() -> None:
    text = "SELECT a FROM langgraph_checkpoint.langgraph_checkpoint_b WHERE a = %(a)s AND b IN (%s, %(b)b, '%%')"
    assert in_sqlite(text) == "SELECT a FROM langgraph_checkpoint_b WHERE a = :a AND b IN (?, :b, '%')"
