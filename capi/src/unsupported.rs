//! Calls that this library refuses, and a few that need no device.

use crate::cancel::Uncancelled;
use crate::errno;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

/// The value of the flag below, which has no effect here.
static NOTHING: u8 = 0;

/// Set by an environment variable of rdma-core's; read by vendor libraries.
#[unsafe(no_mangle)]
pub static verbs_allow_disassociate_destroy: u8 = NOTHING;

/// A table entry that is refused: `EOPNOTSUPP`, also in `errno`.
pub(crate) unsafe extern "C" fn refuse_call() -> *mut c_void {
    errno::set(libc::EOPNOTSUPP);
    std::ptr::without_provenance_mut(libc::EOPNOTSUPP as usize)
}

macro_rules! refuse {
    ($result:ty, $value:expr; $($name:ident),* $(,)?) => {$(
        /// Refused: not supported.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $result {
            errno::set(libc::EOPNOTSUPP);
            $value
        }
    )*};
}

// Calls that return an object.
refuse! { *mut c_void, std::ptr::null_mut();
    ibv_reg_dmabuf_mr, ibv_import_device, ibv_import_pd, ibv_import_mr,
    ibv_import_dm, ibv_alloc_dmah,
    ibv_create_comp_cntr,
}

// Calls that return an errno value.
refuse! { c_int, libc::EOPNOTSUPP;
    ibv_query_ece, ibv_set_ece,
    ibv_dealloc_dmah, ibv_destroy_comp_cntr,
    ibv_set_comp_cntr, ibv_inc_comp_cntr, ibv_read_comp_cntr, ibv_set_err_comp_cntr,
    ibv_inc_err_comp_cntr, ibv_read_err_comp_cntr, ibv_qp_attach_comp_cntr,
    _ibv_query_comp_cntr_caps,
}

// Calls that return -1 with an errno value.
refuse! { c_int, -1;
    ibv_dm_export_dmabuf_fd,
}

// Calls that return nothing.
refuse! { (), ();
    ibv_unimport_pd, ibv_unimport_mr, ibv_unimport_dm, ibv_copy_path_rec_from_kern,
    ibv_copy_path_rec_to_kern, ibv_copy_qp_attr_from_kern, ibv_copy_ah_attr_from_kern,
}

/// Does nothing: the device's pages stay the parent's after a fork.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Reports that fork support is not needed.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    const UNNEEDED: c_int = 2;
    UNNEEDED
}

/// Does nothing, like [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

/// Does nothing, like [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

/// The path of the kernel's files: that of `SYSFS_PATH`, without slashes at its end, or `/sys`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let wanted = std::env::var_os("SYSFS_PATH").map(OsString::into_vec);
        let mut wanted = wanted.unwrap_or_else(|| b"/sys".to_vec());
        while wanted.ends_with(b"/") {
            wanted.pop();
        }
        CString::new(wanted).unwrap_or_default()
    });
    path.as_ptr()
}

/// Reads a file without its last line end. -1 if there is none, or if its text does not fit.
///
/// # Safety
/// `directory` and `file` are texts, `into` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    into: *mut c_char,
    size: usize,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
    let path = [directory.to_bytes(), b"/", file.to_bytes()].concat();
    let Ok(text) = std::fs::read(OsString::from_vec(path)) else {
        return errno::minus_one(libc::ENOENT);
    };
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    if text.len() >= size {
        return errno::minus_one(libc::EOVERFLOW);
    }
    // SAFETY: the text and its end fit into `size` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), into.cast(), text.len());
        *into.add(text.len()) = 0;
    }
    text.len() as c_int
}

/// Accepts the registration of a vendor's library, and ignores it.
#[unsafe(no_mangle)]
pub extern "C" fn verbs_register_driver_34(_: *const c_void) {}

/// The same, of releases 57 and 58.
#[unsafe(no_mangle)]
pub extern "C" fn verbs_register_driver_57(_: *const c_void) {}

/// The same, of releases 59 to 63.
#[unsafe(no_mangle)]
pub extern "C" fn verbs_register_driver_59(_: *const c_void) {}

/// The same, of release 64.
#[unsafe(no_mangle)]
pub extern "C" fn verbs_register_driver_64(_: *const c_void) {}

/// The same, of release 65.
#[unsafe(no_mangle)]
pub extern "C" fn verbs_register_driver_65(_: *const c_void) {}

/// The same, before release 1.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_register_driver(_: *const c_char, _: *const c_void) {}

/// The result of calls that only providers need (`capi/symbols/libibverbs.s`).
#[unsafe(no_mangle)]
pub extern "C" fn ringside_refuse_number() -> c_int {
    errno::set(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// The same, of those that return an object.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_refuse_pointer() -> *mut c_void {
    errno::null(libc::EOPNOTSUPP)
}
