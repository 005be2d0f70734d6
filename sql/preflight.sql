-- Refuses what cannot work before anything is made.
DO $preflight$
DECLARE
    taken text;
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'checkpointer needs a database whose encoding is UTF8, and this one is %', pg_catalog.getdatabaseencoding()
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'JSON is Unicode text; another encoding could not hold all of it.',
                  HINT = 'Create a database WITH ENCODING ''UTF8'' TEMPLATE template0 and install the extension there.';
    END IF;

    SELECT c.relname INTO taken
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = '@extschema@'::pg_catalog.regnamespace
      AND c.relname = ANY (ARRAY['checkpoint_heads', 'checkpoints', 'checkpoint_blobs', 'checkpoint_segments', 'checkpoint_writes',
                                 'checkpoint_logs', 'checkpoint_messages', 'checkpoint_summaries', 'checkpoint_markup',
                                 'checkpoint_graphs', 'checkpoint_threads',
                                 'checkpoint_grants'])
    ORDER BY c.relname
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'schema % already has a table named "%"', '@extschema@'::pg_catalog.regnamespace, taken
            USING ERRCODE = 'duplicate_table',
                  DETAIL = 'It belongs to another checkpointer, for example that of langgraph-checkpoint-postgres. Nothing was changed.',
                  HINT = 'Install into a schema of its own: CREATE SCHEMA agent_memory; CREATE EXTENSION checkpointer SCHEMA agent_memory;';
    END IF;
END
$preflight$;
