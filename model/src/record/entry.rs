//! The entries of a recording.

use ringside_spec::lan::admin::DESCRIPTOR_SIZE;

/// One access of a driver, or one report of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the recording, from 0, over all functions of the world.
    pub sequence: u64,
    /// The function.
    pub function: usize,
    /// Time of the model, nanoseconds since its beginning.
    pub time_ns: u64,
    /// The event.
    pub event: Event,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command of the admin queue was carried out or refused.
    Admin(AdminCommand),
    /// The firmware filled a descriptor of the admin receive ring.
    AdminEvent(AdminEvent),
    /// The control queue pair was created from a context, or an attempt failed.
    ControlQueue(ControlQueueCreated),
    /// A command of the control queue pair was carried out or refused.
    Control(ControlCommand),
    /// A register of BAR 0 was written; doorbells are not recorded.
    Register(RegisterWrite),
    /// The function was reset.
    Reset(ResetSeen),
}

/// A command of the admin queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    /// The descriptor as the driver wrote it.
    pub before: [u8; DESCRIPTOR_SIZE],
    /// The buffer that the driver sent to the firmware; empty if there was none.
    pub sent: Vec<u8>,
    /// The descriptor as the firmware wrote it back; `None` if it never answered.
    pub after: Option<[u8; DESCRIPTOR_SIZE]>,
    /// The bytes that the firmware wrote to the buffer.
    pub answered: Vec<u8>,
}

/// An event of the firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminEvent {
    /// The event's descriptor, before the receive ring's flags and address are merged into it.
    pub descriptor: [u8; DESCRIPTOR_SIZE],
    /// Its buffer.
    pub body: Vec<u8>,
}

/// Creation of the control queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlQueueCreated {
    /// The address of the context.
    pub address: u64,
    /// The context; empty if it cannot be read.
    pub context: Vec<u8>,
    /// The device took it.
    pub created: bool,
}

/// A command of the control queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlCommand {
    /// Position in the ring.
    pub index: u32,
    /// The work queue element.
    pub element: [u64; 8],
    /// The memory that it points to, as far as it determines the command's effect.
    pub buffers: Vec<Buffer>,
    /// The completion without its valid bit; `None` if there was none.
    pub completion: Option<[u64; 4]>,
}

/// Memory that a command points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its kind: "queue pair context", "page list".
    pub name: String,
    /// I/O virtual address; of a page list the index of its first entry.
    pub address: u64,
    /// The bytes before the command.
    pub before: Vec<u8>,
    /// The bytes after it; `None` if they did not change.
    pub after: Option<Vec<u8>>,
}

/// A write of 32 bits to BAR 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterWrite {
    /// Offset in the BAR.
    pub offset: u64,
    /// The value.
    pub value: u32,
}

/// The kind of reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetSeen {
    /// `function-level` (configuration space, or by the host), `Function`, `Core`, `Global`,
    /// `Firmware`.
    pub kind: String,
}
