"""The documents and the docstrings as a site."""
