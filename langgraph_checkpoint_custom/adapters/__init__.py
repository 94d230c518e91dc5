"""Other agent frameworks in the same store."""

from langgraph_checkpoint_custom.model.namespaced_ids import thread_of

__all__ = ["thread_of"]
