//! Rows of a function that returns a set, put straight into the tuplestore from which Postgres reads them. A row iterator makes
//! a heap tuple of each row first, and Postgres copies that into the tuplestore: one copy more of every value.

use pgrx::pg_sys::{self, Datum};
use pgrx::{IntoDatum, PgMemoryContexts};

/// Where a set-returning function's rows go.
pub struct RowSink {
    store: *mut pg_sys::Tuplestorestate,
    columns: pg_sys::TupleDesc,
    /// For what a row is made of; emptied after each.
    memory: PgMemoryContexts,
}

impl RowSink {
    /// For the function that is being called; it is declared as RETURNS TABLE.
    pub fn of_call(fcinfo: pg_sys::FunctionCallInfo) -> RowSink {
        // SAFETY: Postgres passes the call information of the function it calls. The first call checks that the caller takes a set,
        // or raises an error, and makes the tuplestore in memory that lives as long as the caller's query.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, 0);
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            RowSink {
                store: (*result).setResult,
                columns: (*result).setDesc,
                memory: PgMemoryContexts::new("a row of a set"),
            }
        }
    }

    /// Adds a row: `None` is NULL. The values are copied, and what `make` allocated of Postgres's memory is free again.
    pub fn put<const N: usize>(&mut self, make: impl FnOnce() -> [Option<Datum>; N]) {
        // SAFETY: the memory is used for this row alone. The columns are those of the declaration in sql/row_functions.sql, whose
        // number is checked; their types are the caller's promise.
        unsafe {
            let row = self.memory.switch_to(|_| make());
            assert_eq!((*self.columns).natts as usize, N, "the row does not have the declared columns");
            let mut values = row.map(|value| value.unwrap_or(Datum::null()));
            let mut nulls = row.map(|value| value.is_none());
            pg_sys::tuplestore_putvalues(self.store, self.columns, values.as_mut_ptr(), nulls.as_mut_ptr());
            self.memory.reset();
        }
    }
}

/// The room that a [`bytea_datum`] needs in front of its bytes.
pub const HEADROOM: usize = pg_sys::VARHDRSZ;

/// Bytes behind [`HEADROOM`] as a `bytea` that stands where they are, not copied. It is valid as long as they are.
pub fn bytea_datum(bytes: &mut [u8]) -> Datum {
    // SAFETY: the header fits into the headroom, and what the allocator gives is aligned for it.
    unsafe { pgrx::varlena::set_varsize_4b(bytes.as_mut_ptr().cast(), bytes.len() as i32) };
    Datum::from(bytes.as_mut_ptr())
}

/// A value as a datum; NULL for none.
pub fn datum(value: impl IntoDatum) -> Option<Datum> {
    value.into_datum()
}
