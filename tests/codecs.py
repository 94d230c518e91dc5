"""The codecs that a test has registered."""

from __future__ import annotations

from langgraph_checkpoint_custom.encoding import leaves, objects


def forget_codecs() -> None:
    """Forget them, as if this were a process that has registered none."""
    for known in (leaves._BY_TYPE, leaves._BY_NAME):
        for key in [key for key, leaf in known.items() if leaf.method == leaves.CODEC]:
            del known[key]  # type: ignore[arg-type]
    leaves._add(leaves._STANDARD)
    objects._KINDS.clear()
