//! Protection domains: objects that may be used together, and quotas of their numbers.

use super::engine::Engine;
use super::{CompletionQueue, Gid, RdmaError};
use crate::failure::FailureCause;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limits of a protection domain, besides those of the device. Default: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Memory regions, windows and fast regions.
    pub memory_regions: u64,
    /// Bytes in memory regions.
    pub registered_bytes: u64,
    /// Address handles.
    pub address_handles: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            queue_pairs: u64::MAX,
            memory_regions: u64::MAX,
            registered_bytes: u64::MAX,
            address_handles: u64::MAX,
        }
    }
}

/// The kinds of quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    QueuePairs,
    MemoryRegions,
    RegisteredBytes,
    AddressHandles,
}

impl Kind {
    const COUNT: usize = 4;

    const fn name(self) -> &'static str {
        match self {
            Self::QueuePairs => "queue pairs",
            Self::MemoryRegions => "memory regions and windows",
            Self::RegisteredBytes => "bytes of registered memory",
            Self::AddressHandles => "address handles",
        }
    }

    const fn limit(self, quotas: &Quotas) -> u64 {
        match self {
            Self::QueuePairs => quotas.queue_pairs,
            Self::MemoryRegions => quotas.memory_regions,
            Self::RegisteredBytes => quotas.registered_bytes,
            Self::AddressHandles => quotas.address_handles,
        }
    }
}

/// A protection domain. Regions and queue pairs of one domain work together. Cheap to clone; its
/// number is free again once the last clone and the last object in it were dropped.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    engine: Arc<Engine>,
    number: u32,
    quotas: Quotas,
    used: [AtomicU64; Kind::COUNT],
}

/// A share of a domain's quota; returned when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    domain: Arc<Domain>,
    kind: Kind,
    amount: u64,
}

impl Share {
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }
}

impl ProtectionDomain {
    pub(crate) fn new(engine: Arc<Engine>, quotas: Quotas) -> Result<Self, RdmaError> {
        let number = {
            let mut state = engine.open_state()?;
            let state = &mut *state;
            state
                .objects
                .protection_domains
                .take(&mut state.names.random)?
        };
        Ok(Self(Arc::new(Domain {
            engine,
            number,
            quotas,
            used: Default::default(),
        })))
    }

    /// Its number, 18 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// The cause for which the device failed in the domain's period of service; `None` while it is
    /// in service, and in a child of a fork. Sends no command. An object that outlives a recovery
    /// still has the cause of its end.
    #[must_use]
    pub fn failure(&self) -> Option<FailureCause> {
        match self.0.engine.is_elsewhere() {
            true => None,
            false => self.0.engine.state().service.end.cause,
        }
    }

    /// Takes the device out of service as if it had failed: see
    /// [`Device::give_up`](crate::Device::give_up). For parts of a program that cannot go on
    /// without a recovery, and have no `Device`.
    pub fn give_up(&self) -> Result<(), RdmaError> {
        self.0.engine.give_up()
    }

    /// Makes a completion queue on the domain's device: see
    /// [`Device::completion_queue`](crate::Device::completion_queue).
    pub fn completion_queue(&self, completions: u32) -> Result<CompletionQueue, RdmaError> {
        CompletionQueue::new(Arc::clone(&self.0.engine), completions, 0)
    }

    /// True once a shutdown of the device has begun, also if the device had failed or was recovered
    /// before. Sends no command and does not wait.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.0.engine.is_shut_down()
    }

    /// True if both belong to the same device and the same period of service of it: their objects
    /// may be used together.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.engine, &other.0.engine)
    }

    /// Shared by the engines of its device, and of no other device.
    pub(crate) fn shut_down_flag(&self) -> &Arc<AtomicBool> {
        &self.0.engine.shut_down
    }

    /// The GID table of the device: see [`Device::gids`](crate::Device::gids).
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.0.engine.gids().all()
    }

    /// The first entry of the GID table with this address.
    #[must_use]
    pub fn gid_of(&self, address: IpAddr) -> Option<Gid> {
        self.0.engine.gids().of(address)
    }

    /// The number of changes of the GID table until now: a thread that follows the table compares
    /// it with the number at its last look.
    #[must_use]
    pub fn gid_changes(&self) -> u64 {
        self.0.engine.gids().changes()
    }

    /// True if both are one domain of one device. Devices have domains of the same numbers.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Its limits.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.0.quotas
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Takes a share of the quota.
    pub(crate) fn take_share(&self, kind: Kind, amount: u64) -> Result<Share, RdmaError> {
        let limit = kind.limit(&self.0.quotas);
        let used = self.0.used.get(kind as usize);
        let more = |used: u64| used.checked_add(amount).filter(|now| *now <= limit);
        let taken = used.map(|used| used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more));
        match taken {
            Some(Ok(_)) => Ok(Share {
                domain: Arc::clone(&self.0),
                kind,
                amount,
            }),
            _ => Err(RdmaError::Quota {
                domain: self.0.number,
                what: kind.name(),
                limit,
                wanted: amount,
            }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(used) = self.domain.used.get(self.kind as usize) {
            used.fetch_sub(self.amount, Ordering::Relaxed);
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.engine.is_elsewhere() {
            return;
        }
        let mut state = self.engine.state();
        state.objects.protection_domains.give(self.number);
    }
}
