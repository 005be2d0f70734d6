//! `json` and `jsonb` as arguments and results: the text itself, not parsed.

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::impl_sql_translatable;
use pgrx::{FromDatum, IntoDatum, direct_function_call, pg_sys};

/// A `json` argument: its text, borrowed and not parsed.
#[derive(Debug, Clone, Copy)]
pub struct JsonText<'a>(pub &'a str);

impl_sql_translatable!(JsonText<'_>, "json");

impl FromDatum for JsonText<'_> {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, oid: pg_sys::Oid) -> Option<Self> {
        // SAFETY: a json datum has the layout of a text datum.
        unsafe { <&str>::from_polymorphic_datum(datum, is_null, oid) }.map(JsonText)
    }
}

unsafe impl<'fcx> ArgAbi<'fcx> for JsonText<'fcx> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the argument is declared as json. All json arguments are `Option`s, so this one is never NULL.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or(JsonText(""))
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { arg.unbox_arg_using_from_datum().into() }
    }
}

/// A `json` result that owns its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonResult(pub String);

impl_sql_translatable!(JsonResult, "json");

impl IntoDatum for JsonResult {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        self.0.as_str().into_datum()
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONOID
    }
}

unsafe impl BoxRet for JsonResult {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: the datum was made for this result.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

/// A `jsonb` argument as the text that Postgres prints for it.
#[derive(Debug, Clone)]
pub struct JsonbText(pub String);

impl_sql_translatable!(JsonbText, "jsonb");

impl FromDatum for JsonbText {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the datum is a jsonb; jsonb_out detoasts it and gives a C string of UTF-8.
        let text: Option<&std::ffi::CStr> = unsafe { direct_function_call(pg_sys::jsonb_out, &[Some(datum)]) };
        text.map(|text| JsonbText(text.to_string_lossy().into_owned()))
    }
}

unsafe impl<'fcx> ArgAbi<'fcx> for JsonbText {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the argument is declared as jsonb. All jsonb arguments are `Option`s, so this one is never NULL.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or(JsonbText(String::new()))
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { arg.unbox_arg_using_from_datum().into() }
    }
}
