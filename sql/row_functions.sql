-- Functions that put their rows into the tuplestore themselves (src/row_sink.rs), which Rust's row iterators cannot declare.

CREATE FUNCTION @extschema@.ckpt_get_typed(
    thread_id     text,
    checkpoint_ns text DEFAULT '',
    checkpoint_id text DEFAULT NULL
) RETURNS TABLE (
    kind                 text,
    thread_id            text,
    checkpoint_ns        text,
    checkpoint_id        text,
    parent_checkpoint_id text,
    checkpoint           json,
    metadata             json,
    created_at           timestamptz,
    task_id              text,
    task_path            text,
    idx                  integer,
    channel              text,
    version              json,
    value_type           text,
    value                bytea
)
LANGUAGE c STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ckpt_get_typed_wrapper';

CREATE FUNCTION @extschema@.ckpt_list_typed(
    thread_id     text    DEFAULT NULL,
    checkpoint_ns text    DEFAULT NULL,
    filter        jsonb   DEFAULT NULL,
    before        text    DEFAULT NULL,
    max_rows      integer DEFAULT NULL
) RETURNS TABLE (
    kind                 text,
    thread_id            text,
    checkpoint_ns        text,
    checkpoint_id        text,
    parent_checkpoint_id text,
    checkpoint           json,
    metadata             json,
    created_at           timestamptz,
    task_id              text,
    task_path            text,
    idx                  integer,
    channel              text,
    version              json,
    value_type           text,
    value                bytea
)
LANGUAGE c STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ckpt_list_typed_wrapper';

CREATE FUNCTION @extschema@.ckpt_window(
    thread_id  text,
    size       integer DEFAULT 60,
    max_tokens integer DEFAULT NULL,
    current    json    DEFAULT NULL,
    preamble   json    DEFAULT NULL,
    strip      boolean DEFAULT true,
    marker     boolean DEFAULT true
) RETURNS TABLE (
    ordinal integer,
    kind    text,
    role    text,
    content text,
    msg_id  text,
    seq     bigint,
    tokens  integer,
    message json
)
LANGUAGE c STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ckpt_window_wrapper';
