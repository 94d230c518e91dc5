"""The timeline of a thread as the browser gets it.

Must not know: the store, requests, HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.tools.timeline import Picture, Spot
from langgraph_checkpoint_custom.ui.texts import line, marked


def as_json(picture: Picture, labels: Mapping[tuple[str, str], Sequence[str]], *, more: bool) -> dict[str, Any]:
    """Return a picture in a short form for the browser; texts are marked.

    Each spot is a list: id, parent, column, row, marks, step, source, run, time in milliseconds, what made it, labels.
    Run, source and maker are numbers of entries in `words`.
    """
    numbers: dict[str, int] = {}
    words: list[str] = []

    def word(text: object) -> int:
        text = str(text) if text else ""
        number = numbers.get(text)
        if number is None:
            number = numbers[text] = len(words)
            words.append(line(text, 60))
        return number

    def spots_of(spots: Sequence[Spot]) -> list[list[Any]]:
        found = []
        for spot in spots:
            record = spot.record
            time = time_of(record.checkpoint_id)
            found.append(
                [
                    record.checkpoint_id,
                    spot.parent,
                    spot.column,
                    spot.row,
                    spot.marks,
                    record.step if isinstance(record.step, int) else None,
                    word(record.source),
                    word(record.run_id),
                    int(time.timestamp() * 1000) if time else None,
                    word(", ".join(spot.nodes)),
                    [marked(name) for name in labels.get((record.checkpoint_ns, record.checkpoint_id), ())],
                ]
            )
        return found

    strips = [
        {
            "ns": strip.checkpoint_ns,
            "name": line(" / ".join(part.partition(":")[0] for part in strip.checkpoint_ns.split("|")), 60),
            "root": strip.root,
            "spots": spots_of(strip.spots),
        }
        for strip in picture.strips
    ]
    spots = spots_of(picture.spots)
    return {
        "spots": spots,
        "strips": strips,
        "words": words,
        "columns": picture.columns,
        "rows": picture.rows,
        "more": more,
    }
