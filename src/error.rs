//! Every error of the extension: its SQLSTATE, message, detail and hint.
//!
//! | SQLSTATE | condition | when |
//! |---|---|---|
//! | 22004 | null value not allowed | an argument is NULL where that means nothing |
//! | 22023 | invalid parameter value | an argument that cannot be taken |
//! | P0002 | no data found | a thread, checkpoint or graph that is required does not exist |
//! | 23505 | unique violation | the same key with different content |
//! | 40001 | serialization failure | another process was first: read again and retry |
//! | 54000 | program limit exceeded | a value or a result over a size limit |
//! | 55000 | object not in prerequisite state | a fold before its tasks have finished, writes on a folded checkpoint or to a thread that was deleted and is blocked, a copy onto a thread that is not empty |
//! | 25006 | read only transaction | a writing function on a standby |
//! | 42704 | undefined object | ckpt_grant and ckpt_revoke for a role that does not exist |
//! | XX001 | data corrupted | a stored value does not match its checksum |
//!
//! Postgres adds its own, 42501 for missing privileges and 40001 under REPEATABLE READ and SERIALIZABLE among them.

use crate::json::JsonError;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgSqlErrorCode, function_name};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone)]
pub struct Error {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl Error {
    fn new(code: PgSqlErrorCode, message: String) -> Self {
        Error { code, message, detail: None, hint: None }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn null_argument(argument: &str) -> Self {
        let message = format!("{argument} must not be NULL");
        Error::new(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, message)
            .detail("NULL has no meaning here.")
            .hint(format!("Pass a value for {argument}, or leave the argument out if it has a default."))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message.into())
    }

    /// JSON that cannot be kept, with the path of the place in `text`.
    pub fn json(argument: &str, text: &str, error: &JsonError) -> Self {
        let path = crate::json::path_at(text, error.offset);
        Error::json_at(argument, &path, error)
            .detail(format!("Found at byte {}. Nothing was stored.", error.offset + 1))
    }

    pub fn json_at(argument: &str, path: &str, error: &JsonError) -> Self {
        use crate::json::Problem;
        let hint = match error.problem {
            Problem::Malformed => "Pass well-formed JSON.",
            Problem::LoneSurrogate => {
                "Replace or escape the character before it is sent: a surrogate stands only in a pair."
            }
            Problem::DuplicateKey(_) => "Give each key once.",
            Problem::ExponentTooLong => "Send such a number as a string.",
        };
        Error::invalid(format!("{argument} cannot be kept: at {path}, {}", error.problem)).hint(hint)
    }

    pub fn no_thread(thread_id: &str, checkpoint_ns: &str) -> Self {
        let place = namespace_suffix(checkpoint_ns);
        let message = format!("thread \"{thread_id}\"{place} has no checkpoint");
        Error::new(PgSqlErrorCode::ERRCODE_NO_DATA_FOUND, message)
            .detail("Nothing was stored under this thread id, tenant and namespace, or it was deleted.")
            .hint("SELECT DISTINCT thread_id, checkpoint_ns FROM ckpt_list() shows what there is.")
    }

    pub fn no_thread_at_all(thread_id: &str) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_NO_DATA_FOUND, format!("there is no thread \"{thread_id}\""))
            .detail("It has neither checkpoints nor messages under this tenant.")
            .hint("SELECT DISTINCT thread_id FROM ckpt_list() shows the threads with checkpoints.")
    }

    pub fn no_checkpoint(thread_id: &str, checkpoint_ns: &str, checkpoint_id: &str) -> Self {
        let place = namespace_suffix(checkpoint_ns);
        let message = format!("thread \"{thread_id}\"{place} has no checkpoint \"{checkpoint_id}\"");
        Error::new(PgSqlErrorCode::ERRCODE_NO_DATA_FOUND, message)
            .detail("A checkpoint is found by thread, tenant, namespace and id together.")
            .hint(format!(
                "SELECT checkpoint_id FROM ckpt_list('{}') shows what there is.",
                thread_id.replace('\'', "''")
            ))
    }

    pub fn no_log(thread_id: &str) -> Self {
        let message = format!("thread \"{thread_id}\" has no messages");
        Error::new(PgSqlErrorCode::ERRCODE_NO_DATA_FOUND, message)
            .detail("Nothing was appended under this thread id and tenant, or it was deleted.")
            .hint("ckpt_append begins a log.")
    }

    pub fn no_role(role: &str) -> Self {
        let quoted = crate::spi::quote_identifier(role);
        Error::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, format!("role \"{role}\" does not exist"))
            .detail("Nothing was granted or revoked.")
            .hint(format!("CREATE ROLE {quoted} LOGIN; or check the spelling: names are case-sensitive here."))
    }

    pub fn standby() -> Self {
        let message = "cannot write on a standby".to_owned();
        Error::new(PgSqlErrorCode::ERRCODE_READ_ONLY_SQL_TRANSACTION, message)
            .detail("This server is in recovery.")
            .hint("Connect to the primary. Every reading function works here.")
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION, message.into())
    }

    pub fn lost_race(message: impl Into<String>) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE, message.into())
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message.into())
    }

    /// The thread was deleted by another session while this call was on its way.
    pub fn deleted_meanwhile(thread_id: &str) -> Self {
        Error::lost_race(format!("thread \"{thread_id}\" was deleted meanwhile"))
            .detail("Nothing was stored.")
            .hint("Retry, if the thread is to begin anew.")
    }

    pub fn no_graph(graph: &str) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_NO_DATA_FOUND, format!("there is no graph \"{graph}\""))
            .detail("Nothing was bound.")
            .hint("Declare it first: ckpt_define_graph(graph, channels).")
    }

    pub fn wrong_state(message: impl Into<String>) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message.into())
    }

    /// A stored value that is missing or does not match its checksum.
    pub fn damaged(channel: &str, checkpoint_id: &str, thread_id: &str) -> Error {
        Error::corrupted(format!(
            "channel \"{channel}\" of checkpoint \"{checkpoint_id}\" of thread \"{thread_id}\" is damaged"
        ))
        .detail("Its stored value is missing or does not match its checksum.")
    }

    pub fn corrupted(message: impl Into<String>) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_DATA_CORRUPTED, message.into())
            .hint("Restore this thread from a backup, and check the storage below the database.")
    }
}

/// A message names the value, which may have megabytes; the server's log need not.
fn shortened(mut message: String) -> String {
    const MOST: usize = 1_000;
    if let Some((end, _)) = message.char_indices().nth(MOST) {
        message.truncate(end);
        message.push('…');
    }
    message
}

fn namespace_suffix(checkpoint_ns: &str) -> String {
    match checkpoint_ns {
        "" => String::new(),
        ns => format!(", namespace \"{ns}\","),
    }
}

/// A mistake in the extension's own use of SPI; nothing a caller does leads here.
impl From<pgrx::spi::Error> for Error {
    fn from(error: pgrx::spi::Error) -> Self {
        Error::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, format!("unexpected answer from SPI: {error}"))
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> Self {
        let mut report = ErrorReport::new(error.code, shortened(error.message), function_name!());
        if let Some(detail) = error.detail {
            report = report.set_detail(shortened(detail));
        }
        if let Some(hint) = error.hint {
            report = report.set_hint(hint);
        }
        report
    }
}
