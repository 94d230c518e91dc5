"""The soak: real graphs for a given time while processes are killed, versions change and threads are pruned."""
