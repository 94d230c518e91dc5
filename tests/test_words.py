"""Code, tests and documents use the field's words for things, and none of the private ones that were replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("langgraph_checkpoint_custom", "tests", "benchmarks", "docs", ".ci")
SUFFIXES = {".css", ".html", ".js", ".md", ".py", ".sql", ".toml", ".txt", ".yml"}
NAMES = {"justfile", "run"}
# The stores of released versions are data.
LEFT_OUT = ("tests/golden/0.", "benchmarks/results/", "tests/test_words.py")

# What is searched for, and the words to use instead. An underscore ends a word here.
RETIRED = {
    r"sqlite_?turns": "group commit",
    r"(?<=_)sharing": "batching",
    r"in_?parts": "chunks",
    r"doomed": "deleting, or marked for deletion",
    r"mend(?:s|ed|ing)?": "repair",
    r"rehears(?:al|als|e|ed|ing)": "dry run",
    r"(?:both|either|each|child|by|of one)[ _]colours?": "sync and async, or api",
    r"desks?": "what it does, such as delete",
    r"faithful|faithfully": "strict",
    r"verbatim": "raw",
    r"patience": "timeout, or max_wait",
    r"hurry|hurried|hurries": "timeout",
    r"lineage": "ancestors, or id range",
    r"clear_metadata|shown_keys": "plaintext_metadata",
    r"unsealed_if_closed": "unsealed_unless_chunked",
    r"kept_?places?": "visible checkpoint",
    r"(?:is|are) told": "the verb that is meant: raises, returns, logs",
    r"so many of": "the number",
    r"nobody in|two at once": "the subject that is meant",
}
SEARCHED = re.compile(rf"(?<![a-z])(?:{'|'.join(f'({words})' for words in RETIRED)})(?![a-z])", re.IGNORECASE)


def _files() -> Iterator[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file()]
    found += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted(found):
        name = path.relative_to(ROOT).as_posix()
        if (
            (path.suffix in SUFFIXES or path.name in NAMES)
            and not name.startswith(LEFT_OUT)
            and "__pycache__" not in name
        ):
            yield path


def _use(found: re.Match[str]) -> str:
    return list(RETIRED.values())[(found.lastindex or 0) - 1]


def test_no_retired_word_is_used() -> None:
    found = []
    for path in _files():
        text = path.read_text("utf-8")
        for match in SEARCHED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line}: {match[0]!r}; use: {_use(match)}")
    assert not found, "\n".join(found)


def test_a_retired_word_is_found() -> None:
    """Shows that the test above can fail."""
    text = "def rehearsal() -> None: ...  # _worker_sharing, in both colours; KeptPlace and sqlite_turns"
    assert [_use(match) for match in SEARCHED.finditer(text)] == [
        "dry run",
        "batching",
        "sync and async, or api",
        "visible checkpoint",
        "group commit",
    ]
    assert not SEARCHED.search("the amended colours of an unmended desktop: recommended")
