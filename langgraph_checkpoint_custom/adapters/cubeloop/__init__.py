"""The agent framework CubeLoop: its `Checkpointer` protocol, in the store of a saver."""

from langgraph_checkpoint_custom.adapters.cubeloop.checkpointer import CubeLoopCheckpointer

__all__ = ["CubeLoopCheckpointer"]
