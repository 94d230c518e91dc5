"""What graphs do, written once; each scenario asserts what it is about, and notes all that it sees."""

from tests.graphs.running import SCENARIOS
from tests.graphs.scenarios import chats, deltas, failures, interrupts, pasts, steps, subgraphs

__all__ = ["SCENARIOS", "chats", "deltas", "failures", "interrupts", "pasts", "steps", "subgraphs"]
