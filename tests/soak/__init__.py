"""Many real graphs for minutes, while what they need is cut, killed and pruned: `python -m tests.soak`."""
