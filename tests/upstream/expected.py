"""LangGraph's tests that cannot pass with other savers, each with its reason. Any other failure is a bug of ours."""

from __future__ import annotations

from typing import Final

TABLES: Final = "it reads the official saver's tables or its attributes"
DONE: Final = "it asserts that something is refused or lost which our savers do or store"

# By suite and test, for all parameters.
EXPECTED: Final = {
    "langgraph": {
        # InMemorySaver's dicts.
        "test_channels::test_delta_channel_snapshot_version_based": TABLES,
        "test_delta_channel_update_state::test_abulk_update_state_replays_updates_in_the_order_given": TABLES,
        "test_delta_channel_update_state::test_bulk_update_state_replays_updates_in_the_order_given": TABLES,
        # They run code between two statements of the official prune.
        "test_prune_postgres::test_keep_latest_keeps_a_delta_channel_turn_saved_after_the_thread_check": TABLES,
        "test_prune_postgres::test_keep_latest_keeps_a_turn_saved_after_it_read_the_heads": TABLES,
        "test_prune_postgres::test_keep_latest_refuses_a_thread_that_switches_to_a_delta_channel_mid_batch": TABLES,
        # Threads with a delta channel are pruned.
        "test_prune_postgres::test_akeep_latest_refuses_a_batch_with_a_delta_channel_thread": DONE,
        "test_prune_postgres::test_keep_latest_refuses_a_batch_with_a_delta_channel_thread": DONE,
    },
    "prebuilt": {},
    "checkpoint": {
        # They read InMemorySaver's dicts, or fill them.
        "test_memory::TestBaseFallbackGetChannelWrites::test_async_fallback_concurrent_tasks_do_not_interfere": TABLES,
        "test_memory::TestBaseFallbackGetChannelWrites::"
        "test_async_fallback_returns_ancestor_writes_oldest_first": TABLES,
        "test_memory::TestBaseFallbackGetChannelWrites::test_fallback_returns_ancestor_writes_oldest_first": TABLES,
        "test_memory::TestInMemorySaverDeltaChannel::test_get_channel_writes_at_root_returns_empty": TABLES,
        "test_memory::TestInMemorySaverDeltaChannel::test_get_channel_writes_collects_ancestor_writes_only": TABLES,
        "test_memory::TestInMemorySaverDeltaChannel::test_load_blobs_omits_delta_channel": TABLES,
        "test_memory::TestPreDeltaBlobTerminator::test_seed_bounds_walk_without_dropping_its_own_writes": TABLES,
        "test_memory::TestPreDeltaBlobTerminator::test_seed_from_pre_delta_ancestor_blob": TABLES,
    },
    "checkpoint-postgres": {
        # They count rows of the official tables, run code between two statements of the official prune, or replace a
        # method inside of the official saver.
        "test_async::test_get_checkpoint_no_channel_values": TABLES,
        "test_delta_pagination::test_async_walk_reads_nothing_newer_than_the_target": TABLES,
        "test_delta_pagination::test_sync_walk_reads_nothing_newer_than_the_target": TABLES,
        "test_prune::test_async_saver_prune_runs_from_another_thread_only": TABLES,
        "test_prune::test_delete_removes_every_row_of_the_threads": TABLES,
        "test_prune::test_keep_latest_deletes_a_subgraph_call_with_the_checkpoint_it_started_from": TABLES,
        "test_prune::test_keep_latest_keeps_a_checkpoint_saved_meanwhile_whatever_its_id": TABLES,
        "test_prune::test_keep_latest_keeps_a_checkpoint_saved_while_it_runs": TABLES,
        "test_prune::test_keep_latest_keeps_each_namespace_head_with_its_writes_and_blobs": TABLES,
        "test_prune::test_keep_latest_keeps_the_history_of_a_delta_checkpoint_saved_after_the_thread_check": TABLES,
        "test_prune::test_keep_latest_keeps_the_parent_holding_a_pre_v4_heads_sends": TABLES,
        "test_prune::test_keep_latest_prunes_a_thread_storing_a_plain_true": TABLES,
        "test_prune::test_keep_latest_refuses_a_batch_with_a_delta_channel_thread": TABLES,
        "test_prune::test_keep_latest_refuses_a_thread_that_turns_delta_after_the_batch_check": TABLES,
        "test_prune::test_prune_rejects_a_single_thread_id_string": TABLES,
        "test_prune::test_unknown_strategy_changes_nothing": TABLES,
        "test_sync::test_get_checkpoint_no_channel_values": TABLES,
        "test_sync::test_nonnull_migrations": TABLES,
        # A stored None is a value. NUL is retained in metadata.
        "test_async::test_null_chars": DONE,
        "test_delta_plain_value_seed::test_inline_primitive_seed_is_found": DONE,
        "test_sync::test_null_chars": DONE,
    },
    "checkpoint-sqlite": {
        "test_delta_parent_walk::test_walk_step_looks_up_the_parent_by_primary_key": TABLES,
        # They create the official tables of an earlier version; `migrate` reads those.
        "test_writes_task_path_migration::test_async_read_only_legacy_database_still_reads_delta_history": TABLES,
        "test_writes_task_path_migration::test_async_setup_migrates_legacy_writes_table_repeatably": TABLES,
        "test_writes_task_path_migration::test_put_writes_persists_task_path": TABLES,
        "test_writes_task_path_migration::test_read_only_legacy_database_still_reads_delta_history": TABLES,
        "test_writes_task_path_migration::test_setup_migrates_legacy_writes_table_repeatably": TABLES,
        # A filter's key may be any text, since it is bound as a parameter.
        "test_sqlite::TestSqliteSaver::test_checkpoint_search_sql_injection_prevention": DONE,
        # Async methods of `SqliteSaver` work.
        "test_sqlite::TestSqliteSaver::test_informative_async_errors": DONE,
    },
}

# They assert how much time has passed, or cancel a run after a fifth of a second, which depends on the load of the
# machine. Only `python -m tests.upstream` runs them.
TIMED: Final = {
    "langgraph": (
        "tests/test_pregel.py::test_stream_buffering_single_node",
        "tests/test_pregel.py::test_stream_subgraphs_during_execution",
        "tests/test_pregel_async.py::test_checkpoint_put_after_cancellation",  # And two whose names begin with that.
        "tests/test_pregel_async.py::test_stream_buffering_single_node",
        "tests/test_pregel_async.py::test_stream_subgraphs_during_execution",
    )
}


def function_of(test: str) -> str:
    """A test without its parameters."""
    return test.partition("[")[0]
