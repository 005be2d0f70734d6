//! What the extension means, apart from where it is stored: ids, messages, manifests, folds and windows. Nothing here
//! knows Postgres, so all of it is tested without a server.

pub mod checkpoint_id;
pub mod fold;
pub mod id;
pub mod manifest;
pub mod message;
pub mod metadata;
pub mod reducer;
pub mod window;
pub mod writes;
