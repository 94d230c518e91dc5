"""Many real graphs while connections are cut, processes killed and threads pruned: `python -m tests.soak`."""
