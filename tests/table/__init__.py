"""Values of all kinds through a graph: what LangGraph's savers and ours give back of each, for docs/comparison.md."""
