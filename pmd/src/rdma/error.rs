//! Reasons why a verb was not carried out, and why an RDMA stage of bring-up failed.

use crate::admin::AdminError;
use crate::control::ControlError;
use crate::failure::FailureCause;
use ringside_bus::{FunctionError, MemoryError};
use ringside_cq::{HandleError, QueueError};
use ringside_hmc::{BackingError, CommitError, LimitsError, PbleError, SizingError};
use ringside_qp::{MemberError, RingError};
use ringside_spec::rdma::features::FeaturesError;
use ringside_spec::rdma::fpm::FpmQueryError;

/// Reasons why an RDMA stage of bring-up failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RdmaStageError {
    /// The RDMA engine cannot be used, or not like this.
    #[error("{what}; {remedy}")]
    Unusable {
        /// The received text, and its error.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// A command failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Something beneath the verbs failed.
    #[error(transparent)]
    Verbs(#[from] RdmaError),
    /// The admin queue refused a queue set.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The device's answer to QUERY_FPM cannot be read.
    #[error("the answer to QUERY_FPM: {0}")]
    Query(#[from] FpmQueryError),
    /// The device's limits make no sense.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The configuration does not fit the device.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The device's answer to COMMIT_FPM contradicts itself.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The feature list cannot be read.
    #[error(transparent)]
    Features(#[from] FeaturesError),
}

impl From<MemoryError> for RdmaStageError {
    fn from(error: MemoryError) -> Self {
        Self::Verbs(error.into())
    }
}

/// Reasons why a verb was not carried out. Nothing was changed, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RdmaError {
    /// The device offers no RDMA.
    #[error("this device offers no RDMA: {reason}")]
    Unavailable {
        /// The reason.
        reason: String,
    },
    /// The device was shut down.
    #[error("the device was shut down; bring it up again")]
    ShutDown,
    /// The device failed. Earlier objects stay unusable, also once it is in service again.
    #[error(
        "the device failed: {cause}; bring it up again with Device::recover, and make its objects again"
    )]
    DeviceFailed {
        /// The cause.
        cause: FailureCause,
    },
    /// Another operation has something for itself, and does not end.
    #[error(
        "{what} is in use by another operation, which has not ended for {waited_ms} ms although each of its commands has a deadline: recover the device with Device::recover, and report this as a bug"
    )]
    Occupied {
        /// The claimed part.
        what: String,
        /// The length of the wait, ms.
        waited_ms: u64,
    },
    /// All objects of a kind are in use.
    #[error("all {limit} {what} are in use: destroy some, or raise {key} in the configuration")]
    Capacity {
        /// The exhausted resource.
        what: &'static str,
        /// The number of them.
        limit: u32,
        /// The key of the configuration that sets the number.
        key: &'static str,
    },
    /// An object with a number of a fixed purpose exists already.
    #[error(
        "number {number} of the {what} has a fixed purpose and is in use: drop the one that has it first"
    )]
    FixedInUse {
        /// The kind of object.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// A number that the device does not take.
    #[error("{what} is {given}; allowed are {least} to {most}")]
    OutOfRange {
        /// Its subject.
        what: &'static str,
        /// The given value.
        given: u64,
        /// Smallest allowed.
        least: u64,
        /// Largest allowed.
        most: u64,
    },
    /// A path MTU that RoCEv2 does not have.
    #[error("a path MTU of {given} bytes; RoCEv2 has 256, 512, 1024, 2048 and 4096")]
    Mtu {
        /// The given value.
        given: u32,
    },
    /// Buffers that cannot form one region.
    #[error(
        "buffer {index} of the region ({length} bytes at {address:#x}) does not {problem}; pages are 4 KiB"
    )]
    Misaligned {
        /// The buffer.
        index: usize,
        /// Its I/O virtual address.
        address: u64,
        /// Its bytes.
        length: usize,
        /// The steps that it would have to take.
        problem: &'static str,
    },
    /// Memory that requests cannot name by this address: the device takes the place in the first
    /// page from it.
    #[error(
        "memory cannot be named {address:#x}: choose an address that lies {offset:#x} into a page of {page_bytes:#x} bytes, as the memory does"
    )]
    Misnamed {
        /// The address.
        address: u64,
        /// Bytes of the memory's pages.
        page_bytes: u64,
        /// The place of the memory in its first page, bytes.
        offset: u64,
    },
    /// The two addresses of a connection are of different families.
    #[error(
        "the peer's address {peer} and the local address {local} are of different families; choose a local address of the peer's family"
    )]
    AddressFamily {
        /// Local address.
        local: std::net::IpAddr,
        /// Peer's address.
        peer: std::net::IpAddr,
    },
    /// The GID table is full.
    #[error("all {limit} addresses of the port are in use: remove one first")]
    AddressesFull {
        /// The number of its entries.
        limit: u32,
    },
    /// An address that no port can have.
    #[error("no port has the address {address}: {fault}")]
    BadAddress {
        /// The address.
        address: ringside_config::LocalAddress,
        /// Its fault.
        fault: ringside_config::AddressFault,
    },
    /// The GID table has the address already.
    #[error("{address} is in the GID table at index {index}; remove it first, or use that entry")]
    GidExists {
        /// The address.
        address: std::net::IpAddr,
        /// Its index.
        index: u16,
    },
    /// The GID table has no such address.
    #[error(
        "{address} is not in the GID table of the port{}; add it, or choose one that Device::gids names",
        vlan.map(|vlan| format!(" on VLAN {vlan}")).unwrap_or_default()
    )]
    NoSuchGid {
        /// The address.
        address: std::net::IpAddr,
        /// Its VLAN.
        vlan: Option<u16>,
    },
    /// The GID table has no entry with this index.
    #[error("the GID table has no entry at index {index}; choose one that Device::gids names")]
    NoSuchGidIndex {
        /// The index.
        index: u16,
    },
    /// Another thread waits for the device's interrupt already.
    #[error("the device's interrupt is in use: drop the other Interrupts first, or share it")]
    InterruptTaken,
    /// The device has no interrupt vectors, so it has to be polled.
    #[error("the device has no interrupt vectors; poll it instead")]
    NoInterrupts,
    /// The operating system refused a resource of an interrupt.
    #[error("{operation}: {error}; raise the limit of open files, or poll instead of waiting")]
    System {
        /// The attempt.
        operation: &'static str,
        /// The system's own words.
        error: String,
    },
    /// A queue pair did not stop sending in time.
    #[error(
        "queue pair {queue_pair} did not stop sending within {waited_ms} ms, and continues: its peer does not answer, or has no receives"
    )]
    NotDrained {
        /// Its number.
        queue_pair: u32,
        /// The time waited.
        waited_ms: u64,
    },
    /// Another thread stops the sending of a queue pair.
    #[error(
        "another thread stops the sending of queue pair {queue_pair}: wait for that, 5 s at most"
    )]
    Draining {
        /// Its number.
        queue_pair: u32,
    },
    /// The queue pair failed meanwhile.
    #[error("queue pair {queue_pair} has failed: make and connect a new one")]
    Failed {
        /// Its number.
        queue_pair: u32,
    },
    /// The device writes nothing more to a completion queue.
    #[error(
        "completion queue {completion_queue} has failed: make a new one, and its queue pairs on that"
    )]
    CompletionQueueFailed {
        /// Its number.
        completion_queue: u32,
    },
    /// The firmware refused a command for the switch.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A queue pair that a shared receive queue can't feed.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A queue pair that a shared receive queue feeds is reset by that queue.
    #[error(
        "queue pair {number} was not reset, as a shared receive queue feeds it: use SharedReceiveQueue::reset"
    )]
    Fed {
        /// Its number.
        number: u32,
    },
    /// A protection domain has all that it may have.
    #[error(
        "protection domain {domain} may have {limit} {what}, and {wanted} more were requested: destroy some, or make the domain with larger quotas"
    )]
    Quota {
        /// Its number.
        domain: u32,
        /// The kind of the quota.
        what: &'static str,
        /// The quota.
        limit: u64,
        /// The request.
        wanted: u64,
    },
    /// A fast region in another state than the call needs.
    #[error(transparent)]
    FastRegion(#[from] FastRegionError),
    /// An address that is no multicast group's.
    #[error("{address} is no multicast address; choose one of 224.0.0.0/4 or ff00::/8")]
    NotMulticast {
        /// The given value.
        address: std::net::IpAddr,
    },
    /// The address of a peer is one that no single host has, or the own one is one that no host
    /// sends from.
    #[error("{address} is not the address of one host on a wire; give a unicast address")]
    NotUnicast {
        /// The given value.
        address: std::net::IpAddr,
    },
    /// A group holds so many queue pairs of a function and no more.
    #[error("{members} queue pairs of this device are in the group {group} already: let one leave")]
    GroupFull {
        /// Its address.
        group: std::net::IpAddr,
        /// The number of them.
        members: usize,
    },
    /// The queue pair is not in that group.
    #[error("queue pair {queue_pair} is not in the group {group}")]
    NotInGroup {
        /// Its address.
        group: std::net::IpAddr,
        /// The queue pair.
        queue_pair: u32,
    },
    /// The device made the address handle and called it invalid.
    #[error(
        "the device refused the address handle for {destination} (value {value}); check addresses and MAC"
    )]
    InvalidAddressHandle {
        /// Its intended destination.
        destination: std::net::IpAddr,
        /// The value that the device returned.
        value: u32,
    },
    /// The completion queue belongs to another device.
    #[error("the completion queue belongs to another device")]
    ForeignQueue,
    /// The memory was allocated from another device, or lent to it.
    #[error("the memory is another device's: allocate it from this device, or lend it to this one")]
    ForeignMemory,
    /// The protection domain belongs to another device.
    #[error("the protection domain belongs to another device")]
    ForeignDomain,
    /// The queue pair is in another protection domain than the shared receive queue.
    #[error(
        "queue pair {queue_pair} is in another protection domain than the shared receive queue: make \
         both in one domain"
    )]
    OtherDomain {
        /// Number of the queue pair.
        queue_pair: u32,
    },
    /// The object no longer exists: a shutdown or an earlier failure removed it.
    #[error("{what} {number} does not exist any more")]
    Gone {
        /// Its previous value.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// A command failed. After a refusal the object is as it was; memory that the device may still
    /// use is kept until the shutdown.
    #[error(transparent)]
    Control(ControlError),
    /// The device cannot be reached.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// No memory is available.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No page buffer list entries are available.
    #[error(transparent)]
    PageList(#[from] PbleError),
    /// Host memory cache books are wrong: a bug of this driver.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// A work queue was made of the wrong memory: a bug of this driver.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A completion queue was made of the wrong memory: a bug of this driver.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The completion queue does not take more queue pairs at the moment.
    #[error(transparent)]
    Handle(#[from] HandleError),
}

/// A step of a fast region that its state does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FastRegionError {
    /// No memory was loaded.
    #[error("the region has no memory: load some first")]
    Empty,
    /// It is registered already.
    #[error("the region is registered: invalidate it, and take its memory back, first")]
    Registered,
    /// It is not registered.
    #[error("the region is not registered")]
    NotRegistered,
    /// Its protection domain is not that of the queue pair.
    #[error(
        "the region is of protection domain {region}, the queue pair of {queue_pair}; they must be one, of one device"
    )]
    ForeignDomain {
        /// The region's.
        region: u32,
        /// The queue pair's.
        queue_pair: u32,
    },
}

impl RdmaError {
    /// True if the device answered a command and refused it: the object is as it was.
    pub(crate) const fn is_refusal_by_device(&self) -> bool {
        matches!(self, Self::Control(ControlError::Refused { .. }))
    }

    /// True if an operation that ended with it has changed nothing in the device: the device
    /// refused its command, or got none. A device that does not answer may have carried out an
    /// earlier one.
    pub(crate) const fn leaves_object(&self) -> bool {
        match self {
            Self::Control(ControlError::Full { .. }) => true,
            Self::Control(_) => self.is_refusal_by_device(),
            Self::DeviceFailed { .. } | Self::Gone { .. } => false,
            _ => true,
        }
    }
}

impl From<ControlError> for RdmaError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Abandoned { cause, .. } => Self::DeviceFailed { cause },
            error => Self::Control(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RdmaError;
    use crate::control::ControlError;
    use ringside_spec::rdma::commands::Opcode;

    /// A command that was not sent leaves a queue pair in the state that it had.
    #[test]
    fn a_command_that_found_no_room_leaves_the_object() {
        let full = ControlError::Full {
            opcode: Opcode::ModifyQueuePair,
            commands: 2047,
            waited_ms: 1000,
        };
        assert!(RdmaError::from(full).leaves_object());
        let stuck = ControlError::Stuck {
            opcode: Opcode::ModifyQueuePair,
        };
        assert!(!RdmaError::from(stuck).leaves_object());
    }
}
