-- Comments, and nothing for PUBLIC.

COMMENT ON FUNCTION @extschema@.ckpt_put(text, json, json, text[], text, text, text, text) IS
    'Save a snapshot of a thread''s whole state; returns the checkpoint''s id';
COMMENT ON FUNCTION @extschema@.ckpt_latest(text, text) IS
    'The latest checkpoint: one row, small channel values inline, of large ones type and size';
COMMENT ON FUNCTION @extschema@.ckpt_channel(text, text, text, text) IS
    'The value of one channel, of the latest or a given checkpoint; NULL where there is no such channel';
COMMENT ON FUNCTION @extschema@.ckpt_state(text, text, text, text[]) IS
    'The whole state of the latest or a given checkpoint, or the named channels of it';
COMMENT ON FUNCTION @extschema@.ckpt_put_writes(text, text, text, json, text, text, text) IS
    'Log what a task produced, [["channel", value], ...]; returns how many writes were stored';
COMMENT ON FUNCTION @extschema@.ckpt_resume(text, text) IS
    'Where a restarted process goes on: finished, failed and waiting tasks, and those still to do';
COMMENT ON FUNCTION @extschema@.ckpt_apply_writes(text, text, text, text[], jsonb, text[], json) IS
    'Fold the pending writes of a checkpoint into a new one, once; returns its id';
COMMENT ON FUNCTION @extschema@.ckpt_history(text, text, text, integer) IS
    'The chain of parents of a checkpoint, newest first';
COMMENT ON FUNCTION @extschema@.ckpt_list(text, text, jsonb, text, integer) IS
    'Checkpoints across threads and namespaces, newest id first, filtered by metadata';
COMMENT ON FUNCTION @extschema@.ckpt_fork(text, text, text) IS
    'Another way from a checkpoint: a child with its state and next tasks, the latest from then on; returns its id';
COMMENT ON FUNCTION @extschema@.ckpt_copy_thread(text, text) IS
    'Copy a thread, its checkpoints, writes and messages, under another id; returns how many of these it has';
COMMENT ON FUNCTION @extschema@.ckpt_delete_thread(text, interval) IS
    'Delete a thread completely, and refuse writes to it for a while; returns how many checkpoints and messages it had';
COMMENT ON FUNCTION @extschema@.ckpt_delete_runs(text[]) IS
    'Delete the checkpoints of runs, by run_id in their metadata, keeping what others need; returns how many';
COMMENT ON FUNCTION @extschema@.ckpt_define_graph(text, jsonb) IS
    'Declare the channels of an agent: the reducer of each, and whether it is stored';
COMMENT ON FUNCTION @extschema@.ckpt_bind(text, text) IS
    'Bind a thread to a graph that ckpt_define_graph declared';
COMMENT ON FUNCTION @extschema@.ckpt_prune(text[], integer, interval) IS
    'Delete all but the newest checkpoints of each namespace of these threads, keeping what those need; returns how many';
COMMENT ON FUNCTION @extschema@.ckpt_put_typed(text, text, json, json, text[], text[], bytea[], json, text, text, text) IS
    'Save a framework''s checkpoint, its values as type tags and bytes; returns its id';
COMMENT ON FUNCTION @extschema@.ckpt_put_writes_typed(text, text, text, text[], text[], bytea[], text, text, text) IS
    'Log what a framework''s task produced, as type tags and bytes; returns how many writes were stored';
COMMENT ON FUNCTION @extschema@.ckpt_get_typed(text, text, text) IS
    'A checkpoint as rows: itself, its channels, its pending writes, with their bytes';
COMMENT ON FUNCTION @extschema@.ckpt_list_typed(text, text, jsonb, text, integer) IS
    'Checkpoints across threads and namespaces, newest id first, each as the rows of ckpt_get_typed';
COMMENT ON FUNCTION @extschema@.msg_id(text, text, text, text) IS
    'The deterministic id of a message with this text (docs/msg_id.md)';
COMMENT ON FUNCTION @extschema@.msg_id(text, text, json, text) IS
    'The deterministic id of a message with this structured content (docs/msg_id.md)';
COMMENT ON FUNCTION @extschema@.ckpt_append(text, json, text, text) IS
    'Append messages to a thread''s log, each once however often it is sent';
COMMENT ON FUNCTION @extschema@.ckpt_messages(text, bigint, bigint, integer) IS
    'The message log of a thread, in order';
COMMENT ON FUNCTION @extschema@.ckpt_rewind(text, bigint) IS
    'Remove the messages after a seq; returns how many';
COMMENT ON FUNCTION @extschema@.ckpt_window(text, integer, integer, json, json, boolean, boolean) IS
    'What the model should read: preamble, summary, the last whole exchanges, marker, final turn';
COMMENT ON FUNCTION @extschema@.ckpt_load(json, integer, integer, json, json, boolean, boolean) IS
    'The window as a message array, from a thread id, a history in one string, or a list of messages';
COMMENT ON FUNCTION @extschema@.ckpt_strip(text) IS
    'The text without what the rules of checkpoint_markup leave out';
COMMENT ON FUNCTION @extschema@.ckpt_check_markup(text, text, text, text) IS
    'Whether a markup rule can be used: true, or an error that says why not';
COMMENT ON FUNCTION @extschema@.ckpt_tokens(text, text) IS
    'How many tokens a text is in o200k_base or cl100k_base';
COMMENT ON FUNCTION @extschema@.ckpt_summary_due(text, integer, integer, interval) IS
    'Whether what lies before the window needs a summary: the job, for one caller at a time, or no row';
COMMENT ON FUNCTION @extschema@.ckpt_put_summary(text, bigint, text, interval, bigint) IS
    'Keep a summary of the first messages of a thread''s log';
COMMENT ON FUNCTION @extschema@.ckpt_grant(text, text) IS
    'Give a role ''read'' or ''write'' on the extension''s functions and tables';
COMMENT ON FUNCTION @extschema@.ckpt_revoke(text) IS
    'Take back what ckpt_grant gave a role';

DO $finalize$
DECLARE
    function record;
BEGIN
    FOR function IN
        SELECT p.oid::pg_catalog.regprocedure AS signature
        FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_extension e ON d.refobjid = e.oid
        JOIN pg_catalog.pg_proc p ON d.objid = p.oid
        WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.refclassid = 'pg_catalog.pg_extension'::regclass
          AND d.deptype = 'e' AND e.extname = 'checkpointer'
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', function.signature);
    END LOOP;
END
$finalize$;
