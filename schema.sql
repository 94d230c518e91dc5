-- The tables of langgraph-checkpoint-custom on PostgreSQL 15 and later: what all migrations together make.
-- `psql -f schema.sql` does what `setup()` does on an empty database; a test keeps the two equal.
--
-- Every key begins with the thread, and no statement of a run touches two threads. Ids are compared byte-wise.
-- Values are bytes that only the saver's serializer reads, each with the type that the serializer gave.

CREATE SCHEMA langgraph_checkpoint;

-- The thread ids of a tenant begin with its name between two unit separators, so every key is confined to it. No other
-- thread id begins with one.
CREATE FUNCTION langgraph_checkpoint.tenant_of(thread_id text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN starts_with(thread_id, E'\x1f') THEN split_part(thread_id, E'\x1f', 2) ELSE '' END;

-- One row a superstep.
CREATE TABLE langgraph_checkpoint.checkpoints (
    thread_id text COLLATE "C" NOT NULL,
    -- '' is the root graph's.
    checkpoint_ns text COLLATE "C" NOT NULL,
    -- Sorts by time: a UUIDv6 of LangGraph's, or a ULID. Never parsed.
    checkpoint_id text COLLATE "C" NOT NULL,
    -- NULL for the first one, and where the parent was pruned.
    parent_id text COLLATE "C",
    -- In a subgraph's namespace, the root graph's checkpoint from which the call started.
    root_id text COLLATE "C",
    run_id text COLLATE "C",
    -- The `v` of the checkpoint document. Below 4, the pending sends are on the parent's writes.
    format integer NOT NULL,
    -- Pruned, but an ancestor that a remaining checkpoint still needs: neither listed nor ever the newest.
    hidden boolean NOT NULL DEFAULT false,
    -- Channels whose value is part of the checkpoint document.
    inline_channels text[] COLLATE "C" NOT NULL,
    -- DeltaChannels, which have a value here or are rebuilt from the writes of ancestors.
    delta_channels text[] COLLATE "C" NOT NULL,
    -- Channels whose value is in `blobs`, and the version of each.
    blob_channels text[] COLLATE "C" NOT NULL,
    blob_versions text[] COLLATE "C" NOT NULL,
    checkpoint_type text NOT NULL,
    checkpoint bytea NOT NULL,
    metadata_type text NOT NULL,
    metadata bytea NOT NULL,
    -- For filters only: metadata keys with short values, each as a JSON text. NULL where the value is not shown, and
    -- the key * where other keys may be hidden.
    metadata_filter jsonb NOT NULL,
    -- That of the thread: for lists over all threads, and for the policy below, which sees to it.
    tenant text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

CREATE INDEX checkpoints_of_run ON langgraph_checkpoint.checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX checkpoints_by_id ON langgraph_checkpoint.checkpoints (tenant, checkpoint_id);

-- Channel values too large for the document, once for each version however many checkpoints have it; and the chunks of
-- large ones, once for however many versions.
CREATE TABLE langgraph_checkpoint.blobs (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    -- Of a chunk, its name: "#/" and a random text.
    version text COLLATE "C" NOT NULL,
    type text NOT NULL,
    value bytea NOT NULL,
    -- The names of the chunks that make this value, in their order: a JSON array. NULL if it is in one piece.
    chunks text,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);

-- One row a task output. No foreign key: writes are saved in the background and can come before their checkpoint.
CREATE TABLE langgraph_checkpoint.writes (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    -- The position among the task's outputs; below 0 for errors, interrupts, resumes and scheduled tasks.
    idx integer NOT NULL,
    task_path text NOT NULL,
    -- The run that wrote it, which need not be the checkpoint's: an answer to an interrupt comes from the next run.
    run_id text COLLATE "C",
    channel text COLLATE "C" NOT NULL,
    type text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

CREATE INDEX writes_of_run ON langgraph_checkpoint.writes (run_id) WHERE run_id IS NOT NULL;
-- For the inbox: of all writes it holds the few that are questions to a human.
CREATE INDEX writes_interrupts ON langgraph_checkpoint.writes (thread_id) WHERE channel = '__interrupt__';
CREATE INDEX writes_errors ON langgraph_checkpoint.writes (thread_id) WHERE channel = '__error__';

-- The saver compresses large values itself, faster than the server would try to.
ALTER TABLE langgraph_checkpoint.checkpoints ALTER checkpoint SET STORAGE EXTERNAL;
ALTER TABLE langgraph_checkpoint.checkpoints ALTER metadata SET STORAGE EXTERNAL;
ALTER TABLE langgraph_checkpoint.blobs ALTER value SET STORAGE EXTERNAL;
ALTER TABLE langgraph_checkpoint.writes ALTER value SET STORAGE EXTERNAL;

-- Names of checkpoints; one that has a name is left alone by a prune.
CREATE TABLE langgraph_checkpoint.labels (
    thread_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, name)
);

-- When a sweep is to look at a thread again. A thread's first checkpoint inserts its row; later ones do not touch it.
CREATE TABLE langgraph_checkpoint.threads (
    thread_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    -- Seconds since 1970, as all times here. 0: at the next sweep.
    due_at double precision NOT NULL DEFAULT 0,
    -- What set_ttl() has said, or NULL: after how many seconds, and whether to 'delete' or to 'keep_latest'.
    ttl_seconds double precision,
    strategy text
);

CREATE INDEX threads_due ON langgraph_checkpoint.threads (tenant, due_at, thread_id);

-- What the sweeps of each tenant have done; '' are the threads without a tenant.
CREATE TABLE langgraph_checkpoint.sweeps (
    tenant text COLLATE "C" PRIMARY KEY,
    -- A digest of what they keep. After a change, all threads are due.
    policy text NOT NULL,
    -- When all threads got their row in `threads` for the last time. 0: that is still to be done.
    armed_at double precision NOT NULL DEFAULT 0,
    -- When the last sweep that ended had begun, and when it ended.
    started_at double precision NOT NULL DEFAULT 0,
    finished_at double precision
);

-- Threads that somebody has claimed: writes that come with another token are refused.
CREATE TABLE langgraph_checkpoint.claims (
    thread_id text COLLATE "C" PRIMARY KEY,
    token text COLLATE "C" NOT NULL,
    owner text NOT NULL,
    expires_at timestamptz NOT NULL
);

-- What was moved from or to a store of LangGraph's own savers, by thread: digests of the checkpoints, 8 bytes each.
-- Rows outlive their thread, so that a later move does not bring back what was deleted.
CREATE TABLE langgraph_checkpoint.moves (
    thread_id text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL,
    checkpoints bytea NOT NULL,
    PRIMARY KEY (store, thread_id)
);

-- Roles that see one tenant's rows only, whatever they set.
CREATE TABLE langgraph_checkpoint.tenant_roles (
    role name PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL
);

-- The tenant that a session works for: its role's, or else the one that it was told.
CREATE FUNCTION langgraph_checkpoint.current_tenant() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    (SELECT r.tenant FROM langgraph_checkpoint.tenant_roles r WHERE r.role = current_user),
    current_setting('langgraph_checkpoint_custom.tenant', true),
    ''
);

-- The policies hold for every role but the tables' owner: nobody sees a tenant's rows without its name. They compare by a
-- function, which the planner takes to hold for a third of the rows: with = it takes a thread's rows for none, since it
-- knows nothing of tenant_of() and not that a thread is of one tenant, and sorts all of them where a page is asked for.
ALTER TABLE langgraph_checkpoint.checkpoints ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.checkpoints
    USING (texteq(tenant, (SELECT langgraph_checkpoint.current_tenant())))
    WITH CHECK (
        tenant = (SELECT langgraph_checkpoint.current_tenant()) AND tenant = langgraph_checkpoint.tenant_of(thread_id)
    );
ALTER TABLE langgraph_checkpoint.blobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.blobs
    USING (texteq(langgraph_checkpoint.tenant_of(thread_id), (SELECT langgraph_checkpoint.current_tenant())));
ALTER TABLE langgraph_checkpoint.writes ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.writes
    USING (texteq(langgraph_checkpoint.tenant_of(thread_id), (SELECT langgraph_checkpoint.current_tenant())));
ALTER TABLE langgraph_checkpoint.labels ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.labels
    USING (texteq(langgraph_checkpoint.tenant_of(thread_id), (SELECT langgraph_checkpoint.current_tenant())));
ALTER TABLE langgraph_checkpoint.threads ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.threads
    USING (texteq(tenant, (SELECT langgraph_checkpoint.current_tenant())))
    WITH CHECK (
        tenant = (SELECT langgraph_checkpoint.current_tenant()) AND tenant = langgraph_checkpoint.tenant_of(thread_id)
    );
ALTER TABLE langgraph_checkpoint.sweeps ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.sweeps
    USING (texteq(tenant, (SELECT langgraph_checkpoint.current_tenant())));
ALTER TABLE langgraph_checkpoint.claims ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.claims
    USING (texteq(langgraph_checkpoint.tenant_of(thread_id), (SELECT langgraph_checkpoint.current_tenant())));
ALTER TABLE langgraph_checkpoint.moves ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants ON langgraph_checkpoint.moves
    USING (texteq(langgraph_checkpoint.tenant_of(thread_id), (SELECT langgraph_checkpoint.current_tenant())));
ALTER TABLE langgraph_checkpoint.tenant_roles ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON langgraph_checkpoint.tenant_roles FOR SELECT USING (role = current_user);

-- For people and dashboards: the checkpoints that a list returns, newest first. Nothing can be changed through it, since
-- it reads a subquery. A view reads as the owner of the tables, whom the policies do not hold for, so it has their
-- condition; the barrier evaluates it before any function of a query. The order lets a query for the newest ones read by
-- index.
--
-- In `metadata`, a value is what its JSON text says. Left out are values that the projection does not have, and texts
-- with a NUL character, which jsonb cannot hold. To read by the index of a thread, compare `stored_thread_id`.
CREATE VIEW langgraph_checkpoint.checkpoints_readable WITH (security_barrier) AS
SELECT
    tenant,
    CASE WHEN tenant = '' THEN thread_id ELSE substr(thread_id, length(tenant) + 3) END AS thread_id,
    checkpoint_ns, checkpoint_id, parent_id, run_id,
    CASE WHEN step ~ '^-?[0-9]{1,9}$' THEN step::integer END AS step,
    CASE WHEN strpos(source, E'\\u0000') = 0 THEN source::jsonb #>> '{}' END AS source,
    (
        SELECT coalesce(jsonb_object_agg(key, value::jsonb), '{}') FROM jsonb_each_text(metadata_filter)
        WHERE value IS NOT NULL AND strpos(value, E'\\u0000') = 0
    ) AS metadata,
    thread_id AS stored_thread_id
FROM (
    SELECT
        tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata_filter,
        metadata_filter ->> 'step' AS step, metadata_filter ->> 'source' AS source
    FROM langgraph_checkpoint.checkpoints
    WHERE NOT hidden AND tenant = (SELECT langgraph_checkpoint.current_tenant())
) AS seen
ORDER BY checkpoint_id DESC;

-- Which migrations were applied; each row was committed together with what it stands for.
CREATE TABLE langgraph_checkpoint.langgraph_checkpoint_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    -- A package may use the tables if its last migration is this one, or a later one.
    oldest integer NOT NULL
);

INSERT INTO langgraph_checkpoint.langgraph_checkpoint_migrations (number, name, oldest) VALUES (1, 'tables', 1);
