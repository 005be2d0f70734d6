//! `ckpt_strip`, and the rules of `checkpoint_markup` for whoever reads messages.

use crate::args;
use crate::error::{Error, Result};
use crate::model::markup::{self, Cleaner, Rule};
use crate::spi::{Db, Statement};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

static RULES: Statement = Statement::new(
    "SELECT m.kind, m.pattern, m.keep, m.replacement FROM @s.checkpoint_markup m WHERE m.enabled ORDER BY m.ordinal, m.name",
    &[],
);

// In any order.
static ENABLED: Statement = Statement::new(
    "SELECT m.ordinal, m.name, m.kind, m.pattern, m.keep, m.replacement FROM @s.checkpoint_markup m WHERE m.enabled",
    &[],
);

/// The rules that are in force.
#[derive(Default)]
pub struct Rules {
    pub cleaner: Cleaner,
    /// Tells them, and the way in which they are applied, from others.
    pub fingerprint: i64,
}

thread_local! {
    /// The rules that this session used last: a regular expression takes longer to compile than to use.
    static LAST: RefCell<Rc<Rules>> = RefCell::default();
}

/// The rules as the calling query sees them.
pub fn rules(db: &Db) -> Result<Rc<Rules>> {
    let mut fingerprint = 0_i64;
    db.each(&ENABLED, &[], |row| {
        let ordinal = row.must(1)?;
        let [name, kind, pattern, keep, replacement] = row.texts(2)?;
        fingerprint = fingerprint.wrapping_add(markup::fingerprint(ordinal, [name, kind, pattern, keep, replacement]));
        Ok(())
    })?;
    let last = LAST.with_borrow(Rc::clone);
    if last.fingerprint == fingerprint {
        return Ok(last);
    }
    let rules = db.read(&RULES, &[], |row| {
        Ok(Rule { kind: row.must(1)?, pattern: row.must(2)?, keep: row.must(3)?, replacement: row.get(4)? })
    })?;
    // Rules are checked when they are added, so these can fail only where a check was taken away.
    let cleaner = Cleaner::new(&rules).map_err(|error| bad_rule(error.column, &error.problem))?;
    let rules = Rc::new(Rules { cleaner, fingerprint });
    LAST.set(Rc::clone(&rules));
    Ok(rules)
}

fn bad_rule(column: &str, problem: &str) -> Error {
    Error::invalid(format!("{column} of a markup rule {problem}"))
        .detail("A rule says what to look for (kind and pattern) and what to keep of it (keep and replacement).")
        .hint("kind is 'tag' (pattern: the tag's name), 'pattern' (a regular expression in RE2 syntax) or 'data' (a media type such as image/); keep is 'nothing', 'text' or 'replacement'.")
}

/// The text without what the rules of `checkpoint_markup` leave out. Code, fenced or between backticks, is not touched.
///
/// Takes time linear in the text. Errors: 22004.
#[pg_extern(stable, parallel_safe)]
fn ckpt_strip(fcinfo: pg_sys::FunctionCallInfo, content: Option<&str>) -> std::result::Result<String, ErrorReport> {
    let content = args::required("content", content)?;
    let rules = rules(&Db::of_call(fcinfo)?)?;
    Ok(rules.cleaner.clean(content).into_owned())
}

/// True for a rule that can be used; the check of the table `checkpoint_markup`.
///
/// Errors: 22004; 22023 for a rule that cannot.
#[pg_extern(immutable, parallel_safe)]
fn ckpt_check_markup(
    kind: Option<&str>,
    pattern: Option<&str>,
    keep: Option<&str>,
    replacement: Option<&str>,
) -> std::result::Result<bool, ErrorReport> {
    let rule = Rule {
        kind: args::required("kind", kind)?.to_owned(),
        pattern: args::required("pattern", pattern)?.to_owned(),
        keep: args::required("keep", keep)?.to_owned(),
        replacement: replacement.map(str::to_owned),
    };
    match Cleaner::new([&rule]) {
        Ok(_) => Ok(true),
        Err(error) => Err(bad_rule(error.column, &error.problem).into()),
    }
}
