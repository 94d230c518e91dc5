-- oldest: 1
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    parent_id TEXT,
    root_id TEXT,
    run_id TEXT,
    format INTEGER NOT NULL,
    hidden INTEGER NOT NULL DEFAULT 0,
    inline_channels TEXT NOT NULL,
    delta_channels TEXT NOT NULL,
    blob_channels TEXT NOT NULL,
    blob_versions TEXT NOT NULL,
    metadata_type TEXT NOT NULL,
    metadata BLOB NOT NULL,
    metadata_filter TEXT NOT NULL,
    checkpoint_type TEXT NOT NULL,
    checkpoint BLOB NOT NULL, -- Last: SQLite reads the columns before it without the pages that it fills.
    tenant TEXT NOT NULL GENERATED ALWAYS AS (
        CASE WHEN unicode(thread_id) = 31 THEN substr(thread_id, 2, instr(substr(thread_id, 2), char(31)) - 1) ELSE '' END
    ) VIRTUAL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
) STRICT;

CREATE INDEX checkpoints_of_run ON checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX checkpoints_by_id ON checkpoints (tenant, checkpoint_id);

CREATE TABLE blobs (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    channel TEXT NOT NULL,
    version TEXT NOT NULL,
    type TEXT NOT NULL,
    value BLOB NOT NULL,
    chunks TEXT,
    tenant TEXT NOT NULL GENERATED ALWAYS AS (
        CASE WHEN unicode(thread_id) = 31 THEN substr(thread_id, 2, instr(substr(thread_id, 2), char(31)) - 1) ELSE '' END
    ) VIRTUAL,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
) STRICT;

CREATE TABLE writes (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    task_path TEXT NOT NULL,
    run_id TEXT,
    channel TEXT NOT NULL,
    type TEXT NOT NULL,
    value BLOB NOT NULL,
    tenant TEXT NOT NULL GENERATED ALWAYS AS (
        CASE WHEN unicode(thread_id) = 31 THEN substr(thread_id, 2, instr(substr(thread_id, 2), char(31)) - 1) ELSE '' END
    ) VIRTUAL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
) STRICT;

CREATE INDEX writes_of_run ON writes (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX writes_interrupts ON writes (thread_id) WHERE channel = '__interrupt__';
CREATE INDEX writes_errors ON writes (thread_id) WHERE channel = '__error__';

CREATE TABLE labels (
    thread_id TEXT NOT NULL,
    name TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    PRIMARY KEY (thread_id, name)
) STRICT;

CREATE TABLE threads (
    thread_id TEXT PRIMARY KEY NOT NULL,
    tenant TEXT NOT NULL,
    due_at REAL NOT NULL DEFAULT 0,
    ttl_seconds REAL,
    strategy TEXT
) STRICT;

CREATE INDEX threads_due ON threads (tenant, due_at, thread_id);

CREATE TABLE sweeps (
    tenant TEXT PRIMARY KEY NOT NULL,
    policy TEXT NOT NULL,
    armed_at REAL NOT NULL DEFAULT 0,
    started_at REAL NOT NULL DEFAULT 0,
    finished_at REAL
) STRICT;

CREATE TABLE claims (
    thread_id TEXT PRIMARY KEY NOT NULL,
    token TEXT NOT NULL,
    owner TEXT NOT NULL,
    expires_at REAL NOT NULL
) STRICT;

CREATE TABLE moves (
    thread_id TEXT NOT NULL,
    store TEXT NOT NULL,
    checkpoints BLOB NOT NULL,
    PRIMARY KEY (store, thread_id)
) STRICT;

CREATE VIEW checkpoints_readable AS
SELECT
    tenant,
    CASE WHEN tenant = '' THEN thread_id ELSE substr(thread_id, length(tenant) + 3) END AS thread_id,
    checkpoint_ns, checkpoint_id, parent_id, run_id,
    CASE WHEN json_type(step) = 'integer' AND length(step) < 10 THEN CAST(step AS INTEGER) END AS step,
    CASE WHEN instr(source, '\u0000') = 0 THEN source ->> '$' END AS source,
    (
        SELECT json_group_object(key, json(value)) FROM json_each(metadata_filter)
        WHERE type = 'text' AND instr(value, '\u0000') = 0
    ) AS metadata,
    thread_id AS stored_thread_id
FROM (
    SELECT
        tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_filter,
        metadata_filter ->> 'step' AS step, metadata_filter ->> 'source' AS source
    FROM checkpoints
    WHERE NOT hidden
);
