"""Files that are added to LangGraph's tests: their fixtures with our savers. They do not depend on their folder."""
