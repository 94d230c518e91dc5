CREATE TABLE langgraph_checkpoint.checkpoints (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    root_id text COLLATE "C",
    run_id text COLLATE "C",
    format integer NOT NULL,
    hidden boolean NOT NULL DEFAULT false,
    doomed boolean NOT NULL DEFAULT false,
    inline_channels text[] COLLATE "C" NOT NULL,
    delta_channels text[] COLLATE "C" NOT NULL,
    blob_channels text[] COLLATE "C" NOT NULL,
    blob_versions text[] COLLATE "C" NOT NULL,
    checkpoint_type text NOT NULL,
    checkpoint bytea NOT NULL,
    metadata_type text NOT NULL,
    metadata bytea NOT NULL,
    metadata_filter jsonb NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

CREATE INDEX checkpoints_of_run ON langgraph_checkpoint.checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX checkpoints_by_id ON langgraph_checkpoint.checkpoints (checkpoint_id);
CREATE INDEX checkpoints_doomed ON langgraph_checkpoint.checkpoints (thread_id, checkpoint_ns) WHERE doomed;

CREATE TABLE langgraph_checkpoint.blobs (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    type text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);

CREATE TABLE langgraph_checkpoint.writes (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    task_path text NOT NULL,
    run_id text COLLATE "C",
    channel text COLLATE "C" NOT NULL,
    type text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

CREATE INDEX writes_of_run ON langgraph_checkpoint.writes (run_id) WHERE run_id IS NOT NULL;
