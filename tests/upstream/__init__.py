"""LangGraph's own tests, of the installed releases, with our savers instead of the official ones.

`python -m tests.upstream` runs all of them on both databases; the tests here run those that are fast enough for CI.
Nothing of LangGraph's is stored here: pip downloads the source distributions.
"""
