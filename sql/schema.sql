-- The tables of checkpointer.
--
-- A thread is one conversation or one run of an agent. Its state is kept as a tree of checkpoints: each row of `checkpoints`
-- is a whole snapshot whose `manifest` lists the channels; small values stand in the manifest, large ones are rows of
-- `checkpoint_blobs` that snapshots share: recipes over the bytes in `checkpoint_segments`. What the tasks of a step produced before the step was folded into a checkpoint
-- stands in `checkpoint_writes`. `checkpoint_heads` has one row per thread and namespace: which checkpoint is the latest; it
-- is also the lock that every writer of that namespace takes first. Beside the state, a thread may have a message log:
-- `checkpoint_messages`, numbered by the counter in `checkpoint_logs`, which is the lock of its writers, and
-- `checkpoint_summaries` of its beginning. (`checkpoint_markup`, in markup.sql, says what is left out when messages are read.)
-- `checkpoint_threads` has what is set for a thread as a whole: the graph of `checkpoint_graphs` it is bound to, or that it was
-- deleted and must not come back for a while.
--
-- Every key begins (thread_id, tenant), so that a router can shard on the thread, and no foreign key crosses threads; the
-- functions keep the rows consistent. Identifiers compare by bytes (COLLATE "C"). Large columns are compressed by lz4.

CREATE TABLE @extschema@.checkpoint_heads (
    thread_id     text   COLLATE "C" NOT NULL,
    tenant        text   COLLATE "C" NOT NULL,
    checkpoint_ns text   COLLATE "C" NOT NULL,
    latest_id     text   COLLATE "C",
    previous_id   text   COLLATE "C",
    newest_uuid   text   COLLATE "C",
    revision      bigint NOT NULL,
    graph         text   COLLATE "C",
    PRIMARY KEY (thread_id, tenant, checkpoint_ns)
) WITH (fillfactor = 70);

COMMENT ON TABLE  @extschema@.checkpoint_heads IS 'One row per thread and namespace: its latest checkpoint, and the lock of its writers';
COMMENT ON COLUMN @extschema@.checkpoint_heads.latest_id IS 'The latest checkpoint; NULL while there are only writes that came before their checkpoint';
COMMENT ON COLUMN @extschema@.checkpoint_heads.previous_id IS 'The latest checkpoint before the last put: how a put that moves the head learns of it in the same statement';
COMMENT ON COLUMN @extschema@.checkpoint_heads.newest_uuid IS 'The greatest UUIDv6 used as a checkpoint id, in lower case: new ids sort after it';
COMMENT ON COLUMN @extschema@.checkpoint_heads.revision IS 'Counts the accepted changes; gives checkpoints their order of acceptance';
COMMENT ON COLUMN @extschema@.checkpoint_heads.graph IS 'The graph that the thread is bound to, as in checkpoint_threads';

CREATE TABLE @extschema@.checkpoints (
    thread_id            text        COLLATE "C" NOT NULL,
    tenant               text        COLLATE "C" NOT NULL,
    checkpoint_ns        text        COLLATE "C" NOT NULL,
    checkpoint_id        text        COLLATE "C" NOT NULL,
    parent_checkpoint_id text        COLLATE "C",
    adopted              boolean     NOT NULL DEFAULT false,
    revision             bigint      NOT NULL,
    folded_into          text        COLLATE "C",
    next                 text[]      COLLATE "C" NOT NULL,
    manifest             bytea       COMPRESSION lz4 NOT NULL,
    body                 json        COMPRESSION lz4,
    metadata             json        COMPRESSION lz4 NOT NULL,
    metadata_filter      jsonb       COMPRESSION lz4,
    created_at           timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (thread_id, tenant, checkpoint_ns, checkpoint_id)
);

-- ckpt_list across threads, newest first; a new id goes to its right end. The condition holds for every row. It keeps the index from
-- statements that do not say it: on a table that was not analysed yet the planner takes any index for as good as the right one.
CREATE INDEX checkpoints_by_id ON @extschema@.checkpoints (tenant, checkpoint_id DESC, thread_id, checkpoint_ns)
    WHERE checkpoint_id > '';
-- ckpt_list by metadata.
CREATE INDEX checkpoints_by_metadata ON @extschema@.checkpoints
    USING gin (metadata_filter jsonb_path_ops) WHERE metadata_filter IS NOT NULL;

COMMENT ON TABLE  @extschema@.checkpoints IS 'Snapshots of the state of a thread, each with its parent';
COMMENT ON COLUMN @extschema@.checkpoints.adopted IS 'Whether its own parent was deleted: of the one that it has now it consumed no writes';
COMMENT ON COLUMN @extschema@.checkpoints.revision IS 'Order of acceptance within thread and namespace';
COMMENT ON COLUMN @extschema@.checkpoints.folded_into IS 'The checkpoint into which ckpt_apply_writes folded the writes of this one';
COMMENT ON COLUMN @extschema@.checkpoints.next IS 'Ids of the tasks that run next';
COMMENT ON COLUMN @extschema@.checkpoints.manifest IS 'Channels with their small values and the digests of their large ones; read it with ckpt_latest, ckpt_state or ckpt_history';
COMMENT ON COLUMN @extschema@.checkpoints.body IS 'What a framework keeps of its checkpoint beside the channels; NULL for a JSON state';
COMMENT ON COLUMN @extschema@.checkpoints.metadata IS 'Metadata as given';
COMMENT ON COLUMN @extschema@.checkpoints.metadata_filter IS 'Metadata for ckpt_list''s filter, without members that jsonb cannot hold; NULL where there is none';

CREATE TABLE @extschema@.checkpoint_blobs (
    thread_id     text  COLLATE "C" NOT NULL,
    tenant        text  COLLATE "C" NOT NULL,
    checkpoint_ns text  COLLATE "C" NOT NULL,
    digest        bytea NOT NULL,
    log           text  COLLATE "C" NOT NULL,
    recipe        bytea COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (thread_id, tenant, checkpoint_ns, digest)
);

COMMENT ON TABLE  @extschema@.checkpoint_blobs IS 'Values above checkpointer.inline_limit, each once per thread and namespace, as recipes over a log';
COMMENT ON COLUMN @extschema@.checkpoint_blobs.digest IS 'The value''s blake3 checksum; checked whenever it is read';
COMMENT ON COLUMN @extschema@.checkpoint_blobs.log IS 'The log that the recipe takes stretches of: that of a channel, or the empty one of pending writes';
COMMENT ON COLUMN @extschema@.checkpoint_blobs.recipe IS 'Which stretches of the log make up the value; read it with ckpt_channel or ckpt_state';

CREATE TABLE @extschema@.checkpoint_segments (
    thread_id     text   COLLATE "C" NOT NULL,
    tenant        text   COLLATE "C" NOT NULL,
    checkpoint_ns text   COLLATE "C" NOT NULL,
    log           text   COLLATE "C" NOT NULL,
    start         bigint NOT NULL,
    len           integer NOT NULL,
    data          bytea  COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (thread_id, tenant, checkpoint_ns, log, start)
);

COMMENT ON TABLE  @extschema@.checkpoint_segments IS 'The bytes of large values: a log per channel, to which each value adds only what is new';
COMMENT ON COLUMN @extschema@.checkpoint_segments.start IS 'Offset of the first byte in the log';
COMMENT ON COLUMN @extschema@.checkpoint_segments.len IS 'How many bytes of the log it has';
COMMENT ON COLUMN @extschema@.checkpoint_segments.data IS 'The bytes; packed by zstd where these are fewer than len';

CREATE TABLE @extschema@.checkpoint_writes (
    thread_id     text        COLLATE "C" NOT NULL,
    tenant        text        COLLATE "C" NOT NULL,
    checkpoint_ns text        COLLATE "C" NOT NULL,
    checkpoint_id text        COLLATE "C" NOT NULL,
    task_id       text        COLLATE "C" NOT NULL,
    epoch         bigint      NOT NULL,
    idx           integer     NOT NULL,
    task_path     text        COLLATE "C" NOT NULL,
    channel       text        COLLATE "C" NOT NULL,
    value_type    text        COLLATE "C" NOT NULL,
    value         bytea       COMPRESSION lz4,
    digest        bytea,
    created_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (thread_id, tenant, checkpoint_ns, checkpoint_id, task_id, epoch, idx)
);

COMMENT ON TABLE  @extschema@.checkpoint_writes IS 'What tasks produced, logged against the checkpoint their step started from, until it is folded';
COMMENT ON COLUMN @extschema@.checkpoint_writes.epoch IS 'The head''s revision when the task''s batch was begun: a child of the checkpoint sees the batches between its elder sibling and itself. Negative: queued sends that its parent had for it when that was deleted';
COMMENT ON COLUMN @extschema@.checkpoint_writes.idx IS '0, 1, … for ordinary writes; __error__ -1, __scheduled__ -2, __interrupt__ -3, __resume__ -4';
COMMENT ON COLUMN @extschema@.checkpoint_writes.value IS 'The value; NULL where it is a large one';
COMMENT ON COLUMN @extschema@.checkpoint_writes.digest IS 'The key of a large value in checkpoint_blobs';
COMMENT ON COLUMN @extschema@.checkpoint_writes.task_path IS 'Writes are folded in the order (task_path, task_id, idx)';
COMMENT ON COLUMN @extschema@.checkpoint_writes.value_type IS 'How to read the value: json, or mark for the finish mark of a task without writes, or the type tag of a framework''s serializer';

CREATE TABLE @extschema@.checkpoint_logs (
    thread_id     text        COLLATE "C" NOT NULL,
    tenant        text        COLLATE "C" NOT NULL,
    last_seq      bigint      NOT NULL,
    message_count bigint      NOT NULL,
    edits         bigint      NOT NULL DEFAULT 0,
    lease_seq     bigint,
    lease_until   timestamptz,
    copied_from   text[]      COLLATE "C",
    created_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (thread_id, tenant)
) WITH (fillfactor = 70);

COMMENT ON TABLE  @extschema@.checkpoint_logs IS 'One row per message log: its counter, and the lock of its writers';
COMMENT ON COLUMN @extschema@.checkpoint_logs.created_at IS 'When the log was begun: tells it from one that was deleted';
COMMENT ON COLUMN @extschema@.checkpoint_logs.last_seq IS 'The last seq given out; never goes back';
COMMENT ON COLUMN @extschema@.checkpoint_logs.message_count IS 'How many messages it has';
COMMENT ON COLUMN @extschema@.checkpoint_logs.edits IS 'Counts the edits and rewinds of messages that a summary in the making covers';
COMMENT ON COLUMN @extschema@.checkpoint_logs.lease_seq IS 'The last message that the summary in the making covers';
COMMENT ON COLUMN @extschema@.checkpoint_logs.lease_until IS 'Until when nobody else gets the job of making it; NULL when it was made, or its messages changed';

COMMENT ON COLUMN @extschema@.checkpoint_logs.copied_from IS 'The threads that it was copied from: ids of its older messages were made with their names';

CREATE TABLE @extschema@.checkpoint_messages (
    thread_id      text        COLLATE "C" NOT NULL,
    tenant         text        COLLATE "C" NOT NULL,
    seq            bigint      NOT NULL,
    msg_id         text        COLLATE "C" NOT NULL,
    role           text        COLLATE "C" NOT NULL,
    opens_exchange boolean     NOT NULL,
    message_count  bigint      NOT NULL,
    tokens         integer     NOT NULL,
    turn           text        COLLATE "C" NOT NULL,
    message        json        COMPRESSION lz4 NOT NULL,
    rules          bigint      NOT NULL,
    clean          json        COMPRESSION lz4,
    clean_tokens   integer,
    created_at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (thread_id, tenant, seq)
);

-- The condition is as above.
CREATE UNIQUE INDEX checkpoint_messages_by_id ON @extschema@.checkpoint_messages (thread_id, tenant, msg_id) WHERE msg_id > '';

COMMENT ON TABLE  @extschema@.checkpoint_messages IS 'The message log of a thread: what the model sees';
COMMENT ON COLUMN @extschema@.checkpoint_messages.seq IS 'Order in the thread, from 1, without gaps but for rewinds';
COMMENT ON COLUMN @extschema@.checkpoint_messages.opens_exchange IS 'Whether it is a user message that opens an exchange';
COMMENT ON COLUMN @extschema@.checkpoint_messages.message_count IS 'How many messages the log has up to this one';
COMMENT ON COLUMN @extschema@.checkpoint_messages.tokens IS 'How many tokens (o200k_base) a model reads in it, markup and all';
COMMENT ON COLUMN @extschema@.checkpoint_messages.turn IS 'The turn (request id) it was appended with; empty if none';
COMMENT ON COLUMN @extschema@.checkpoint_messages.message IS 'The message as given';
COMMENT ON COLUMN @extschema@.checkpoint_messages.rules IS 'Which rules of checkpoint_markup it was cleaned by when it was appended: a hash of them';
COMMENT ON COLUMN @extschema@.checkpoint_messages.clean IS 'The message without markup by those rules; NULL where it has none';
COMMENT ON COLUMN @extschema@.checkpoint_messages.clean_tokens IS 'How many tokens a model reads in that';

CREATE TABLE @extschema@.checkpoint_summaries (
    thread_id     text        COLLATE "C" NOT NULL,
    tenant        text        COLLATE "C" NOT NULL,
    seq           bigint      NOT NULL,
    message_count bigint      NOT NULL,
    summary       text        COMPRESSION lz4 COLLATE "C" NOT NULL,
    expires_at    timestamptz,
    created_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (thread_id, tenant, seq)
);

COMMENT ON TABLE  @extschema@.checkpoint_summaries IS 'Summaries of the beginning of a message log, by the caller''s model; gone when a message that they cover changes';
COMMENT ON COLUMN @extschema@.checkpoint_summaries.seq IS 'The last message that it covers';
COMMENT ON COLUMN @extschema@.checkpoint_summaries.message_count IS 'How many messages it covers';
COMMENT ON COLUMN @extschema@.checkpoint_summaries.expires_at IS 'When it counts no more; NULL for never';

CREATE TABLE @extschema@.checkpoint_graphs (
    tenant   text COLLATE "C" NOT NULL,
    graph    text COLLATE "C" NOT NULL,
    channels json COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (tenant, graph)
);

COMMENT ON TABLE  @extschema@.checkpoint_graphs IS 'Shapes of agents: per channel its reducer, and whether it is stored';
COMMENT ON COLUMN @extschema@.checkpoint_graphs.channels IS '{"channel": {"reducer": "append", "persist": false}}, as ckpt_define_graph was given it';

CREATE TABLE @extschema@.checkpoint_threads (
    thread_id     text        COLLATE "C" NOT NULL,
    tenant        text        COLLATE "C" NOT NULL,
    graph         text        COLLATE "C",
    blocked_until timestamptz,
    PRIMARY KEY (thread_id, tenant)
);

-- Whether any thread is bound to a graph, and which blocks have expired.
CREATE INDEX checkpoint_threads_by_graph ON @extschema@.checkpoint_threads (tenant, graph) WHERE graph IS NOT NULL;
CREATE INDEX checkpoint_threads_blocked ON @extschema@.checkpoint_threads (blocked_until) WHERE blocked_until IS NOT NULL;

COMMENT ON TABLE  @extschema@.checkpoint_threads IS 'What is set for a thread as a whole';
COMMENT ON COLUMN @extschema@.checkpoint_threads.graph IS 'The graph that ckpt_bind bound it to';
COMMENT ON COLUMN @extschema@.checkpoint_threads.blocked_until IS 'It was deleted, and until then nothing can be written to it';

CREATE TABLE @extschema@.checkpoint_grants (
    role_name    text    PRIMARY KEY,
    level        text    NOT NULL CHECK (level = ANY (ARRAY['read', 'write'])),
    schema_usage boolean NOT NULL
);

COMMENT ON TABLE @extschema@.checkpoint_grants IS 'What ckpt_grant gave to whom, so that an update can give it for new tables and functions too';

COMMENT ON COLUMN @extschema@.checkpoint_grants.schema_usage IS 'Whether ckpt_grant had to give USAGE on the schema too';

-- pg_dump leaves out the rows of an extension's tables unless it is told to take them.
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_heads', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoints', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_blobs', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_segments', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_writes', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_logs', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_messages', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_summaries', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_graphs', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_threads', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_grants', '');

REVOKE ALL ON
    @extschema@.checkpoint_heads, @extschema@.checkpoints, @extschema@.checkpoint_blobs,
    @extschema@.checkpoint_segments, @extschema@.checkpoint_writes, @extschema@.checkpoint_logs, @extschema@.checkpoint_messages,
    @extschema@.checkpoint_summaries, @extschema@.checkpoint_graphs, @extschema@.checkpoint_threads, @extschema@.checkpoint_grants
FROM PUBLIC;
