"""LangGraph's own tests, of the releases that are installed, with our savers in the place of the official ones.

`python -m tests.upstream` runs all of them on both databases; the tests here run those that CI has the time for.
Nothing of LangGraph's is kept here: pip downloads the source distributions.
"""
