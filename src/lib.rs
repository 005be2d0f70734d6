::pgrx::pg_module_magic!();
pub mod json;
