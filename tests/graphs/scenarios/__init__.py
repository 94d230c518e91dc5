"""What graphs do, written once. Each scenario asserts its subject, and notes everything that it reads."""

from tests.graphs.running import SCENARIOS
from tests.graphs.scenarios import deltas, interrupts, subgraphs

__all__ = ["SCENARIOS", "deltas", "interrupts", "subgraphs"]
