//! The only file that talks to SPI.
//!
//! A [`Statement`] is a text with typed parameters. Its plan is made once per session and kept: planning is the larger part
//! of a small statement's cost (8.7 against 17 µs for one row's INSERT). Reading and writing go separate ways, because a
//! write takes a transaction id, which a hot standby and a READ ONLY transaction do not have.
//!
//! No name in a statement is left to the caller's `search_path`: `@s` stands for the extension's schema and `@=`, `@<` and so
//! on for an operator of `pg_catalog`; functions are written with `pg_catalog.` in front.

use crate::args;
use crate::error::{Error, Result};
use pgrx::datum::{DatumWithOid, TimestampWithTimeZone};
use pgrx::pg_sys::{self, Oid};
use pgrx::{FromDatum, IntoDatum, Spi, pg_guard, spi};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};

pub const TEXT: Oid = pg_sys::TEXTOID;
pub const TEXTS: Oid = pg_sys::TEXTARRAYOID;
pub const BYTES: Oid = pg_sys::BYTEAOID;
pub const BYTESES: Oid = pg_sys::BYTEAARRAYOID;
pub const INTS: Oid = pg_sys::INT4ARRAYOID;
pub const BIGINT: Oid = pg_sys::INT8OID;
pub const BIGINTS: Oid = pg_sys::INT8ARRAYOID;
pub const BOOL: Oid = pg_sys::BOOLOID;
pub const BOOLS: Oid = pg_sys::BOOLARRAYOID;
pub const INTERVAL: Oid = pg_sys::INTERVALOID;
pub const INT: Oid = pg_sys::INT4OID;
pub const TIMESTAMPTZ: Oid = pg_sys::TIMESTAMPTZOID;
pub const JSON: Oid = pg_sys::JSONOID;

/// SQL with its parameter types. Made as a `static`: its address is the key of its plan.
pub struct Statement {
    sql: &'static str,
    parameters: &'static [Oid],
    /// Whether the best plan depends on the parameters.
    depends: bool,
    /// Whether rows are to come in the order of an index.
    ordered: bool,
}

impl Statement {
    pub const fn new(sql: &'static str, parameters: &'static [Oid]) -> Self {
        Statement { sql, parameters, depends: false, ordered: false }
    }

    /// A statement that asks for an order that the right index has: no plan that sorts is as good, whatever the planner thinks.
    pub const fn ordered(sql: &'static str, parameters: &'static [Oid]) -> Self {
        Statement { sql, parameters, depends: false, ordered: true }
    }

    /// A statement whose best plan depends on its parameters: Postgres decides, as it does by default, whether to plan it anew.
    pub const fn depending(sql: &'static str, parameters: &'static [Oid]) -> Self {
        Statement { sql, parameters, depends: true, ordered: false }
    }
}

/// A parameter of a statement, of the type the statement declares.
pub fn param<'a, T: IntoDatum>(value: T) -> DatumWithOid<'a> {
    DatumWithOid::from(value)
}

/// JSON text as a parameter of type json. It was JSON when it came in, or was put together from such parts.
pub fn json_param<'a>(text: &str) -> DatumWithOid<'a> {
    // SAFETY: a json datum has the layout of a text datum.
    unsafe { DatumWithOid::new(text, pg_sys::JSONOID) }
}

/// The same, or NULL.
pub fn optional_json_param<'a>(text: Option<&str>) -> DatumWithOid<'a> {
    // SAFETY: as above.
    unsafe { DatumWithOid::new(text, pg_sys::JSONOID) }
}

/// A type that a column is read as, and that does not borrow from the row.
pub trait Owned: FromDatum + IntoDatum {}
impl Owned for String {}
impl Owned for Vec<u8> {}
impl Owned for Vec<String> {}
impl Owned for i32 {}
impl Owned for i64 {}
impl Owned for bool {}
impl Owned for TimestampWithTimeZone {}

/// One row of a result, where the executor has it: in a page of the table, as a rule. It lives while the row is looked at.
pub struct Row<'a>(&'a mut pg_sys::TupleTableSlot);

impl Row<'_> {
    /// The value of a column, counted from 1.
    pub fn get<T: Owned>(&mut self, column: usize) -> Result<Option<T>> {
        self.column(column)
    }

    /// The value of a column that is never NULL.
    pub fn must<T: Owned>(&mut self, column: usize) -> Result<T> {
        self.column(column)?.ok_or_else(unexpected_null)
    }

    /// The bytes of a column that is never NULL, not copied.
    pub fn bytes(&mut self, column: usize) -> Result<&[u8]> {
        self.column(column)?.ok_or_else(unexpected_null)
    }

    /// The same of a column that can be NULL.
    pub fn optional_bytes(&mut self, column: usize) -> Result<Option<&[u8]>> {
        self.column(column)
    }

    /// The text of a column that is never NULL, not copied.
    pub fn text(&mut self, column: usize) -> Result<&str> {
        self.column(column)?.ok_or_else(unexpected_null)
    }

    /// The texts of so many columns from one on, not copied.
    pub fn texts<const N: usize>(&mut self, first: usize) -> Result<[Option<&str>; N]> {
        let mut texts = [None; N];
        for (at, text) in texts.iter_mut().enumerate() {
            // SAFETY: what was made valid of the row stays where it is while more of it is: all of them live as long as the row.
            *text = self.column::<&str>(first + at)?.map(|text| unsafe { &*std::ptr::from_ref(text) });
        }
        Ok(texts)
    }

    /// A borrowing `T` must not outlive the row; the callers above see to it.
    fn column<T: FromDatum + IntoDatum>(&mut self, column: usize) -> Result<Option<T>> {
        let number = column as i32;
        // SAFETY: the executor lends a slot with a descriptor; its arrays have as many elements as it says are valid, and what is
        // asked for beyond those is made valid first. `try_from_datum` compares the type of the column with `T`.
        unsafe {
            if number > (*self.0.tts_tupleDescriptor).natts {
                return Err(spi::Error::InvalidPosition.into());
            }
            if i32::from(self.0.tts_nvalid) < number {
                pg_sys::slot_getsomeattrs_int(self.0, number);
            }
            let value = *self.0.tts_values.add(column - 1);
            let is_null = *self.0.tts_isnull.add(column - 1);
            let type_oid = pg_sys::SPI_gettypeid(self.0.tts_tupleDescriptor, number);
            Ok(T::try_from_datum(value, is_null, type_oid).map_err(spi::Error::from)?)
        }
    }
}

fn unexpected_null() -> Error {
    spi::Error::InvalidPosition.into()
}

/// The extension as one call sees it: the schema that the called function stands in, and the session's tenant.
pub struct Db {
    schema_oid: Oid,
    schema: String,
    pub tenant: String,
}

impl Db {
    pub fn of_call(fcinfo: pg_sys::FunctionCallInfo) -> Result<Db> {
        // SAFETY: Postgres passes the call information of the function it calls, whose catalog entry exists. Both look-ups go
        // to the system cache (60 ns).
        let (schema_oid, schema) = unsafe {
            let oid = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
            let name = pg_sys::get_namespace_name(oid);
            let name = if name.is_null() { c"pg_catalog" } else { CStr::from_ptr(name) };
            (oid, name.to_string_lossy().into_owned())
        };
        Ok(Db { schema_oid, schema, tenant: args::tenant()? })
    }

    /// Runs a reading statement: takes no transaction id.
    pub fn read<R>(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        mut each: impl FnMut(&mut Row<'_>) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut found = Vec::new();
        self.each(statement, args, |row| {
            found.push(each(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Runs a reading statement for what `each` does with its rows, which may borrow from them.
    pub fn each(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        mut each: impl FnMut(&mut Row<'_>) -> Result<()>,
    ) -> Result<()> {
        self.run(statement, args, Mode::Read, Some(&mut each)).map(drop)
    }

    /// The first row of a reading statement.
    pub fn read_one<R>(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        each: impl FnMut(&mut Row<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        Ok(self.read(statement, args, each)?.into_iter().next())
    }

    /// Runs a statement that writes or locks, or that must see what this call has written.
    pub fn write<R>(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        mut each: impl FnMut(&mut Row<'_>) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut found = Vec::new();
        let mut each = |row: &mut Row<'_>| {
            found.push(each(row)?);
            Ok(())
        };
        self.run(statement, args, Mode::Write, Some(&mut each))?;
        Ok(found)
    }

    /// The first row of a writing statement.
    pub fn write_one<R>(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        each: impl FnMut(&mut Row<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        Ok(self.write(statement, args, each)?.into_iter().next())
    }

    /// Runs a reading statement by what is committed now, also in a transaction whose snapshot is older.
    pub fn read_now<R>(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        mut each: impl FnMut(&mut Row<'_>) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut found = Vec::new();
        let mut each = |row: &mut Row<'_>| {
            found.push(each(row)?);
            Ok(())
        };
        // SAFETY: the snapshot is popped again; after an error the end of the transaction does that.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot()) };
        let run = self.run(statement, args, Mode::ReadNow, Some(&mut each));
        // SAFETY: as above.
        unsafe { pg_sys::PopActiveSnapshot() };
        run?;
        Ok(found)
    }

    /// Runs a writing statement and says how many rows it touched.
    pub fn execute(&self, statement: &'static Statement, args: &[DatumWithOid<'_>]) -> Result<u64> {
        self.run(statement, args, Mode::Write, None)
    }

    /// Runs a statement, shows its rows to `each` as the executor makes them, and says how many rows it touched. (SPI's own way
    /// with rows is to copy them all first, which for a value of a megabyte costs more than finding it.)
    fn run(
        &self,
        statement: &'static Statement,
        args: &[DatumWithOid<'_>],
        mode: Mode,
        each: Option<Each<'_>>,
    ) -> Result<u64> {
        if mode == Mode::Write {
            must_be_able_to_write()?;
        }
        Spi::connect(|_| {
            let plan = self.plan(statement)?;
            let mut receiver = each.map(Receiver::new);
            // SAFETY: the plan is kept; the parameters live in SPI's memory until it is closed; the receiver outlives the run.
            let status = unsafe {
                let options = pg_sys::SPIExecuteOptions {
                    params: parameters(args),
                    read_only: match mode {
                        Mode::Read => !has_transaction_id(),
                        Mode::ReadNow => true,
                        Mode::Write => false,
                    },
                    dest: receiver.as_mut().map_or(std::ptr::null_mut(), Receiver::as_dest),
                    ..Default::default()
                };
                let _planning = Planning::begin(statement.ordered);
                pg_sys::SPI_execute_plan_extended(plan, &raw const options)
            };
            if let Some(error) = receiver.and_then(|receiver| receiver.failed) {
                return Err(error);
            }
            Spi::check_status(status)?;
            // SAFETY: set by the call above.
            Ok(unsafe { pg_sys::SPI_processed })
        })
    }

    /// Runs a statement that has no parameters and no plan worth keeping, such as GRANT.
    pub fn define(&self, sql: &str) -> Result<()> {
        must_be_able_to_write()?;
        Spi::connect_mut(|client| client.update(sql, None, &[]).map(drop))?;
        Ok(())
    }

    pub fn quoted_schema(&self) -> String {
        quote_identifier(&self.schema)
    }

    fn plan(&self, statement: &'static Statement) -> Result<pg_sys::SPIPlanPtr> {
        let key = std::ptr::from_ref(statement) as usize;
        let kept = PLANS.with_borrow_mut(|plans| {
            if plans.schema_oid != self.schema_oid || plans.schema != self.schema {
                plans.forget();
                plans.schema_oid = self.schema_oid;
                plans.schema.clone_from(&self.schema);
            }
            plans.kept.get(&key).copied()
        });
        if let Some(plan) = kept {
            return Ok(plan);
        }
        let sql = CString::new(render(statement.sql, &self.schema))
            .map_err(|_| spi::Error::SpiError(spi::SpiErrorCodes::Argument))?;
        let mut types = statement.parameters.to_vec();
        // Made once: for an array parameter Postgres would plan each time anew, because it guesses many elements where there are
        // few.
        let options = if statement.depends { 0 } else { pg_sys::CURSOR_OPT_GENERIC_PLAN };
        // SAFETY: SPI is connected; the text and the types are read by the call. Kept, the plan lives as long as the session.
        let plan = unsafe {
            let plan = pg_sys::SPI_prepare_cursor(sql.as_ptr(), types.len() as i32, types.as_mut_ptr(), options as i32);
            if plan.is_null() {
                Spi::check_status(pg_sys::SPI_result)?;
            }
            pg_sys::SPI_keepplan(plan);
            plan
        };
        PLANS.with_borrow_mut(|plans| plans.kept.insert(key, plan));
        Ok(plan)
    }
}

/// Parameters for a plan.
unsafe fn parameters(args: &[DatumWithOid<'_>]) -> pg_sys::ParamListInfo {
    // SAFETY: the list is made with room for so many.
    unsafe {
        let list = pg_sys::makeParamList(args.len() as i32);
        let slots = (*list).params.as_mut_slice(args.len());
        for (slot, arg) in slots.iter_mut().zip(args) {
            let datum = arg.datum();
            slot.isnull = datum.is_none();
            slot.value = datum.map_or(pg_sys::Datum::null(), |datum| datum.sans_lifetime());
            slot.pflags = pg_sys::PARAM_FLAG_CONST as u16;
            slot.ptype = arg.oid();
        }
        list
    }
}

/// A standby has no transaction ids to give, which Postgres would only say as an internal error. (A READ ONLY transaction is
/// refused by Postgres itself.)
fn must_be_able_to_write() -> Result<()> {
    // SAFETY: reads a flag in shared memory.
    if unsafe { pg_sys::RecoveryInProgress() } { Err(Error::standby()) } else { Ok(()) }
}

/// Whether all statements of this transaction see what was committed before it (REPEATABLE READ, SERIALIZABLE).
pub fn has_one_snapshot() -> bool {
    // SAFETY: reads a variable of the session.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Whether this transaction has written: then a read takes a snapshot of its own, to see what the same statement wrote.
fn has_transaction_id() -> bool {
    // SAFETY: reads the state of the transaction.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

pub fn quote_identifier(name: &str) -> String {
    spi::quote_identifier(name)
}

/// How a plan is run: with the snapshot of the calling query and no transaction id, with the active snapshot whatever the
/// transaction did, or with a snapshot of its own that sees what was committed, or written by this call, up to now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    ReadNow,
    Write,
}

type Each<'a> = &'a mut dyn FnMut(&mut Row<'_>) -> Result<()>;

/// Where the executor sends rows: on to a closure, one by one. What Postgres sees of it is its beginning.
#[repr(C)]
struct Receiver<'a> {
    dest: pg_sys::DestReceiver,
    each: Each<'a>,
    failed: Option<Error>,
    /// For what is unpacked of a row; emptied before the next one.
    memory: pg_sys::MemoryContext,
}

impl<'a> Receiver<'a> {
    fn new(each: Each<'a>) -> Receiver<'a> {
        let dest = pg_sys::DestReceiver {
            receiveSlot: Some(receive),
            rStartup: Some(start_up),
            rShutdown: Some(do_nothing),
            rDestroy: Some(do_nothing),
            // Any but those that SPI knows: these rows go elsewhere.
            mydest: pg_sys::CommandDest::DestTupleQueue,
        };
        Receiver { dest, each, failed: None, memory: std::ptr::null_mut() }
    }

    fn as_dest(&mut self) -> *mut pg_sys::DestReceiver {
        (&raw mut *self).cast()
    }
}

/// Shows a row to the closure; false, which ends the statement, where that failed.
#[pg_guard]
unsafe extern "C-unwind" fn receive(slot: *mut pg_sys::TupleTableSlot, dest: *mut pg_sys::DestReceiver) -> bool {
    // SAFETY: Postgres passes the receiver that it was given, and a slot with a row. The memory is a child of the statement's.
    unsafe {
        let receiver = &mut *dest.cast::<Receiver<'_>>();
        if receiver.memory.is_null() {
            receiver.memory = pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"a row".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
        }
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = receiver.memory;
        let shown = (receiver.each)(&mut Row(&mut *slot));
        pg_sys::CurrentMemoryContext = before;
        pg_sys::MemoryContextReset(receiver.memory);
        receiver.failed = shown.err();
        receiver.failed.is_none()
    }
}

unsafe extern "C-unwind" fn start_up(_: *mut pg_sys::DestReceiver, _: i32, _: pg_sys::TupleDesc) {}

unsafe extern "C-unwind" fn do_nothing(_: *mut pg_sys::DestReceiver) {}

/// How plans are made while this lives: they go by the keys, and are not compiled. Every statement finds its rows by the beginning of one, but on a table
/// that is still small, or was when it was analysed, the planner prefers to read it all, and a session would keep that plan
/// while the table grows. A plan can be made anew whenever it is run, so this is set for each run, and not by
/// `set_config_option`, which costs as much as a small statement. Where there is no other way than to read a table, the planner takes
/// it as very dear, and would have it compiled, in 30 ms at each run.
struct Planning {
    enable_seqscan: bool,
    enable_sort: bool,
    jit_enabled: bool,
}

impl Planning {
    fn begin(ordered: bool) -> Planning {
        // SAFETY: a setting of this session, which has one thread; put back when this is dropped, also while a panic unwinds.
        unsafe {
            let planning = Planning {
                enable_seqscan: pg_sys::enable_seqscan,
                enable_sort: pg_sys::enable_sort,
                jit_enabled: pg_sys::jit_enabled,
            };
            pg_sys::enable_seqscan = false;
            pg_sys::enable_sort = planning.enable_sort && !ordered;
            pg_sys::jit_enabled = false;
            planning
        }
    }
}

impl Drop for Planning {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            pg_sys::enable_seqscan = self.enable_seqscan;
            pg_sys::enable_sort = self.enable_sort;
            pg_sys::jit_enabled = self.jit_enabled;
        }
    }
}

/// The plans of this session. They hold for one schema by oid and by name: a rename keeps the oid, and another schema may take
/// the old name. The borrow is never held across a call of SPI, which may run functions of ours again.
struct Plans {
    schema_oid: Oid,
    schema: String,
    kept: HashMap<usize, pg_sys::SPIPlanPtr>,
}

thread_local! {
    static PLANS: RefCell<Plans> =
        RefCell::new(Plans { schema_oid: pg_sys::InvalidOid, schema: String::new(), kept: HashMap::new() });
}

impl Plans {
    /// Lets go of all plans without freeing them: this may happen inside a call that still runs one. A session sees it when
    /// the extension is moved or made anew, so what is left behind stays small.
    fn forget(&mut self) {
        self.kept.clear();
    }
}

/// Puts the schema in the place of `@s` and qualifies the operators that are written with `@`.
fn render(sql: &str, schema: &str) -> String {
    let quoted = quote_identifier(schema);
    let mut out = String::with_capacity(sql.len() * 2);
    let mut rest = sql;
    while let Some(at) = rest.find('@') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('s') {
            out.push_str(&quoted);
            rest = after;
        } else {
            let end = rest.find(|c: char| !"=<>+-*/|@&~!".contains(c)).unwrap_or(rest.len());
            out.push_str(&format!("OPERATOR(pg_catalog.{})", &rest[..end]));
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}
