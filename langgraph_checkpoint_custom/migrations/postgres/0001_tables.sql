-- oldest: 1
CREATE FUNCTION langgraph_checkpoint.tenant_of(thread_id text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN starts_with(thread_id, E'\x1f') THEN split_part(thread_id, E'\x1f', 2) ELSE '' END;

CREATE TABLE langgraph_checkpoint.checkpoints (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    root_id text COLLATE "C",
    run_id text COLLATE "C",
    format integer NOT NULL,
    hidden boolean NOT NULL DEFAULT false,
    inline_channels text[] COLLATE "C" NOT NULL,
    delta_channels text[] COLLATE "C" NOT NULL,
    blob_channels text[] COLLATE "C" NOT NULL,
    blob_versions text[] COLLATE "C" NOT NULL,
    checkpoint_type text NOT NULL,
    checkpoint bytea NOT NULL,
    metadata_type text NOT NULL,
    metadata bytea NOT NULL,
    metadata_filter jsonb NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

CREATE INDEX checkpoints_of_run ON langgraph_checkpoint.checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX checkpoints_by_id ON langgraph_checkpoint.checkpoints (tenant, checkpoint_id);

CREATE TABLE langgraph_checkpoint.blobs (
    thread_id text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    type text NOT NULL,
    value bytea NOT NULL,
    chunks text,
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
CREATE INDEX writes_interrupts ON langgraph_checkpoint.writes (thread_id) WHERE channel = '__interrupt__';
CREATE INDEX writes_errors ON langgraph_checkpoint.writes (thread_id) WHERE channel = '__error__';

ALTER TABLE langgraph_checkpoint.checkpoints ALTER checkpoint SET STORAGE EXTERNAL;
ALTER TABLE langgraph_checkpoint.checkpoints ALTER metadata SET STORAGE EXTERNAL;
ALTER TABLE langgraph_checkpoint.blobs ALTER value SET STORAGE EXTERNAL;
ALTER TABLE langgraph_checkpoint.writes ALTER value SET STORAGE EXTERNAL;

CREATE TABLE langgraph_checkpoint.labels (
    thread_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    checkpoint_ns text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, name)
);

CREATE TABLE langgraph_checkpoint.threads (
    thread_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    due_at double precision NOT NULL DEFAULT 0,
    ttl_seconds double precision,
    strategy text
);

CREATE INDEX threads_due ON langgraph_checkpoint.threads (tenant, due_at, thread_id);

CREATE TABLE langgraph_checkpoint.sweeps (
    tenant text COLLATE "C" PRIMARY KEY,
    policy text NOT NULL,
    armed_at double precision NOT NULL DEFAULT 0,
    started_at double precision NOT NULL DEFAULT 0,
    finished_at double precision
);

CREATE TABLE langgraph_checkpoint.claims (
    thread_id text COLLATE "C" PRIMARY KEY,
    token text COLLATE "C" NOT NULL,
    owner text NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE langgraph_checkpoint.moves (
    thread_id text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL,
    checkpoints bytea NOT NULL,
    PRIMARY KEY (store, thread_id)
);

CREATE TABLE langgraph_checkpoint.tenant_roles (
    role name PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL
);

CREATE FUNCTION langgraph_checkpoint.current_tenant() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    (SELECT r.tenant FROM langgraph_checkpoint.tenant_roles r WHERE r.role = current_user),
    current_setting('langgraph_checkpoint_custom.tenant', true),
    ''
);

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
