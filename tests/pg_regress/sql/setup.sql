-- Runs first, in the database that all of these tests share.
CREATE EXTENSION checkpointer;

-- Runs a statement and shows how it was refused; of one that was not, that.
CREATE FUNCTION refused(statement text, OUT code text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    code := 'none';
    message := 'was not refused: ' || left(statement, 80);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END
$$;
