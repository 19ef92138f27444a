//! The C interface of open files: the functions that SQLite calls, each a thin wrapper of a method of
//! [`Handle`].
//!
//! The safety comments rely on the guarantees in <https://sqlite.org/c3ref/io_methods.html>. A panic in this
//! module aborts the process.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{Ordering, fence};
use std::{ptr, slice};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods};

use crate::handle::Handle;
use crate::shm::REGION_BYTES;

/// The sector size that SQLite assumes for every disk on Linux.
const SECTOR_BYTES: c_int = 4096;

/// SQLite's representation of an open file: its own header, followed by our fields.
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) head: sqlite3_file,
    pub(crate) handle: *mut Handle,
}

pub(crate) static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2, // with shared memory, without memory-mapped files
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock_file),
    xUnlock: Some(unlock_file),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Returns the handle of an open file.
///
/// # Safety
///
/// `file` was opened by the VFS and is not closed. SQLite calls one function on it at a time: a file belongs
/// to one connection, and a connection to one thread at a time. The borrow must end with that call.
unsafe fn handle<'call>(file: *mut sqlite3_file) -> &'call mut Handle {
    // SAFETY: it is a `Slot`, as the VFS filled it when it opened the file.
    let handle = unsafe { (*file.cast::<Slot>()).handle };
    // SAFETY: the VFS made it from a box; there is no other reference to it during this call.
    unsafe { &mut *handle }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the file is open.
    let handle = ptr::from_mut(unsafe { handle(file) });
    // SAFETY: the VFS made it from a box, and this is the file's last call: the box is dropped once.
    drop(unsafe { Box::from_raw(handle) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, out: *mut c_void, count: c_int, offset: i64) -> c_int {
    // SAFETY: `out` has `count` writable bytes and is not accessed elsewhere during this call. The bytes may
    // be uninitialized, so they are initialized first.
    unsafe { out.cast::<u8>().write_bytes(0, count as usize) };
    // SAFETY: as above; the bytes are initialized now.
    let buffer = unsafe { slice::from_raw_parts_mut(out.cast(), count as usize) };
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.read(offset as usize, buffer))
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, count: c_int, offset: i64) -> c_int {
    // SAFETY: `from` has `count` bytes, which are not modified during this call.
    let bytes = unsafe { slice::from_raw_parts(from.cast(), count as usize) };
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.write(offset as usize, bytes))
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.truncate(size as usize))
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.sync())
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: the file is open.
    let size = unsafe { handle(file) }.len();
    // SAFETY: `out` is writable during this call.
    result_code(size.map(|size| unsafe { *out = size as i64 }))
}

unsafe extern "C" fn lock_file(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.lock(level))
}

unsafe extern "C" fn unlock_file(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.unlock(level))
}

unsafe extern "C" fn check_reserved(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: the file is open.
    let is_reserved = unsafe { handle(file) }.is_reserved();
    // SAFETY: `out` is writable during this call.
    result_code(is_reserved.map(|is_reserved| unsafe { *out = is_reserved.into() }))
}

unsafe extern "C" fn file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    SECTOR_BYTES
}

/// As on Linux: a write never changes the bytes next to it, even if the power fails.
unsafe extern "C" fn characteristics(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    index: c_int,
    bytes: c_int,
    make: c_int,
    out: *mut *mut c_void,
) -> c_int {
    assert_eq!(bytes as usize, REGION_BYTES);
    // SAFETY: the file is open.
    let region = unsafe { handle(file) }.map_region(index as usize, make != 0);
    // SAFETY: `out` is writable during this call. The region stays where it is until this file is unmapped or
    // closed.
    result_code(region.map(|region| unsafe { *out = region }))
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: the file is open.
    result_code(unsafe { handle(file) }.lock_log(first, count, flags))
}

unsafe extern "C" fn shm_barrier(_: *mut sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file) }.unmap();
    ffi::SQLITE_OK
}

/// Converts a result to SQLite's result code.
pub(crate) fn result_code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}
