"""Values of all types through a graph: what LangGraph's savers and ours return for each, for docs/values.md."""
