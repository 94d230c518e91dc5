"""Random threads as rows.

They have namespaces, subgraph calls, memories, branches, holes, deltas with seeds, old formats, labels, blobs and
chunks that checkpoints share, and writes with and without a checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

from langgraph_checkpoint_custom.model.outline import SENDS, BlobPlace, Outline, OutlineRow, Place

CHANNELS = ["a", "b", "c"]
RUNS = ["r1", "r2", "r3"]


@dataclass
class Thread:
    """The rows of a thread: of each table, what a deletion looks at or changes."""

    checkpoints: list[OutlineRow] = field(default_factory=list)
    blobs: dict[BlobPlace, list[str] | None] = field(default_factory=dict)
    """The names of chunks, or None for a value in one piece."""
    writes: list[tuple[str, str, str, int, str | None, str]] = field(default_factory=list)
    """Namespace, checkpoint id, task, index, run, channel."""
    labels: dict[str, Place] = field(default_factory=dict)

    def outline(self) -> Outline:
        """What an operation reads of it."""
        return Outline(self.checkpoints, self.labels, {write[:2] for write in self.writes if write[5] == SENDS})


def random_thread(random: Random, most: int = 8) -> Thread:
    """A thread with up to this many checkpoints of the root graph."""
    thread = Thread()
    chance = random.random
    ids = [f"{number:03}" for number in range(1, random.randint(1, most) + 1)]
    namespaces = ["", *random.sample(["memory", "m|inner", "call:1", "call:2", "call:1|inner"], random.randint(0, 4))]
    has_deltas, is_old, has_blobs = chance() < 0.5, chance() < 0.3, chance() < 0.7
    p_hidden = random.choice([0, 0.3, 0.5])
    for checkpoint_ns in namespaces:
        delta = random.sample(CHANNELS, random.randint(1, 2)) if has_deltas and chance() < 0.7 else []
        before: list[str] = []
        for checkpoint_id in ids:
            if chance() < (0.1 if not checkpoint_ns else 0.4):
                continue
            parent = before[-1] if before else None
            if chance() < 0.2:
                parent = random.choice([None, "000", *ids, *before])  # Another branch, or a hole.
            parent = None if parent == checkpoint_id else parent
            kinds = {
                channel: random.choice(["inline", "blob" if has_blobs else "inline", None, None])
                for channel in CHANNELS
            }
            inline = [channel for channel, kind in kinds.items() if kind == "inline"]
            blobs = [channel for channel, kind in kinds.items() if kind == "blob"]
            versions = [random.choice([checkpoint_id, "001", "002", "003"]) for _ in blobs]
            thread.checkpoints.append(
                OutlineRow(
                    checkpoint_ns,
                    checkpoint_id,
                    parent,
                    random.choice([None, "000", "999", *ids]) if checkpoint_ns else None,
                    random.choice([None, *RUNS]),
                    random.choice([1, 3, 4]) if is_old else 4,
                    chance() < p_hidden,
                    json.dumps(inline),
                    json.dumps([channel for channel in delta if chance() < 0.8]),
                    json.dumps(blobs),
                    json.dumps(versions),
                )
            )
            before.append(checkpoint_id)
            for channel, version in zip(blobs, versions, strict=True):
                if chance() < 0.9:
                    names = random.sample([f"#/{n}" for n in range(5)], random.randint(1, 3))
                    thread.blobs.setdefault((checkpoint_ns, channel, version), names if chance() < 0.5 else None)
    for (checkpoint_ns, channel, _), chunks in list(thread.blobs.items()):
        for name in chunks or ():
            if chance() < 0.9:
                thread.blobs[checkpoint_ns, channel, name] = None
    places = [row.place for row in thread.checkpoints]
    for checkpoint_ns, checkpoint_id in [
        *places,
        *((random.choice(namespaces), random.choice(["000", "999", *ids])) for _ in range(2)),
    ]:
        for task in random.sample(["t1", "t2"], random.randint(0, 2)):
            for idx in range(random.randint(1, 2)):
                key = checkpoint_ns, checkpoint_id, task, idx
                if key not in {write[:4] for write in thread.writes}:
                    channel = random.choice([*CHANNELS, SENDS, "__interrupt__"])
                    thread.writes.append((*key, random.choice([None, *RUNS]), channel))
    visible = [row.place for row in thread.checkpoints if not row.hidden]
    for number in range(random.choice([0, 0, 1, 3])):
        if visible and chance() < 0.9:
            thread.labels[f"label {number}"] = random.choice(visible)
        elif not number:
            thread.labels["dangling"] = (random.choice(namespaces), random.choice(["000", "999"]))
    return thread
