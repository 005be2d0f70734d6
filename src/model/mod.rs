//! What the extension means, apart from where it is stored: ids, messages, manifests, folds and windows. Nothing here
//! knows Postgres, so all of it is tested without a server.

pub mod body_hash;
pub mod checkpoint_id;
pub mod cleaning;
pub mod delta;
pub mod fold;
pub mod graph;
pub mod growth;
pub mod id;
pub mod manifest;
pub mod markup;
pub mod message;
pub mod metadata;
pub mod notes;
pub mod packing;
pub mod payload;
pub mod recipe;
pub mod reducer;
pub mod request;
pub mod retention;
pub mod tokens;
pub mod window;
pub mod wire;
pub mod writes;
