"""Writes docs/api.md: `python -m tests.reference`."""

from __future__ import annotations

from tests.reference.document import DOCUMENT, text

if __name__ == "__main__":
    DOCUMENT.write_text(text(), "utf-8")
