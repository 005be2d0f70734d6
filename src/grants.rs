//! `ckpt_grant` and `ckpt_revoke`: who may read and who may write.
//!
//! Nothing is open to PUBLIC, and the functions run with their caller's rights, so a role needs the tables too. Which
//! functions only read is told by their volatility, which is true of each.

use crate::args;
use crate::error::{Error, Result};
use crate::spi::{BOOL, Db, Statement, TEXT, param, quote_identifier};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

const LEVELS: [&str; 2] = ["read", "write"];

// GRANT on one object from two sessions at once fails inside Postgres; so one at a time.
static LOCK: Statement = Statement::new("LOCK TABLE @s.checkpoint_grants IN SHARE ROW EXCLUSIVE MODE", &[]);

static ROLE: Statement = Statement::new(
    "SELECT r.rolname::pg_catalog.text FROM pg_catalog.pg_roles r WHERE r.rolname @= $1::pg_catalog.name",
    &[TEXT],
);

// The extension's tables and functions, each with the privileges of a level on it. The rules of checkpoint_markup are for all
// sessions, so only the owner changes them.
static OBJECTS: Statement = Statement::new(
    "WITH member (classid, objid) AS (
         SELECT d.classid, d.objid
         FROM pg_catalog.pg_depend d
         JOIN pg_catalog.pg_extension e ON d.refobjid @= e.oid
         WHERE d.refclassid @= 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype @= 'e'
           AND e.extname @= 'checkpointer'
     )
     SELECT pg_catalog.format('TABLE %I.%I', n.nspname, c.relname),
            CASE WHEN $1 @= 'read' OR c.relname @= 'checkpoint_markup' THEN 'SELECT' ELSE 'SELECT, INSERT, UPDATE, DELETE' END
     FROM member m
     JOIN pg_catalog.pg_class c ON m.classid @= 'pg_catalog.pg_class'::pg_catalog.regclass AND m.objid @= c.oid
     JOIN pg_catalog.pg_namespace n ON n.oid @= c.relnamespace
     WHERE c.relkind @= 'r' AND c.relname @<> 'checkpoint_grants'
     UNION ALL
     SELECT pg_catalog.format('FUNCTION %I.%I(%s)', n.nspname, p.proname,
                              pg_catalog.pg_get_function_identity_arguments(p.oid)), 'EXECUTE'
     FROM member m
     JOIN pg_catalog.pg_proc p ON m.classid @= 'pg_catalog.pg_proc'::pg_catalog.regclass AND m.objid @= p.oid
     JOIN pg_catalog.pg_namespace n ON n.oid @= p.pronamespace
     WHERE p.proname @<> 'ckpt_grant' AND p.proname @<> 'ckpt_revoke' AND ($1 @= 'write' OR p.provolatile @<> 'v')",
    &[TEXT],
);

// A role that may use the schema already, as all may use "public", needs no grant for it.
static NEEDS_USAGE: Statement = Statement::new(
    "SELECT NOT pg_catalog.has_schema_privilege($1::pg_catalog.name, e.extnamespace, 'USAGE')
     FROM pg_catalog.pg_extension e WHERE e.extname @= 'checkpointer'",
    &[TEXT],
);

static RECORD: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_grants (role_name, level, schema_usage) VALUES ($1, $2, $3)",
    &[TEXT, TEXT, BOOL],
);

static FORGET: Statement =
    Statement::new("DELETE FROM @s.checkpoint_grants g WHERE g.role_name @= $1 RETURNING g.schema_usage", &[TEXT]);

/// Gives a role `read` or `write` on all functions and tables, in the place of what it had.
///
/// Errors: 22004, 22023; 42704 no such role; 42501 the caller does not own the extension's tables.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_grant(
    fcinfo: pg_sys::FunctionCallInfo,
    role: Option<&str>,
    level: Option<&str>,
) -> std::result::Result<(), ErrorReport> {
    let role = args::required("role", role)?;
    let level = args::required("level", level)?;
    if !LEVELS.contains(&level) {
        return Err(Error::invalid(format!("level cannot be \"{level}\""))
            .detail("There is no such level.")
            .hint("Pass 'read' or 'write'.")
            .into());
    }
    Ok(grant(&Db::of_call(fcinfo)?, role, level)?)
}

/// Takes back what `ckpt_grant` gave a role.
///
/// Errors: 22004; 42704 no such role; 42501 the caller does not own the extension's tables.
#[pg_extern(volatile, parallel_unsafe)]
fn ckpt_revoke(fcinfo: pg_sys::FunctionCallInfo, role: Option<&str>) -> std::result::Result<(), ErrorReport> {
    let role = args::required("role", role)?;
    Ok(revoke(&Db::of_call(fcinfo)?, role)?)
}

fn grant(db: &Db, role: &str, level: &str) -> Result<()> {
    revoke(db, role)?;
    let grantee = quote_identifier(role);
    let usage = db.write_one(&NEEDS_USAGE, &[param(role)], |row| row.must(1))?.unwrap_or(true);
    db.execute(&RECORD, &[param(role), param(level), param(usage)])?;
    if usage {
        db.define(&format!("GRANT USAGE ON SCHEMA {} TO {grantee}", db.quoted_schema()))?;
    }
    for (object, privileges) in objects(db, level)? {
        db.define(&format!("GRANT {privileges} ON {object} TO {grantee}"))?;
    }
    Ok(())
}

fn revoke(db: &Db, role: &str) -> Result<()> {
    db.execute(&LOCK, &[])?;
    if db.write_one(&ROLE, &[param(role)], |row| row.must::<String>(1))?.as_deref() != Some(role) {
        return Err(Error::no_role(role));
    }
    let grantee = quote_identifier(role);
    if db.write_one(&FORGET, &[param(role)], |row| row.must(1))?.unwrap_or(false) {
        db.define(&format!("REVOKE USAGE ON SCHEMA {} FROM {grantee}", db.quoted_schema()))?;
    }
    for (object, _) in objects(db, "write")? {
        db.define(&format!("REVOKE ALL ON {object} FROM {grantee}"))?;
    }
    Ok(())
}

fn objects(db: &Db, level: &str) -> Result<Vec<(String, String)>> {
    db.write(&OBJECTS, &[param(level)], |row| Ok((row.must(1)?, row.must(2)?)))
}
