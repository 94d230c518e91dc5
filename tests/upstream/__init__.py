"""LangGraph's own tests, of the installed releases, with our savers instead of the official ones.

Nothing of LangGraph's is stored here: pip downloads the source distributions.
"""
