//! Devices and contexts: listing and opening.

use crate::abi::{ibv_context, ibv_device, verbs_context};
use crate::cancel::Uncancelled;
use crate::channel::EventQueue;
use crate::claim::{Failure, look_for, named};
use crate::context_object::ContextObject;
use crate::device::{self, LEASE_WAIT, Port, lock, object};
use crate::diagnosis::{explain, start_log};
use crate::environment::variable;
use crate::live::{self, Kind};
use crate::machine::Machine;
use crate::threads::on_own_thread;
use crate::{errno, events, files, verbs_table};
use std::ffi::{c_char, c_int};
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The longest wait for a device that another process has, besides that process's wait for a lease.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest wait for a device that is being recovered.
const RECOVERY: Duration = Duration::from_secs(10);

/// Between two looks at either.
const STEP: Duration = Duration::from_millis(20);

/// The name of the device; none if no variable gives one.
fn name() -> Option<String> {
    let name = variable("RINGSIDE_DEVICE")?;
    Some(name.to_string_lossy().into_owned())
}

/// Gives the program `/dev/null` for each standard descriptor that it has closed. Otherwise
/// descriptors of the device took their numbers, and what the program prints went into its memory.
fn keep_standard_descriptors() {
    while let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        if null.as_raw_fd() > libc::STDERR_FILENO {
            return;
        }
        let _ = null.into_raw_fd();
    }
}

/// The present period of service of the device; none if no variable names a device. An error is an
/// errno value, and was explained on standard error; the next call tries again.
///
/// A child of a fork opens the device for itself: what its parent listed is good there, objects
/// that its parent made are not.
pub(crate) fn port() -> Result<Option<Arc<Port>>, c_int> {
    if let Some(port) = device::present() {
        return Ok(Some(port));
    }
    start_log().map_err(|failure| explain("log", &failure))?;
    let Some(name) = name() else {
        return Ok(None);
    };
    keep_standard_descriptors();
    let opened = device::present_or_open(|| {
        on_own_thread(|| {
            let port = open_when_free(&name)?;
            events::start(&port).map_err(|error| Failure::of(libc::EIO, error))?;
            port.await_lease();
            files::write(&port);
            Ok(port)
        })
    });
    let explained = |failure: Failure| explain(&name, &failure);
    opened.map(Some).map_err(explained)
}

/// The device in service. Waits while it is recovered, until the first attempt fails.
///
/// Errors: as for [`port`], and `ENODEV` without a device, or if it is out of service.
pub(crate) fn port_in_service() -> Result<Arc<Port>, c_int> {
    let end = Instant::now() + RECOVERY;
    loop {
        let port = port()?.ok_or(libc::ENODEV)?;
        if !port.is_over() {
            return Ok(port);
        }
        if !port.may_recover() || Instant::now() >= end {
            return Err(libc::ENODEV);
        }
        std::thread::sleep(STEP);
    }
}

/// Counts the devices, without opening one that is not open.
fn count_devices() -> Result<usize, c_int> {
    if device::present().is_some() {
        return Ok(1);
    }
    start_log().map_err(|failure| explain("log", &failure))?;
    let Some(name) = name() else {
        return Ok(0);
    };
    let found = look_for(&name).map_err(|failure| explain(&name, &failure));
    found.map(|()| 1)
}

/// The longest wait for a device that another process has: with DHCP, that process may first wait
/// for its lease.
fn patience(name: &str) -> Duration {
    match named(name) {
        Ok((_, config)) if config.network.dhcp => PATIENCE + LEASE_WAIT,
        _ => PATIENCE,
    }
}

/// Opens the device. Waits a little while another process has it, where that may be the one that
/// `ringside-files.so` starts for a shell (`capi/preload/helper.c`), or a parent that ends
/// (`daemon`).
fn open_when_free(name: &str) -> Result<Arc<Port>, Failure> {
    let end = Instant::now() + patience(name);
    loop {
        match Machine::open(name).and_then(|machine| Port::begin(Arc::new(machine))) {
            Err(failure)
                if failure.errno == libc::EBUSY
                    && (files::folder().is_some() || device::is_inherited())
                    && Instant::now() < end =>
            {
                std::thread::sleep(STEP);
            }
            other => return other,
        }
    }
}

/// Opens the device, which writes the files, if that was not done. `ringside-files.so` calls it
/// when a program asks for the interface by name before it has opened a device.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_write_files() {
    let _call = Uncancelled::new();
    // A failure was explained on standard error; the interface is then not there.
    let _ = port();
}

/// Lists the devices: one, or none where `RINGSIDE_DEVICE` names none. It is not opened yet.
///
/// # Safety
/// `count` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let _call = Uncancelled::new();
    if !count.is_null() {
        // SAFETY: the caller promises `count`. Programs look at it alone, also after a failure.
        unsafe { *count = 0 };
    }
    let devices = match count_devices() {
        Ok(devices) => devices,
        Err(error) => return errno::null(error),
    };
    // SAFETY: room for one device and the end; zeroed.
    let list = unsafe { libc::calloc(2, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
    if list.is_null() {
        return errno::null(libc::ENOMEM);
    }
    // SAFETY: the list has two places; the caller promises `count`.
    unsafe {
        if devices > 0 {
            *list = object();
        }
        if !count.is_null() {
            *count = devices as c_int;
        }
    }
    list
}

/// Frees a list; the devices stay.
///
/// # Safety
/// `list` came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(list.cast()) };
}

/// # Safety
/// `device` came from a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { (&raw const (*device).name).cast() }
}

/// GUID of the device in the byte order of the wire.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    let _call = Uncancelled::new();
    match port() {
        Ok(Some(port)) => port.guid(),
        _ => 0,
    }
}

/// The kernel's index: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

/// Opens a device. Contexts are independent; all use the one device of the process. Waits while the
/// device is recovered from a failure.
///
/// # Safety
/// `device` came from a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let _call = Uncancelled::new();
    match port_in_service().and_then(|port| context_on(port, device)) {
        Ok(context) => context,
        Err(error) => errno::null(error),
    }
}

/// Opens a context of this period of service. Does not wait. Errors: an errno value.
pub(crate) fn context_on(
    port: Arc<Port>,
    device: *mut ibv_device,
) -> Result<*mut ibv_context, c_int> {
    let events = EventQueue::new()?;
    let commands = File::open("/dev/null").ok();
    let command_descriptor = commands.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let context = Box::new(ContextObject {
        table: verbs_table::table(
            device,
            [command_descriptor, events.descriptor()],
            port.vectors.count(),
        ),
        _commands: commands,
        port: Arc::clone(&port),
        events,
        unacknowledged: Mutex::default(),
        acknowledged: Condvar::new(),
    });
    let context = Box::leak(context);
    let public = &raw mut context.table.context;
    lock(&port.contexts).push(public as usize);
    // It ends by the call alone.
    Ok(live::enter(public, Kind::Context, public, |_| 0))
}

/// Closes a context, and destroys those of its objects that the program has left: afterwards the
/// device uses none of the memory that was registered with it.
///
/// Errors: -1, with `EINVAL` if it was closed before; `EBUSY` if the device keeps an object, or has
/// failed and may still write: the context and objects of it stay, and it can be closed later.
///
/// # Safety
/// `context` came from [`ibv_open_device`]; it and its objects are used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(context, &[Kind::Context]) {
        return errno::minus_one(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { ContextObject::of(context) };
    // Events that were read are not waited for.
    lock(&object.unacknowledged).clear();
    // SAFETY: it is open, and the caller promises that nothing uses it.
    let are_gone = unsafe { live::end_all(context) };
    if !are_gone {
        if let Err(error) = object.port.await_rest() {
            return errno::minus_one(error);
        }
        // SAFETY: as above.
        if !unsafe { live::end_all(context) } {
            return errno::minus_one(libc::EBUSY);
        }
    }
    live::leave(context);
    lock(&object.port.contexts).retain(|other| *other != context as usize);
    let offset = std::mem::offset_of!(verbs_context, context);
    // SAFETY: `ibv_open_device` leaked this box, and the caller gives it up.
    drop(unsafe { Box::from_raw(context.byte_sub(offset).cast::<ContextObject>()) });
    0
}
