"""Between LangGraph's objects and the bytes of a row."""
