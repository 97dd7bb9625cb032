//! Two devices on one wire, with the objects that steps use.
//!
//! The setup is not that of `testkit`, which panics: a failure here is a finding that is reported
//! with its seed, and functions, numbers and memory follow from that seed.

use crate::memory::{Arena, Purpose, arena_bytes};
use crate::oracle::Arming;
use crate::random::Random;
use crate::rule::{Problem, Rule};
use crate::scenario::Scenario;
use ringside_bus::{DmaBuffer, Function};
use ringside_model::{FunctionSnapshot, Stepped, WorldSettings};
use ringside_pmd::rdma::{
    Access, AddressHandle, Base, CompletionQueue, Connected, DatagramReady, Drained, Interrupts,
    ObjectUsage, ProtectionDomain, QueuePair, RdmaError, SharedReceiveQueue,
};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::small_config;
use std::sync::{Arc, OnceLock};

/// Requests that may be outstanding on a send queue.
pub(crate) const SENDS: usize = 24;

/// Receives that may be outstanding on a queue pair.
pub(crate) const RECEIVES: usize = 12;

/// Completion queues of each side.
pub(crate) const QUEUES: usize = 2;

/// Completions that each of them holds at least.
pub(crate) const COMPLETIONS: u32 = 256;

/// The most connections at the same time.
pub(crate) const LINKS: usize = 4;

/// Regions of each side.
const PURPOSES: [Purpose; 4] = [
    Purpose::Open,
    Purpose::ZeroBased,
    Purpose::ReadOnly,
    Purpose::Receives,
];

/// The number of runs in a thousand in which both devices have their doorbells mapped. In the
/// others each doorbell is a message, so that a forgotten doorbell is a hang that the run detects.
const RUNS_WITH_MAPPED_DOORBELLS: usize = 100;

/// The number of regions in a thousand that have the application's memory, in a run that draws it.
const OWN: usize = 500;

/// Bytes of memory that no device has access to.
const UNGRANTED_BYTES: usize = 8192;

/// A connected queue pair, in any of its states.
#[derive(Debug)]
pub(crate) enum Handle {
    Ready(QueuePair<Connected>),
    Drained(QueuePair<Drained>),
    Gone,
}

/// An end of a connection, as its user holds it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) handle: Handle,
    /// Bytes that may go inline.
    pub(crate) inline: usize,
    /// Fragments of a request.
    pub(crate) fragments: usize,
    /// Bytes of each receive.
    pub(crate) receive_bytes: usize,
    /// Receives that may be outstanding.
    pub(crate) receives: usize,
}

/// A completion queue, and the state that its user keeps.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) queue: CompletionQueue,
    /// The events that it may give, and must give.
    pub(crate) arming: Arming,
}

/// One side.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) queues: Vec<Queue>,
    pub(crate) shared: Option<SharedReceiveQueue>,
    pub(crate) datagrams: Option<QueuePair<DatagramReady>>,
    pub(crate) to_peer: Option<AddressHandle>,
    pub(crate) to_group: Option<AddressHandle>,
    pub(crate) in_group: bool,
    /// It was to join or leave the group, and the device did not confirm it.
    pub(crate) perhaps_in_group: bool,
    /// The interrupts, in runs in which some are lost.
    pub(crate) interrupts: Option<Interrupts>,
    pub(crate) domain: ProtectionDomain,
    pub(crate) ungranted: DmaBuffer,
    pub(crate) ungranted_picture: Vec<u8>,
    pub(crate) device: Device,
    pub(crate) before: FunctionSnapshot,
    /// Objects in use, and bytes of memory, when only the device was up.
    pub(crate) at_first: (ObjectUsage, usize),
}

/// Two functions that reach each other, in the world that the scenario asks for.
pub(crate) fn world(scenario: &Scenario) -> Stepped {
    let settings = WorldSettings {
        frames_as_bytes: scenario.frames_as_bytes,
        ..WorldSettings::with_functions(2)
    };
    let is_mapped = Random::split(scenario.seed, 0xD00B).chance(RUNS_WITH_MAPPED_DOORBELLS);
    if is_mapped && let Ok(world) = Stepped::with_mapped_doorbells(&settings) {
        return world;
    }
    // A machine without memory for two doorbell pages runs with messages.
    Stepped::new(&settings)
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Rule::CallRight, format!("{what}: {error}"))
}

/// Objects in use, and bytes of memory besides those behind the host memory cache.
pub(crate) fn usage(device: &Device) -> Result<(ObjectUsage, usize), RdmaError> {
    let mut usage = device.object_usage()?;
    let pool = device.pool().map(|pool| pool.usage());
    let used = pool.map_or(0, |pool| pool.used_bytes);
    let besides = used.saturating_sub(usage.host_memory_cache_bytes as usize);
    usage.host_memory_cache_bytes = 0;
    Ok((usage, besides))
}

/// The initial state of the two functions in every world: read once, because it takes long.
static AS_FOUND: [OnceLock<FunctionSnapshot>; 2] = [OnceLock::new(), OnceLock::new()];

fn as_found(world: &Stepped, index: u16) -> Result<FunctionSnapshot, Problem> {
    let known = AS_FOUND.get(usize::from(index));
    if let Some(found) = known.and_then(OnceLock::get) {
        return Ok(found.clone());
    }
    let found = world.with(|world| world.snapshot(usize::from(index)));
    let found = found.ok_or_else(|| Problem::new(Rule::CallRight, "no such function"))?;
    Ok(known.map_or(found.clone(), |known| known.get_or_init(|| found).clone()))
}

/// Brings a device up; its numbers follow from the seed.
pub(crate) fn bring_up(
    world: &Stepped,
    index: u16,
    function: Arc<dyn Function>,
    seed: u64,
) -> Result<(Device, FunctionSnapshot), Problem> {
    let before = as_found(world, index)?;
    let options = BringUpOptions {
        predictable: Some(seed ^ (u64::from(index) << 63)),
        ..BringUpOptions::default()
    };
    let device = Device::bring_up(function, &small_config(), options);
    let device = device.map_err(|error| failed("bring-up", &error))?;
    Ok((device, before))
}

/// Makes one of the regions of a side.
fn arena(
    device: &Device,
    domain: &ProtectionDomain,
    (purpose, longest): (Purpose, usize),
    (random, own): (&mut Random, Option<&mut Random>),
) -> Result<Arena, Problem> {
    let bytes = arena_bytes(purpose, longest);
    let access = match purpose {
        Purpose::Open | Purpose::ZeroBased => Access::ALL,
        Purpose::ReadOnly => Access::REMOTE_READ | Access::LOCAL_WRITE,
        Purpose::Receives => Access::LOCAL_WRITE,
    };
    let base = match purpose {
        Purpose::ZeroBased => Base::Zero,
        _ => Base::Address,
    };
    // Several buffers: the device finds their pages through a page list.
    let first = 4096 * random.within(1, 3);
    let sizes = if random.chance(700) {
        vec![first, bytes - first]
    } else {
        vec![bytes]
    };
    let is_own = own.is_some_and(|own| own.chance(OWN));
    let buffers = if is_own {
        vec![own_memory(device, vec![0; bytes])?]
    } else {
        let buffers = sizes.into_iter().map(|size| device.allocate(size));
        let buffers = buffers.collect::<Result<Vec<_>, _>>();
        buffers.map_err(|error| failed("memory for a region", &error))?
    };
    let region = domain.register_based(buffers, access, base);
    let region = region.map_err(|error| failed("a region", &error))?;
    let made = Arena::new((purpose, longest), region, random);
    let mut arena =
        made.ok_or_else(|| Problem::new(Rule::CallRight, "a region does not take its bytes"))?;
    arena.is_own = is_own;
    Ok(arena)
}

/// Memory of the application, mapped for the device.
fn own_memory(device: &Device, content: Vec<u8>) -> Result<DmaBuffer, Problem> {
    let mapped = device.map_memory(content);
    mapped.map_err(|error| failed("mapping the application's memory", &error))
}

fn completion_queues(device: &Device) -> Result<Vec<Queue>, Problem> {
    let queues = (0..QUEUES).map(|_| {
        let queue = device.completion_queue(COMPLETIONS)?;
        Ok(Queue {
            queue,
            arming: Arming::default(),
        })
    });
    let queues = queues.collect::<Result<Vec<_>, RdmaError>>();
    queues.map_err(|error| failed("a completion queue", &error))
}

impl Side {
    /// Makes the objects that a side always has, and the expected contents of its regions.
    pub(crate) fn new(
        (device, before): (Device, FunctionSnapshot),
        longest: usize,
        (random, mut own): (&mut Random, Option<&mut Random>),
    ) -> Result<(Self, Vec<Arena>), Problem> {
        let at_first = usage(&device).map_err(|error| failed("object usage", &error))?;
        let domain = device.protection_domain();
        let domain = domain.map_err(|error| failed("a protection domain", &error))?;
        let arenas = PURPOSES
            .into_iter()
            .map(|purpose| {
                let draws = (&mut *random, own.as_deref_mut());
                arena(&device, &domain, (purpose, longest), draws)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let queues = completion_queues(&device)?;
        let ungranted = device.allocate(UNGRANTED_BYTES);
        let ungranted = ungranted.map_err(|error| failed("memory", &error))?;
        let ungranted_picture = random.bytes(UNGRANTED_BYTES);
        if !ungranted.write(0, &ungranted_picture) {
            return Err(Problem::new(
                Rule::CallRight,
                "memory does not take its bytes",
            ));
        }
        let side = Self {
            queues,
            shared: None,
            datagrams: None,
            to_peer: None,
            to_group: None,
            in_group: false,
            perhaps_in_group: false,
            interrupts: None,
            domain,
            ungranted,
            ungranted_picture,
            device,
            before,
            at_first,
        };
        Ok((side, arenas))
    }

    /// Makes all objects again on a recovered device; memory keeps its content. `own` draws the
    /// regions that get the application's memory now, with the same content.
    pub(crate) fn renew(
        &mut self,
        arenas: &mut [Arena],
        mut own: Option<&mut Random>,
    ) -> Result<(), Problem> {
        let domain = self.device.protection_domain();
        self.domain = domain.map_err(|error| failed("a protection domain", &error))?;
        for arena in arenas {
            let Some(region) = arena.region.take() else {
                continue;
            };
            let (access, base) = (region.access(), region.base());
            let mut content = vec![0; region.length()];
            let was_read = region.read(0, &mut content);
            let buffers = region.deregister();
            let mut buffers = buffers.map_err(|error| failed("deregistering", &error))?;
            if own.as_deref_mut().is_some_and(|own| own.chance(OWN)) && was_read {
                arena.is_own = true;
                buffers = vec![own_memory(&self.device, content)?];
            }
            let region = self.domain.register_based(buffers, access, base);
            arena.region = Some(region.map_err(|error| failed("a region", &error))?);
        }
        self.queues = completion_queues(&self.device)?;
        if self.interrupts.take().is_some() {
            let interrupts = self.device.interrupts();
            let interrupts = interrupts.map_err(|error| failed("an interrupt", &error))?;
            self.interrupts = Some(interrupts);
        }
        Ok(())
    }

    /// Checks that memory to which no device has access is unchanged.
    pub(crate) fn check_ungranted(&self) -> Result<(), Problem> {
        let mut bytes = vec![0; self.ungranted_picture.len()];
        let read = self.ungranted.read(0, &mut bytes);
        if read && bytes == self.ungranted_picture {
            return Ok(());
        }
        Err(Problem::new(
            Rule::OutsideUntouched,
            "memory that was never registered has changed",
        ))
    }
}
