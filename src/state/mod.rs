//! Pattern A: the state of a thread. Checkpoints, pending writes, replay.

mod apply;
mod blobs;
mod checkpoint;
mod delete;
mod fork;
mod head;
mod put;
mod read;
mod writes;
