//! How the C library's allocator treats the buffers that large values pass through.

/// Sizes up to this come from the heap rather than from a mapping of their own.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: i32 = 4 << 20;

/// So much free memory at the end of the heap is kept for the next call.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: i32 = 16 << 20;

/// A value of a megabyte passes through several buffers in each call. By default glibc maps each anew and gives it back, and
/// the page faults cost more than everything else that a call does. With these limits a session that handles such values keeps
/// up to 16 MB for the next ones.
#[cfg(target_env = "gnu")]
pub fn keep_buffers() {
    const M_TRIM_THRESHOLD: i32 = -1;
    const M_MMAP_THRESHOLD: i32 = -3;
    unsafe extern "C" {
        fn mallopt(param: i32, value: i32) -> i32;
    }
    // SAFETY: mallopt(3) of glibc, with parameters it has; called from _PG_init, before this session has other threads.
    unsafe {
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn keep_buffers() {}
