"""Our savers, the official ones and the floor, measured next to each other: `python -m benchmarks --quick`."""
