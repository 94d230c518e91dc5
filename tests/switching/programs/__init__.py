"""What LangGraph's documentation does with a checkpointer, in our own programs, written for the official savers.

`tests/switching/test_programs.py` derives the others from these: sync, on SQLite, and with our savers.
"""
