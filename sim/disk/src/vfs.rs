//! The C interface of the file system: a VFS (<https://sqlite.org/c3ref/vfs.html>).
//!
//! Files in directories without a disk are those of the real file system.
//!
//! The safety comments rely on the guarantees that this page gives for the arguments. A panic in this module
//! aborts the process.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_vfs};

use crate::handle::Handle;
use crate::methods::{METHODS, Slot, result_code};
use crate::shm::lock;
use crate::state::State;

/// The current time, a constant in Julian days. SQLite does not need the real time in these tests.
const NOW_DAYS: i32 = 2_460_000;

/// The VFS that was the default before, for paths without a disk.
static REAL: OnceLock<Real> = OnceLock::new();

static MOUNTED: Mutex<BTreeMap<PathBuf, Arc<Mutex<State>>>> = Mutex::new(BTreeMap::new());

pub(crate) fn mount(dir: &Path, state: &Arc<Mutex<State>>) {
    register();
    lock(&MOUNTED).insert(dir.to_owned(), state.clone());
}

pub(crate) fn unmount(dir: &Path) {
    lock(&MOUNTED).remove(dir);
}

struct Real(*mut sqlite3_vfs);

// SAFETY: SQLite itself uses a VFS from all threads.
unsafe impl Send for Real {}

// SAFETY: as above.
unsafe impl Sync for Real {}

/// Registers the VFS as the default for all databases that the process opens by path.
fn register() {
    REAL.get_or_init(|| {
        // SAFETY: a null name finds the default VFS.
        let real = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        // SAFETY: SQLite has a default VFS, which exists until the process ends.
        let (file_bytes, path_bytes) = unsafe { real.as_ref() }
            .map(|real| (real.szOsFile, real.mxPathname))
            .expect("SQLite has a default VFS");
        let vfs = Box::leak(Box::new(sqlite3_vfs {
            iVersion: 2,
            szOsFile: file_bytes.max(size_of::<Slot>() as c_int),
            mxPathname: path_bytes,
            pNext: ptr::null_mut(),
            zName: c"simulated disk".as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: None,
            xCurrentTimeInt64: Some(current_time_ms),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the table is leaked, so it outlives SQLite, which may write its `pNext`. There is no other
        // reference to it.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 1) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite refused to register the VFS");
        Real(real)
    });
}

/// Returns the VFS for paths without a disk.
fn real() -> (*mut sqlite3_vfs, &'static sqlite3_vfs) {
    let real = REAL.get().expect("registered").0;
    // SAFETY: it exists until the process ends, and SQLite changes only `pNext`, which is not read here.
    (real, unsafe { &*real })
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    path: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let slot = file.cast::<Slot>();
    // SAFETY: SQLite provides `szOsFile` writable bytes for a `Slot`, aligned for any type. Without methods,
    // it does not close a file that was not opened.
    unsafe { slot.write(Slot { head: sqlite3_file { pMethods: ptr::null() }, handle: ptr::null_mut() }) };
    // SAFETY: the path is null (a temporary file) or a string that outlives this call.
    let Some((state, name)) = (unsafe { find(path) }) else {
        let (vfs, real) = real();
        // SAFETY: the arguments are those of this call, and the slot has the bytes that this VFS needs.
        return real
            .xOpen
            .map_or(ffi::SQLITE_CANTOPEN, |open| unsafe { open(vfs, path, file, flags, out_flags) });
    };
    result_code(Handle::open(&state, &name, flags).map(|handle| {
        let handle = Box::into_raw(Box::new(handle));
        // SAFETY: as above.
        unsafe { slot.write(Slot { head: sqlite3_file { pMethods: &METHODS }, handle }) };
        // SAFETY: the pointer is null, or writable during this call.
        if let Some(out) = unsafe { out_flags.as_mut() } {
            *out = flags;
        }
    }))
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, path: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: the path is a string that outlives this call.
    let Some((state, name)) = (unsafe { find(path) }) else {
        let (vfs, real) = real();
        // SAFETY: the arguments are those of this call.
        return real
            .xDelete
            .map_or(ffi::SQLITE_IOERR_DELETE, |delete| unsafe { delete(vfs, path, sync_directory) });
    };
    match lock(&state).delete(&name, sync_directory != 0) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(
    _: *mut sqlite3_vfs,
    path: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: the path is a string that outlives this call.
    let Some((state, name)) = (unsafe { find(path) }) else {
        let (vfs, real) = real();
        // SAFETY: the arguments are those of this call.
        return real
            .xAccess
            .map_or(ffi::SQLITE_IOERR_ACCESS, |access| unsafe { access(vfs, path, flags, out) });
    };
    let exists = lock(&state).exists(&name).or(Err(ffi::SQLITE_IOERR_ACCESS));
    // SAFETY: `out` is writable during this call.
    result_code(exists.map(|exists| unsafe { *out = exists.into() }))
}

/// Copies the path of a file on a disk, which is already absolute.
unsafe extern "C" fn full_pathname(
    _: *mut sqlite3_vfs,
    path: *const c_char,
    out_bytes: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: the path is a string that outlives this call.
    if unsafe { find(path) }.is_none() {
        let (vfs, real) = real();
        // SAFETY: the arguments are those of this call.
        return real
            .xFullPathname
            .map_or(ffi::SQLITE_CANTOPEN, |full| unsafe { full(vfs, path, out_bytes, out) });
    }
    // SAFETY: the path is a string that outlives this call.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    if bytes.len() > out_bytes as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `out_bytes` writable bytes, which are enough, and does not overlap the path.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    ffi::SQLITE_OK
}

/// Returns the disk of a path, and the file name on it.
///
/// # Safety
///
/// `path` is null or a string that ends with a zero byte.
unsafe fn find(path: *const c_char) -> Option<(Arc<Mutex<State>>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    let path = Path::new(unsafe { CStr::from_ptr(path) }.to_str().ok()?);
    let state = lock(&MOUNTED).get(path.parent()?)?.clone();
    Some((state, path.file_name()?.to_str()?.to_owned()))
}

/// Returns constant bytes, so that a seed is reproducible.
unsafe extern "C" fn randomness(_: *mut sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    // SAFETY: `out` has `count` writable bytes.
    unsafe { out.write_bytes(0x5a, count as usize) };
    count
}

/// Returns immediately: a lock can only be released by this same thread.
unsafe extern "C" fn sleep(_: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time(_: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: `out` is writable during this call.
    unsafe { *out = NOW_DAYS.into() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_ms(_: *mut sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: `out` is writable during this call.
    unsafe { *out = i64::from(NOW_DAYS) * 86_400_000 };
    ffi::SQLITE_OK
}
