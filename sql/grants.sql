-- Who may do what. Nothing is open to PUBLIC. The functions run with their caller's rights, so a role needs the tables too:
-- ckpt_grant gives both. Which functions only read is told by their volatility, which is true of each (tests/pg_regress/sql/labels.sql).

CREATE FUNCTION @extschema@.ckpt_grant(role text, level text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    granted record;
BEGIN
    PERFORM @extschema@.checkpoint_check_role(role);
    IF level IS NULL THEN
        RAISE EXCEPTION 'level must not be NULL' USING ERRCODE = 'null_value_not_allowed', DETAIL = 'NULL has no meaning here.', HINT = 'Pass ''read'' or ''write''.';
    ELSIF level <> ALL (ARRAY['read', 'write']) THEN
        RAISE EXCEPTION 'level cannot be "%"', level USING ERRCODE = 'invalid_parameter_value', DETAIL = 'There is no such level.', HINT = 'Pass ''read'' or ''write''.';
    END IF;
    PERFORM @extschema@.ckpt_revoke(role);
    INSERT INTO @extschema@.checkpoint_grants (role_name, level) VALUES (ckpt_grant.role, ckpt_grant.level);
    EXECUTE format('GRANT USAGE ON SCHEMA @extschema@ TO %I', role);
    FOR granted IN SELECT * FROM @extschema@.checkpoint_grantable(level) LOOP
        EXECUTE format('GRANT %s ON %s TO %I', granted.privileges, granted.object, role);
    END LOOP;
END
$function$;

CREATE FUNCTION @extschema@.ckpt_revoke(role text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    granted record;
BEGIN
    PERFORM @extschema@.checkpoint_check_role(role);
    DELETE FROM @extschema@.checkpoint_grants g WHERE g.role_name = ckpt_revoke.role;
    -- USAGE on the schema stays: the schema may hold more than this extension, and the grant may be another's.
    FOR granted IN SELECT * FROM @extschema@.checkpoint_grantable('write') LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', granted.object, role);
    END LOOP;
END
$function$;

CREATE FUNCTION @extschema@.checkpoint_check_role(role text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'role must not be NULL' USING ERRCODE = 'null_value_not_allowed', DETAIL = 'NULL has no meaning here.', HINT = 'Pass the name of a role.';
    ELSIF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = role) THEN
        RAISE EXCEPTION 'role "%" does not exist', role
            USING ERRCODE = 'undefined_object', DETAIL = 'Nothing was granted or revoked.', HINT = format('CREATE ROLE %I LOGIN; or check the spelling: names are case-sensitive here.', role);
    END IF;
END
$function$;

-- What a level is made of: the extension's tables and functions with the privileges on each.
CREATE FUNCTION @extschema@.checkpoint_grantable(level text, OUT object text, OUT privileges text) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
    WITH member AS (
        SELECT d.classid, d.objid
        FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'checkpointer'
    )
    SELECT 'TABLE ' || format('%I.%I', n.nspname, c.relname),
           CASE level WHEN 'read' THEN 'SELECT' ELSE 'SELECT, INSERT, UPDATE, DELETE' END
    FROM member m
    JOIN pg_class c ON m.classid = 'pg_class'::regclass AND m.objid = c.oid AND c.relkind = 'r'
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname <> 'checkpoint_grants'
    UNION ALL
    SELECT 'FUNCTION ' || p.oid::regprocedure, 'EXECUTE'
    FROM member m
    JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
    WHERE p.proname !~ '^(ckpt_grant|ckpt_revoke|checkpoint_)' AND (level = 'write' OR p.provolatile <> 'v')
$function$;
