"""Other agent frameworks in the same store."""

from langgraph_checkpoint_custom.model.keys import thread_of

__all__ = ["thread_of"]
