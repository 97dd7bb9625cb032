//! Protection domains and memory regions.

use crate::abi::{access, ibv_context, ibv_mr, ibv_pd, ibv_td, reregister};
use crate::cancel::Uncancelled;
use crate::context_object::ContextObject;
use crate::errno;
use crate::guarded::is_set;
use crate::live::{self, Kind};
use crate::probe;
use crate::reach::Reach;
use crate::shared_handles::SharedHandles;
use ringside_bus::DmaBuffer;
use ringside_bus::function::DmaAccess;
use ringside_pmd::rdma::{
    Access, Base, DeregisterError, MemoryRegion, ProtectionDomain, RdmaError,
};
use ringside_spec::rdma::limits::MAX_REGION_BYTES;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain.
#[repr(C)]
pub(crate) struct DomainObject {
    pub(crate) public: ibv_pd,
    pub(crate) domain: ProtectionDomain,
    /// objects in it
    pub(crate) users: AtomicU32,
    pub(crate) handles: SharedHandles,
    /// the members of a parent domain; `None` in a plain one
    pub(crate) parent: Option<Joined>,
}

/// A protection domain and a thread domain, which a parent domain joins.
#[derive(Clone, Copy)]
pub(crate) struct Joined {
    pub(crate) domain: *mut ibv_pd,
    /// or null
    pub(crate) thread: *mut ThreadObject,
}

/// A thread domain.
#[repr(C)]
pub(crate) struct ThreadObject {
    pub(crate) public: ibv_td,
    /// parent domains with it
    pub(crate) users: AtomicU32,
}

impl DomainObject {
    pub(crate) fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// True if the program promised that one thread at a time uses the objects in it.
    pub(crate) fn is_single(&self) -> bool {
        self.parent.is_some_and(|joined| !joined.thread.is_null())
    }

    /// # Safety
    /// `domain` came from [`ibv_alloc_pd`] and is not freed while the result is used.
    pub(crate) unsafe fn of<'a>(domain: *mut ibv_pd) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*domain.cast() }
    }
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let port = unsafe { &ContextObject::of(context).port };
    let domain = port.device().and_then(|device| {
        let made = device.protection_domain();
        made.map_err(|error| errno::of(&error))
    });
    match domain {
        Ok(domain) => {
            let made = Box::new(DomainObject {
                public: ibv_pd {
                    context,
                    handle: domain.number(),
                },
                domain,
                users: AtomicU32::new(0),
                handles: SharedHandles::default(),
                parent: None,
            });
            live::enter(Box::into_raw(made), Kind::Domain, context, end_domain).cast()
        }
        Err(error) => errno::null(error),
    }
}

/// Frees a protection domain or a parent domain that its context has left.
///
/// # Safety
/// As for [`ibv_dealloc_pd`].
pub(crate) unsafe fn end_domain(domain: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ibv_dealloc_pd(domain as *mut _) }
}

/// Frees a protection domain or a parent domain.
///
/// # Safety
/// `domain` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect_domain(domain) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { DomainObject::of(domain) };
    if object.users.load(Ordering::Relaxed) > 0 {
        return errno::failed(libc::EBUSY);
    }
    if let Some(joined) = object.parent {
        // SAFETY: what a parent domain joins outlives it.
        unsafe {
            let base = DomainObject::of(joined.domain);
            base.users.fetch_sub(1, Ordering::Relaxed);
            if let Some(thread) = joined.thread.as_ref() {
                thread.users.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    live::leave(domain);
    // SAFETY: nothing uses it any more.
    drop(unsafe { Box::from_raw(domain.cast::<DomainObject>()) });
    0
}

#[repr(C)]
struct RegionObject {
    public: ibv_mr,
    region: Option<MemoryRegion>,
    wanted: Wanted,
}

/// The rights that verbs names; `EINVAL` or `EOPNOTSUPP` for those that do not exist here.
fn rights(flags: c_int) -> Result<Access, c_int> {
    let flags = flags & !access::OPTIONAL;
    if flags & access::ON_DEMAND != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let remote_change = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if flags & !access::KNOWN != 0 || (remote_change && flags & access::LOCAL_WRITE == 0) {
        return Err(libc::EINVAL);
    }
    let named = [
        (access::LOCAL_WRITE, Access::LOCAL_WRITE),
        (access::REMOTE_WRITE, Access::REMOTE_WRITE),
        (access::REMOTE_READ, Access::REMOTE_READ),
        (access::MW_BIND, Access::BIND_WINDOW),
    ];
    let given = named.iter().filter(|(flag, _)| flags & flag != 0);
    Ok(given.fold(Access::LOCAL_READ, |sum, (_, right)| sum | *right))
}

/// True if registered memory is moved into files, which a model in another process maps:
/// `RINGSIDE_SHARE_MEMORY=1`.
fn moves_memory() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| is_set("RINGSIDE_SHARE_MEMORY"))
}

/// Memory of the program and its use: the arguments of a registration.
#[derive(Clone, Copy)]
struct Wanted {
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    /// address by which requests name the first byte, unless the region is zero-based
    named: u64,
    /// as the program gave them
    flags: c_int,
}

impl Wanted {
    /// The start of the region's addresses.
    const fn base(&self) -> Base {
        match self.flags & access::ZERO_BASED {
            0 => Base::Named(self.named),
            _ => Base::Zero,
        }
    }

    /// The memory for the device, where it is, and the rights.
    ///
    /// # Safety
    /// The domain is one of this library; the memory stays until the region is deregistered.
    unsafe fn lend(&self) -> Result<(DmaBuffer, Access), c_int> {
        let given = rights(self.flags)?;
        // SAFETY: the caller's promise, and a domain's context outlives it.
        let port = unsafe { &ContextObject::of((*self.domain).context).port };
        let device = port.device()?;
        let pool = device.pool().ok_or(libc::ENODEV)?;
        let access = match given.contains(Access::LOCAL_WRITE) {
            true => DmaAccess::ReadWrite,
            false => DmaAccess::Read,
        };
        let length = self.length;
        // Before each page is looked at.
        if length as u64 > MAX_REGION_BYTES {
            return Err(libc::EINVAL);
        }
        probe::check(
            self.address as usize,
            length,
            given.contains(Access::LOCAL_WRITE),
        )?;
        let address = self.address as usize;
        // SAFETY: the caller of `ibv_reg_mr` promises that the memory stays until the region is
        // deregistered; its content is the program's affair, as with any NIC. Memory is moved only
        // if its user says that no other thread writes to it meanwhile, and a model has no physical
        // addresses of it.
        let buffer = unsafe {
            match port.is_model && moves_memory() {
                true => pool.lend_in_file(address, length, access),
                false => pool.lend(address, length, access),
            }
        };
        let buffer = buffer.map_err(|error| {
            tracing::warn!(%error, length, "not registered");
            match length {
                0 => libc::EINVAL,
                _ => libc::ENOMEM,
            }
        })?;
        Ok((buffer, given))
    }

    /// The object of a region that was made of it. Its domain has a user more.
    ///
    /// # Safety
    /// As for [`Wanted::lend`].
    unsafe fn made(&self, region: MemoryRegion) -> RegionObject {
        // SAFETY: the caller's promise.
        let domain = unsafe { DomainObject::of(self.domain) };
        // SAFETY: a domain's context outlives it.
        let port = unsafe { &ContextObject::of(domain.public.context).port };
        domain.users.fetch_add(1, Ordering::Relaxed);
        let reach = Reach {
            domain: domain.domain.number(),
            named: match self.base() {
                Base::Named(address) => address,
                _ => 0,
            },
            address: self.address as usize,
            length: self.length,
            is_writable: region.access().contains(Access::LOCAL_WRITE),
        };
        port.reaches.insert(region.local_key(), reach);
        RegionObject {
            public: ibv_mr {
                context: domain.public.context,
                pd: self.domain,
                addr: self.address,
                length: self.length,
                handle: region.local_key() >> 8,
                lkey: region.local_key(),
                rkey: region.remote_key(),
            },
            region: Some(region),
            wanted: *self,
        }
    }

    /// Registers the program's memory where it is.
    ///
    /// # Safety
    /// As for [`Wanted::lend`].
    unsafe fn register(&self) -> Result<*mut ibv_mr, c_int> {
        live::expect_domain(self.domain)?;
        // SAFETY: the caller's promise.
        let ((buffer, given), domain) = unsafe { (self.lend()?, DomainObject::of(self.domain)) };
        let region = domain
            .domain
            .register_based(vec![buffer], given, self.base())
            .map_err(|refused| errno::of(&refused.error))?;
        // SAFETY: the caller's promise.
        let made = Box::new(unsafe { self.made(region) });
        let made = Box::into_raw(made);
        // SAFETY: as for the exported call.
        let end = |region| unsafe { ibv_dereg_mr(region as *mut _) };
        Ok(live::enter(made, Kind::Region, domain.public.context, end).cast())
    }
}

/// # Safety
/// See [`ibv_reg_mr_iova2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut ibv_mr {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_iova2(domain, address, length, address as u64, flags as u32) }
}

/// # Safety
/// See [`ibv_reg_mr_iova2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    named: u64,
    flags: c_int,
) -> *mut ibv_mr {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_iova2(domain, address, length, named, flags as u32) }
}

/// Registers memory; requests name its first byte as `named`.
///
/// # Safety
/// `domain` is one of this library; the memory stays until the region is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    named: u64,
    flags: u32,
) -> *mut ibv_mr {
    let _call = Uncancelled::new();
    let wanted = Wanted {
        domain,
        address,
        length,
        named,
        flags: flags as c_int,
    };
    // SAFETY: the caller's promise.
    match unsafe { wanted.register() } {
        Ok(region) => region,
        Err(error) => errno::null(error),
    }
}

/// Deregisters memory, which the device then uses no more.
///
/// Errors: `EBUSY` if the device refused, or has failed and may still write: the region stays, and
/// can be deregistered later.
///
/// # Safety
/// `region` came from a registration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(region: *mut ibv_mr) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(region, &[Kind::Region]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { &mut *region.cast::<RegionObject>() };
    // SAFETY: a context outlives its objects.
    let port = unsafe { &ContextObject::of(object.public.context).port };
    if let Err(error) = port.await_rest() {
        return errno::failed(error);
    }
    // Before the key is free for another region.
    let reach = port.reaches.remove(object.public.lkey);
    if let Some(registered) = object.region.take()
        && let Err(error) = registered.deregister()
    {
        tracing::warn!(%error, "not deregistered");
        if let DeregisterError::InUse { region, error } = error
            // The driver keeps its mapping until the reset.
            && !matches!(error, RdmaError::DeviceFailed { .. })
        {
            object.region = Some(*region);
            if let Some(reach) = reach {
                port.reaches.insert(object.public.lkey, reach);
            }
            return errno::failed(libc::EBUSY);
        }
        // The device may have failed by this command.
        if let Err(error) = port.await_rest() {
            return errno::failed(error);
        }
    }
    leave(object.public.pd);
    live::leave(region);
    // SAFETY: the region is gone and the caller gives the object up.
    drop(unsafe { Box::from_raw(region.cast::<RegionObject>()) });
    0
}

/// A domain has a user less.
fn leave(domain: *mut ibv_pd) {
    // SAFETY: a domain outlives its regions.
    let domain = unsafe { DomainObject::of(domain) };
    domain.users.fetch_sub(1, Ordering::Relaxed);
}

/// Changes memory, domain or rights of a region, which keeps its keys.
///
/// Errors: a negative value of `ibv_rereg_mr_err_code`, and `errno`. After a wrong argument, or
/// while windows are bound to it, the region is as it was; after another error it can only be
/// deregistered.
///
/// # Safety
/// `region` came from a registration and no request uses it; `domain`, if it is named, is one of
/// this library; the memory stays until the region is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    region: *mut ibv_mr,
    changes: c_int,
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    flags: c_int,
) -> c_int {
    use reregister::{ACCESS, DOMAIN, ERROR_COMMAND, ERROR_INPUT, TRANSLATION};
    let _call = Uncancelled::new();
    let has = |change| changes & change != 0;
    if changes == 0 {
        errno::set(libc::EINVAL);
        return ERROR_COMMAND;
    }
    let wrong = changes & !(TRANSLATION | DOMAIN | ACCESS) != 0
        || has(TRANSLATION) && (address.is_null() || length == 0)
        || has(DOMAIN) && domain.is_null()
        || flags != 0 && !has(ACCESS);
    if wrong {
        errno::set(libc::EINVAL);
        return ERROR_INPUT;
    }
    // SAFETY: the caller's promise.
    let object = unsafe { &mut *region.cast::<RegionObject>() };
    let mut wanted = object.wanted;
    if has(TRANSLATION) {
        (wanted.address, wanted.length, wanted.named) = (address, length, address as u64);
    }
    if has(DOMAIN) {
        wanted.domain = domain;
    }
    if has(ACCESS) {
        wanted.flags = flags;
    }
    // SAFETY: the caller's promise; memory that does not change stays as was promised before.
    match unsafe { object.replace(&wanted) } {
        Ok(()) => 0,
        Err(error) => {
            errno::set(error);
            ERROR_COMMAND
        }
    }
}

impl RegionObject {
    /// Registers other memory, or with other rights, under the same keys.
    ///
    /// # Safety
    /// As for [`Wanted::lend`].
    unsafe fn replace(&mut self, wanted: &Wanted) -> Result<(), c_int> {
        // SAFETY: the caller's promise.
        let ((buffer, given), domain) =
            unsafe { (wanted.lend()?, DomainObject::of(wanted.domain)) };
        let region = self.region.take().ok_or(libc::EINVAL)?;
        // SAFETY: a context outlives its objects.
        let port = unsafe { &ContextObject::of(self.public.context).port };
        // Before the key is free for another region, should the device not take it again.
        let reach = port.reaches.remove(self.public.lkey);
        let base = wanted.base();
        match region.replace(&domain.domain, vec![buffer], given, base) {
            Ok((region, _)) => {
                leave(self.public.pd);
                // SAFETY: the caller's promise.
                *self = unsafe { wanted.made(region) };
                Ok(())
            }
            Err(refused) => {
                tracing::warn!(error = %refused.error, "not registered again");
                let Some(region) = refused.region else {
                    return Err(libc::EIO);
                };
                self.region = Some(*region);
                if let Some(reach) = reach {
                    port.reaches.insert(self.public.lkey, reach);
                }
                Err(match port.device() {
                    Ok(_) => libc::EBUSY,
                    Err(error) => error,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rights;
    use crate::abi::access;
    use ringside_pmd::rdma::Access;

    #[test]
    fn rights_are_those_of_verbs() {
        assert_eq!(rights(0), Ok(Access::LOCAL_READ));
        let all = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ;
        assert_eq!(rights(all), Ok(Access::REMOTE_WRITE | Access::REMOTE_READ));
        assert_eq!(rights(access::REMOTE_WRITE), Err(libc::EINVAL));
        assert_eq!(rights(access::ON_DEMAND), Err(libc::EOPNOTSUPP));
        assert_eq!(rights(1 << 18), Err(libc::EINVAL));
        assert_eq!(
            rights(1 << 20),
            Ok(Access::LOCAL_READ),
            "optional bits are ignored"
        );
    }
}
