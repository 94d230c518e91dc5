"""Converts between LangGraph's objects and the bytes of rows."""
