"""The names in docs/api.md, in order.

Each has a document and a text in it. The link leads to the section with the first occurrence of the text.
"""

from __future__ import annotations

# Name: (document, a text in the section).
Links = dict[str, tuple[str, str]]

PACKAGE = "langgraph_checkpoint_custom"

# Sections of the page: the module of the names, and the names.
SECTIONS: dict[str, list[tuple[str, Links]]] = {
    "Savers": [
        (
            PACKAGE,
            {
                "open_saver": ("quick-start.md", "open_saver("),
                "PostgresSaver": ("quick-start.md", "PostgresSaver("),
                "SqliteSaver": ("quick-start.md", "SqliteSaver("),
                "CheckpointSaver": ("architecture.md", "`CheckpointSaver`"),
                "overlay": ("threads.md", "overlay(saver, "),
                "aoverlay": ("threads.md", "aoverlay("),
            },
        ),
        (
            f"{PACKAGE}.aio",
            {
                "AsyncPostgresSaver": ("moving.md", "AsyncPostgresSaver.from_conn_string("),
                "AsyncSqliteSaver": ("moving.md", "import AsyncSqliteSaver"),
            },
        ),
        (f"{PACKAGE}.server", {"checkpointer": ("agent-server.md", ".server.checkpointer")}),
        (f"{PACKAGE}.ui", {"create_app": ("inspector.md", "create_app(")}),
    ],
    "Arguments and results": [
        (
            PACKAGE,
            {
                "Retention": ("retention.md", "Retention("),
                "Swept": ("retention.md", "saver.sweep("),
                "SweepStatus": ("retention.md", "saver.sweep_status("),
                "ThreadRecord": ("threads.md", "saver.threads("),
                "CheckpointRecord": ("threads.md", "saver.history("),
                "RunRecord": ("threads.md", "saver.runs("),
                "WaitingThread": ("threads.md", "saver.interrupts("),
                "OperationEvent": ("frameworks.md", "OperationEvent"),
                "log_slow_operations": ("frameworks.md", "log_slow_operations("),
                "register_codec": ("options.md", "register_codec("),
            },
        ),
        (f"{PACKAGE}.otel", {"instrumentation": ("frameworks.md", "instrumentation()")}),
        (f"{PACKAGE}.lease", {"Lease": ("threads.md", "saver.claim(")}),
        (f"{PACKAGE}.backend", {"Backend": ("architecture.md", "`saver.backend`")}),
        (f"{PACKAGE}.operations.reencrypt", {"Renewal": ("encryption.md", "saver.reencrypt()")}),
    ],
    "Moving data": [
        (
            f"{PACKAGE}.tools.migration",
            {
                "migrate": ("moving.md", "moved = migrate("),
                "migrate_back": ("moving.md", "migrate_back(saver"),
                "copy_from": ("moving.md", "copy_from("),
                "acopy_from": ("moving.md", "acopy_from("),
                "MoveReport": ("moving.md", "moved.problems"),
            },
        ),
        (
            f"{PACKAGE}.tools.fence",
            {"close": ("moving.md", "fence.close("), "open_again": ("moving.md", "fence.open_again")},
        ),
        (
            f"{PACKAGE}.tools.exchange",
            {
                "export_file": ("moving.md", "export_file("),
                "import_file": ("moving.md", "import_file("),
                "transfer": ("moving.md", "transfer("),
                "count_exported": ("moving.md", '"threads":'),
                "ExchangeReport": ("moving.md", ".problems"),
                "BrokenExport": ("moving.md", "import_file("),
            },
        ),
    ],
    "Other frameworks": [
        (
            f"{PACKAGE}.adapters.cubeloop",
            {"CubeLoopCheckpointer": ("adapters.md", "CubeLoopCheckpointer(")},
        ),
        (
            f"{PACKAGE}.adapters.pydantic_deep",
            {"DeepCheckpointStore": ("adapters.md", "DeepCheckpointStore(")},
        ),
        (
            f"{PACKAGE}.adapters.sessions",
            {
                "SessionStore": ("adapters.md", "sessions = SessionStore("),
                "SessionCheckpoint": ("adapters.md", "sessions.save("),
                "SessionVersion": ("adapters.md", "sessions.history("),
                "SessionEvent": ("adapters.md", "on_saved="),
            },
        ),
        (
            f"{PACKAGE}.adapters.key_values",
            {
                "KeyValueStore": ("adapters.md", "values = KeyValueStore("),
                "Item": ("adapters.md", "values.list("),
            },
        ),
        (f"{PACKAGE}.adapters", {"thread_of": ("adapters.md", "thread_of(")}),
    ],
    "Errors": [
        (
            PACKAGE,
            {
                name: ("troubleshooting.md", f"`{name}`")
                for name in (
                    "CheckpointError",
                    "ConfigError",
                    "NameTooLong",
                    "ClosedError",
                    "CheckpointEncodeError",
                    "CheckpointNotFound",
                    "CheckpointConflict",
                    "ChangedInPlace",
                    "CheckpointLabelled",
                    "LabelExists",
                    "ThreadExists",
                    "ThreadBusy",
                    "ClaimLost",
                    "StaleInterrupt",
                    "CorruptCheckpoint",
                    "SchemaError",
                    "SchemaMissing",
                    "SchemaOutdated",
                    "SchemaTooNew",
                    "SchemaForeign",
                    "StorageError",
                    "RetryableError",
                    "ConnectionLost",
                    "Contention",
                )
            },
        ),
    ],
}

# The methods of every saver; an async one is listed with its sync version.
METHODS: dict[str, Links] = {
    "Opening and closing": {
        "setup": ("quick-start.md", "saver.asetup()"),
        "close": ("frameworks.md", "saver.close()"),
        "conn": ("moving.md", "`saver.conn`"),
        "stats": ("frameworks.md", "`saver.stats()`"),
        "backend": ("architecture.md", "`saver.backend`"),
    },
    "Storing": {
        "put": ("storage-format.md", "saver.put("),
        "put_writes": ("guarantees.md", "`put`, `put_writes`"),
        "get_next_version": ("glossary.md", "**channel version**"),
    },
    "Reading": {
        "get_tuple": ("quick-start.md", "get_tuple("),
        "list": ("encryption.md", "saver.list("),
        "history": ("threads.md", "saver.history("),
        "get_delta_channel_history": ("comparison.md", "`get_delta_channel_history`"),
    },
    "Threads and runs": {
        "threads": ("threads.md", "saver.threads("),
        "count_threads": ("threads.md", "saver.count_threads("),
        "thread_exists": ("threads.md", "saver.thread_exists("),
        "runs": ("threads.md", "saver.runs("),
        "copy_thread": ("threads.md", "`copy_thread`"),
        "fork_thread": ("threads.md", "saver.fork_thread("),
        "interrupts": ("threads.md", "saver.interrupts("),
        "check_interrupt": ("guarantees.md", "saver.check_interrupt("),
        "claim": ("threads.md", "saver.claim("),
    },
    "Labels": {
        "label": ("threads.md", "saver.label("),
        "labelled": ("threads.md", "saver.labelled("),
        "labels": ("threads.md", "saver.label("),
        "unlabel": ("threads.md", "saver.unlabel("),
    },
    "Deleting": {
        "delete_thread": ("threads.md", "saver.delete_thread("),
        "delete_checkpoint": ("threads.md", "saver.delete_checkpoint("),
        "delete_for_runs": ("threads.md", "`delete_for_runs`"),
        "rollback": ("threads.md", "saver.rollback("),
        "prune": ("threads.md", "saver.prune("),
        "sweep": ("retention.md", "saver.sweep("),
        "set_ttl": ("retention.md", "saver.set_ttl("),
        "sweep_status": ("retention.md", "saver.sweep_status("),
    },
    "Tenants and keys": {
        "for_tenant": ("frameworks.md", ".for_tenant("),
        "tenants": ("command-line.md", "`tenants`"),
        "reencrypt": ("encryption.md", "saver.reencrypt()"),
    },
}

# Methods of LangGraph's base class that savers have unchanged.
LANGGRAPHS = ("get", "aget", "with_allowlist", "config_specs", "serde")
