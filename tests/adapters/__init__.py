"""Adapters: threads of other frameworks in the same store."""
