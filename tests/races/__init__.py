"""A check that concurrent operations lose nothing: see `__main__.py`."""
