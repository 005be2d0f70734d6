//! `ckpt_tokens`: how many tokens a text is.

use crate::args;
use crate::error::Error;
use crate::model::tokens::Encoding;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Unpacks the vocabularies, which takes a new session some time at its first use; the sessions of a server that loads the library at its
/// start get them with the process.
pub fn warm_up() {
    // SAFETY: reads a variable of the process.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        Encoding::ALL.iter().for_each(|(_, encoding)| encoding.warm_up());
    }
}

/// How many tokens a model with this encoding reads in a text, exactly. Names of special tokens count as text.
///
/// Errors: 22004; 22023 an encoding that is not known.
#[pg_extern(immutable, parallel_safe)]
fn ckpt_tokens(
    content: Option<&str>,
    encoding: default!(Option<&str>, "'o200k_base'"),
) -> std::result::Result<i32, ErrorReport> {
    let content = args::required("content", content)?;
    let encoding = args::required("encoding", encoding)?;
    let known = Encoding::by_name(encoding).ok_or_else(|| {
        let names: Vec<&str> = Encoding::ALL.iter().map(|(name, _)| *name).collect();
        Error::invalid(format!("encoding \"{encoding}\" is not known"))
            .detail(format!("Known are: {}.", names.join(", ")))
            .hint("o200k_base is that of GPT-4o and later models, cl100k_base that of GPT-4 and GPT-3.5.")
    })?;
    Ok(known.count(content) as i32)
}
