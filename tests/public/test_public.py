"""`public.txt` is what the code has; docs/versions.md says what a change of it means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import errors
from tests.public.listing import FILE, PACKAGE, listing

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 shows other signatures")


def test_what_is_public_is_listed(tmp_path: Path) -> None:
    listed, found = FILE.read_text("utf-8").splitlines(), listing(tmp_path)
    assert sorted(set(listed) - set(found)) == [], "taken away or changed, which needs a major version"
    assert sorted(set(found) - set(listed)) == [], "added, which needs a minor version: python -m tests.public"


def test_every_kind_of_public_name_is_listed() -> None:
    listed = FILE.read_text("utf-8").splitlines()
    kinds = {line.partition(" ")[0] for line in listed}
    assert kinds == {"class", "function", "in", "option", "variable", "command", "json", "view"}
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.CheckpointError):
            assert any(line.startswith(f"class {PACKAGE}.{error.__name__}(") for line in listed), error
