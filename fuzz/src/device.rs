//! A whole driver on a device with false answers: brought up, used, recovered, shut down.
//!
//! Checked: every call ends within a time limit; memory is unmapped only from a function that can
//! no longer access it; a request completes at most once. A device without false answers is brought
//! up, works, finds no breach of the interface, and is left in its initial state. A device that
//! gives correct answers again can be recovered.

use crate::interposer::Interposer;
use crate::interposer::lying::Lying;
use crate::source::Source;
use ringside_bus::{Clock, Function};
use ringside_model::{Stepped, WorldSettings};
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, MemoryRegion, Notify, ProtectionDomain,
    QueuePair, QueuePairConfig, RdmaError, WindowKind,
};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::small_config;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The time limit of one call, on the clock of the device.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Steps of one input.
const STEPS: usize = 48;
/// The most connections at the same time, of two queue pairs each.
const PAIRS: usize = 3;
const REGIONS: usize = 4;
const REGION_BYTES: usize = 8192;

/// The objects of the driver's user between two recoveries of the device.
struct Life {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    pairs: Vec<QueuePair<Connected>>,
    regions: Vec<MemoryRegion>,
}

impl Life {
    fn new(device: &Device) -> Result<Self, RdmaError> {
        Ok(Self {
            domain: device.protection_domain()?,
            completions: device.completion_queue(128)?,
            pairs: Vec::new(),
            regions: Vec::new(),
        })
    }

    /// Connects two queue pairs with each other.
    fn connect(&mut self) -> Result<(), RdmaError> {
        if self.pairs.len() >= 2 * PAIRS {
            return Ok(());
        }
        let config = || {
            QueuePairConfig::reliable(&self.completions)
                .send_requests(8)
                .receive_requests(4)
                .retries(1)
        };
        let first = self.domain.queue_pair(config())?;
        let second = self.domain.queue_pair(config())?;
        let (to_first, to_second) = (first.endpoint(), second.endpoint());
        let ends = [first.connect(&to_second), second.connect(&to_first)];
        self.pairs.extend(ends.into_iter().flatten());
        Ok(())
    }

    fn register(&mut self, device: &Device, how: u8) -> Result<(), RdmaError> {
        if self.regions.len() >= REGIONS {
            self.regions.swap_remove(usize::from(how) % REGIONS);
        }
        let buffer = device.allocate(REGION_BYTES)?;
        let region = self.domain.register(buffer, Access::ALL);
        let region = region.map_err(|refused| refused.error)?;
        self.regions.push(region);
        Ok(())
    }
}

struct InterposedDevice {
    lies: Arc<Interposer>,
    device: Device,
    life: Option<Life>,
    next_id: u64,
    posted: BTreeSet<u64>,
}

impl InterposedDevice {
    /// Does work that must end within the limit; `what` names it.
    fn within<T>(lies: &Interposer, what: &str, work: impl FnOnce() -> T) -> T {
        let (began, before) = (lies.now(), lies.jumped());
        let result = work();
        let took = lies.now().since(began) - (lies.jumped() - before);
        assert!(took <= CALL_LIMIT, "{what} took {took:?}");
        result
    }

    fn poll(&mut self) {
        let Some(life) = &mut self.life else {
            return;
        };
        let mut batch = [Completion::EMPTY; 8];
        for completion in life.completions.poll(&mut batch) {
            let known = self.posted.remove(&completion.id);
            assert!(known, "completed twice, or never posted: {completion:?}");
        }
    }

    fn post(&mut self, how: u8) {
        let Some(life) = &mut self.life else {
            return;
        };
        let count = life.pairs.len().max(1);
        let Some(queue_pair) = life.pairs.get_mut(usize::from(how >> 4) % count) else {
            return;
        };
        let region = life.regions.first();
        let fragment = region.and_then(|region| region.slice(0..256).ok());
        let pieces = fragment.as_slice();
        let remote = region.map(|region| region.remote().at(0));
        let (id, flags) = (self.next_id, Flags::SIGNALLED);
        let result = match (how & 15, remote) {
            (0..=3, _) => queue_pair.no_operation(id, flags),
            (4 | 5, _) => queue_pair.receive(id, pieces),
            (6 | 7, Some(remote)) => queue_pair.write(id, pieces, remote, flags),
            (8, Some(remote)) => queue_pair.read(id, pieces, remote, flags),
            (9, Some(remote)) => queue_pair.write_inline(id, &[how; 64], remote, Some(7), flags),
            (10, _) => queue_pair.send(id, pieces, flags),
            (11, _) => queue_pair.invalidate(id, u32::from(how) << 8, flags),
            _ => queue_pair.send_inline(id, &[how; 32], None, flags),
        };
        if result.is_ok() {
            self.posted.insert(id);
            self.next_id += 1;
        }
        queue_pair.ring();
    }

    fn destroy(&mut self, how: u8) -> Result<(), RdmaError> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        if life.pairs.is_empty() {
            return Ok(());
        }
        let at = usize::from(how >> 1) % life.pairs.len();
        let queue_pair = life.pairs.swap_remove(at);
        if how & 1 == 0 {
            return queue_pair.destroy();
        }
        match queue_pair.drain() {
            Ok(drained) => match drained.resume() {
                Ok(queue_pair) => life.pairs.push(queue_pair),
                Err(refused) => return Err(refused.error),
            },
            Err(refused) => return Err(refused.error),
        }
        Ok(())
    }

    fn ask(&mut self, how: u8) -> Result<(), RdmaError> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        match how % 8 {
            0 => drop(self.device.statistics()?),
            1 => drop(self.device.query_port()?),
            2 => drop(life.completions.query()?),
            3 => {
                if let Some(queue_pair) = life.pairs.first() {
                    queue_pair.query()?;
                }
            }
            4 => {
                if let Some(region) = life.regions.first() {
                    region.is_valid()?;
                }
            }
            5 => drop(life.domain.memory_window(WindowKind::Two)?),
            6 => drop(life.domain.fast_region(4)?),
            _ => {
                let completions = 16 + u32::from(how);
                life.completions
                    .resize(completions)
                    .map_err(|no| no.error)?;
            }
        }
        Ok(())
    }

    fn events(&mut self) -> Result<(), RdmaError> {
        self.device.poll_events(&mut Vec::new())?;
        self.device.poll_completion_events(&mut Vec::new())?;
        if let Some(life) = &mut self.life {
            life.completions.arm(Notify::Next);
        }
        Ok(())
    }

    /// Recovers the device; earlier objects are dropped without commands.
    fn recover(&mut self) -> Result<(), String> {
        let recovered = self.device.recover();
        self.poll();
        // requests from before the recovery complete, or are dropped with their queue pair
        self.life = None;
        self.posted.clear();
        recovered.map_err(|error| error.to_string())?;
        let life = Life::new(&self.device).map_err(|error| error.to_string())?;
        self.life = Some(life);
        Ok(())
    }

    fn step(&mut self, source: &mut Source) -> Result<(), RdmaError> {
        let step = source.byte();
        let how = if step & 8 == 0 {
            step >> 4
        } else {
            source.byte()
        };
        match (step & 7, &mut self.life) {
            (0, Some(life)) => life.connect()?,
            (1, Some(life)) => life.register(&self.device, how)?,
            (2, _) => self.post(how),
            (3, _) => {
                let time = Duration::from_micros(u64::from(how) * 50);
                self.lies.pause(time);
                self.poll();
            }
            (4, _) => self.events()?,
            (5, _) => self.destroy(how)?,
            (6, _) => self.ask(how)?,
            (7, _) if how & 3 == 0 => drop(self.recover()),
            (7, _) if how & 3 == 1 => drop(self.device.probe()),
            (7, _) => drop(self.device.check()),
            _ => {}
        }
        Ok(())
    }

    /// Stops the false answers, recovers the device and checks that it works.
    fn come_back(&mut self) {
        self.lies.be_honest();
        if let Err(error) = self.recover() {
            panic!("an honest device: {error}");
        }
        let life = self.life.as_mut().expect("recovered");
        life.register(&self.device, 0).expect("an honest device");
        life.connect().expect("an honest device");
        self.post(0);
        for _ in 0..100 {
            self.lies.pause(Duration::from_millis(1));
            self.poll();
        }
        assert!(self.posted.is_empty(), "an honest device did nothing");
    }
}

/// A whole driver.
pub fn device(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let lies = Interposer::new(&world, &mut source);
    let comes_back = source.flag();
    let function = Arc::new(Lying(Arc::clone(&lies))) as Arc<dyn Function>;
    let brought_up = InterposedDevice::within(&lies, "bring-up", || {
        let options = BringUpOptions {
            predictable: Some(1),
            ..BringUpOptions::default()
        };
        Device::bring_up(function, &small_config(), options)
    });
    let found = match brought_up {
        Ok(device) => {
            let life = Life::new(&device).ok();
            let interposed = InterposedDevice {
                lies: Arc::clone(&lies),
                device,
                life,
                next_id: 1,
                posted: BTreeSet::new(),
            };
            serve(interposed, &mut source, comes_back)
        }
        Err(error) => {
            assert!(lies.struck() > 0, "an honest device: {error}");
            (error.leaked_bytes, error.undo_failures.len())
        }
    };
    if found == (0, 0) {
        assert!(
            !lies.is_bus_master(),
            "all is well, but it may touch memory"
        );
        assert_eq!(lies.mappings(), 0, "all is well, but memory is mapped");
    }
    if lies.struck() == 0 {
        assert_eq!(found, (0, 0), "an honest device");
        let breaches = world.with(|world| world.breaches(0));
        assert!(breaches.is_empty(), "{breaches:?}");
    }
    lies.empty_memory();
}

/// Uses a device and shuts it down. Returns the bytes leaked and the undos that failed.
fn serve(
    mut interposed: InterposedDevice,
    source: &mut Source,
    comes_back: bool,
) -> (usize, usize) {
    let lies = Arc::clone(&interposed.lies);
    for _ in 0..STEPS {
        if source.is_empty() {
            break;
        }
        lies.between();
        let result = InterposedDevice::within(&lies, "a step", || interposed.step(source));
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
        }
    }
    if comes_back {
        InterposedDevice::within(&lies, "coming back", || interposed.come_back());
    }
    let InterposedDevice { device, life, .. } = interposed;
    InterposedDevice::within(&lies, "the end", || {
        drop(life);
        let report = device.shutdown();
        (report.leaked_bytes, report.failures.len())
    })
}
