-- Deleting and pruning: threads, runs, checkpoints.

-- fragment: noted_heads
-- differs: the setting was made where the rows are. If it did not depend on a column, it would be read where the client
-- is connected.
current_setting('langgraph_checkpoint_custom.heads' || left(x.checkpoint_ns, 0), true)
