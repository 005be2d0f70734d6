//! Random bytes for ids.

use pgrx::pg_sys;
use std::cell::RefCell;

/// So many bytes are asked for at once: a call of the generator costs as much as a small statement, whatever it is asked for.
const POOL: usize = 512;

/// `N` bytes from Postgres's cryptographic generator.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    UNUSED.with_borrow_mut(|unused| {
        if unused.len() < N {
            let mut pool = vec![0_u8; POOL.max(N)];
            // SAFETY: the buffer has the given length. A false return leaves it as it is: ids are then only less random.
            unsafe { pg_sys::pg_strong_random(pool.as_mut_ptr().cast(), pool.len()) };
            *unused = pool;
        }
        let mut bytes = [0_u8; N];
        let rest = unused.len() - N;
        bytes.copy_from_slice(&unused[rest..]);
        unused.truncate(rest);
        bytes
    })
}

thread_local! {
    /// Bytes are handed out once. Empty in a process that has not made an id, so no two processes share any.
    static UNUSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
