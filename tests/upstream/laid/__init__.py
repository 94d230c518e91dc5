"""What is laid beside LangGraph's tests: their fixtures with our savers. Nothing here knows of the folder it is in."""
