//! `checkpointer`: the memory of LLM agents, inside PostgreSQL. See `ARCHITECTURE.md`.

use pgrx::prelude::*;

mod args;
mod error;
mod grants;
mod guc;
mod json;
mod json_types;
mod log;
mod memory;
mod model;
mod random;
mod row_sink;
mod spi;
mod state;
mod threads;

::pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/preflight.sql", name = "preflight", bootstrap);
extension_sql_file!("../sql/schema.sql", name = "schema", requires = ["preflight"]);
extension_sql_file!("../sql/row_functions.sql", name = "row_functions", requires = ["schema"]);
extension_sql_file!("../sql/markup.sql", name = "markup", requires = ["schema", log::markup::ckpt_check_markup]);
extension_sql_file!("../sql/finalize.sql", name = "finalize", finalize);

#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    guc::init();
    memory::keep_buffers();
    log::warm_up();
}
