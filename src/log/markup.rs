//! `ckpt_strip`, and the rules of `checkpoint_markup` for whoever reads messages.

use crate::args;
use crate::error::{Error, Result};
use crate::model::markup::{Cleaner, Rule};
use crate::spi::{Db, Statement};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

static RULES: Statement = Statement::new(
    "SELECT m.kind, m.pattern, m.keep, m.replacement FROM @s.checkpoint_markup m WHERE m.enabled ORDER BY m.ordinal, m.name",
    &[],
);

thread_local! {
    /// The rules that this session used last, compiled: a regular expression takes longer to compile than to use.
    static CLEANER: RefCell<(Vec<Rule>, Rc<Cleaner>)> = RefCell::new((Vec::new(), Rc::new(Cleaner::default())));
}

/// The rules as the calling query sees them.
pub fn cleaner(db: &Db) -> Result<Rc<Cleaner>> {
    let rules = db.read(&RULES, &[], |row| {
        Ok(Rule { kind: row.must(1)?, pattern: row.must(2)?, keep: row.must(3)?, replacement: row.get(4)? })
    })?;
    CLEANER.with_borrow_mut(|(known, cleaner)| {
        if *known != rules {
            // Rules are checked when they are added, so these can fail only where a check was taken away.
            *cleaner = Rc::new(Cleaner::new(&rules).map_err(|error| bad_rule(error.column, &error.problem))?);
            *known = rules;
        }
        Ok(Rc::clone(cleaner))
    })
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
    let cleaner = cleaner(&Db::of_call(fcinfo)?)?;
    Ok(cleaner.clean(content).into_owned())
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
