//! The extension's settings.

use crate::error::{Error, Result};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys;
use std::ffi::CString;

/// The tenant whose rows a session reads and writes; part of every key.
pub static TENANT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// Channel values up to this many bytes stand in the checkpoint's own row, which is written with every checkpoint; a larger
/// one is stored once and costs an index entry, about 450 bytes of WAL and 10 µs. So the limit is where repeating the value
/// a few times costs about what a row of its own does.
pub static INLINE_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(1024);

/// The largest JSON argument, in kB: checked before it is read, so that one request cannot take the memory of a backend.
pub static MAX_JSON_SIZE: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);

/// What time it is for summaries, their leases, and threads that are blocked: the server's clock where this is empty. For tests, which would have to wait.
pub static CLOCK: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

pub fn init() {
    GucRegistry::define_string_guc(
        c"checkpointer.tenant",
        c"The tenant whose threads the session sees.",
        c"At most 63 bytes; empty until tenants are used.",
        &TENANT,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"checkpointer.inline_limit",
        c"Channel values up to this size are kept in the checkpoint's row.",
        c"Larger ones go to checkpoint_blobs, each once per thread and namespace.",
        &INLINE_LIMIT,
        0,
        8192,
        GucContext::Userset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_int_guc(
        c"checkpointer.max_json_size",
        c"The largest JSON argument that is taken.",
        c"A larger one is refused with SQLSTATE 54000 before it is read.",
        &MAX_JSON_SIZE,
        1,
        900 * 1024,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_string_guc(
        c"checkpointer.clock",
        c"The time for summaries, their leases and blocked threads, for tests.",
        c"Empty for the server's clock.",
        &CLOCK,
        GucContext::Suset,
        GucFlags::default(),
    );
    // SAFETY: called once from _PG_init, with a C string that lives for ever.
    unsafe { pgrx::pg_sys::MarkGUCPrefixReserved(c"checkpointer".as_ptr()) };
}

pub fn tenant() -> String {
    TENANT.get().and_then(|tenant| tenant.into_string().ok()).unwrap_or_default()
}

/// The time at which the calling statement began, unless `checkpointer.clock` sets another.
pub fn now() -> Result<TimestampWithTimeZone> {
    let set = CLOCK.get().and_then(|clock| clock.into_string().ok()).filter(|clock| !clock.is_empty());
    let bad = || {
        Error::invalid("checkpointer.clock is no time")
            .detail("It is a setting for tests.")
            .hint("Set it to a timestamp with time zone, or to nothing for the server's clock.")
    };
    match set {
        Some(clock) => clock.parse().map_err(|_| bad()),
        // SAFETY: reads a variable of the session.
        None => {
            TimestampWithTimeZone::try_from(unsafe { pg_sys::GetCurrentStatementStartTimestamp() }).map_err(|_| bad())
        }
    }
}

pub fn inline_limit() -> usize {
    INLINE_LIMIT.get().max(0) as usize
}

/// In bytes.
pub fn max_json_size() -> usize {
    MAX_JSON_SIZE.get().max(0) as usize * 1024
}
