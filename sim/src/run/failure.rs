//! Faults of functions: they strike, the driver detects them, all outstanding requests complete,
//! the device is recovered, and its objects are made again.

use super::Run;
use crate::fault::FaultEvent;
use crate::oracle::Harm;
use crate::rule::{Problem, Rule};
use ringside_bus::DmaSpace;
use ringside_model::Fault;
use ringside_model::faults::ANY_ADMIN_COMMAND;
use ringside_spec::lan::admin::Opcode;
use std::time::Duration;

/// Rounds in which a driver must detect that its device failed: each takes at least 100 us.
const NOTICE_ROUNDS: usize = 2_000;

/// The effect of a fault on its device and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The data path stops, and the device must be recovered.
    Stops,
    /// Commands are not answered, and the device must be recovered; data goes on.
    StopsCommands,
    /// Accesses to memory are refused. Only if all are, the driver must detect it.
    RefusesMemory { all: bool },
    /// Commands fail: the driver may take the device out of service.
    FailsCommands,
    /// The driver must continue without any reaction.
    Harmless,
}

/// The class of a fault. A fault that the model gets has to be put into one.
fn class(fault: Fault) -> Class {
    match fault {
        Fault::Reset(_)
        | Fault::HmcError { .. }
        | Fault::CriticalError { .. }
        | Fault::ProtocolEngineStall
        | Fault::FunctionDead => Class::Stops,
        Fault::FirmwareStall => Class::StopsCommands,
        Fault::AdminCommandSilent { opcode }
            if opcode == ANY_ADMIN_COMMAND || opcode == Opcode::GetVersion.code() =>
        {
            Class::StopsCommands
        }
        Fault::DmaRefused(refusal) => Class::RefusesMemory {
            all: refusal.accesses.is_none(),
        },
        Fault::ControlCommandDelayed { .. }
        | Fault::ControlCompletionLate { .. }
        | Fault::AdminCommandDelayed { .. }
        | Fault::InterruptsLost { .. }
        | Fault::LinkDown => Class::Harmless,
        Fault::AdminCommandFails { .. }
        | Fault::AdminCommandSilent { .. }
        | Fault::AdminCommandGarbled { .. }
        | Fault::ControlCommandFails { .. }
        | Fault::ControlCommandSilent { .. }
        | Fault::ControlCommandGarbled { .. }
        | Fault::MappedMemoryAtMost { .. }
        // Faults of the bring-up, of the wire and of single objects, which no run draws.
        | Fault::ResetNeverEnds
        | Fault::FirmwareNeverReady
        | Fault::ProtocolEngineStatus(_)
        | Fault::ControlQueueCreationFails
        | Fault::ControlQueueCreationSilent
        | Fault::EngineEvent { .. }
        | Fault::ModuleAbsent
        | Fault::LldpAgent
        | Fault::NoPackageLoaded
        | Fault::FlashPackageOnly
        | Fault::DropFrames { .. }
        | Fault::DuplicateFrames { .. }
        | Fault::ReorderFrames { .. }
        | Fault::DelayFrames { .. }
        | Fault::CorruptFrames { .. }
        | Fault::MarkFrames { .. } => Class::FailsCommands,
    }
}

/// True if the device has failed with this fault and must be recovered.
fn is_fatal(fault: Fault) -> bool {
    matches!(
        class(fault),
        Class::Stops | Class::StopsCommands | Class::RefusesMemory { all: true }
    )
}

/// True if the driver must continue without any reaction.
fn is_harmless(fault: Fault) -> bool {
    class(fault) == Class::Harmless
}

/// The effect of a fault on the data path of its device.
fn harm(fault: Fault) -> Harm {
    Harm {
        stops: class(fault) == Class::Stops,
        lacks_memory: matches!(class(fault), Class::RefusesMemory { .. }),
        given_up: false,
    }
}

impl Run<'_> {
    /// Ends the faults whose time is over, and recovers the failed devices.
    pub(super) fn end_faults(&mut self, step: u32) -> Result<(), Problem> {
        let (over, on): (Vec<_>, Vec<_>) =
            self.ending.drain(..).partition(|(end, ..)| *end <= step);
        self.ending = on;
        for (_, function, fault) in over {
            if is_harmless(fault) {
                self.note(|| format!("{fault} of function {function} ends"));
                self.world
                    .with(|world| world.clear_fault(function.into(), fault));
                if fault == Fault::LinkDown {
                    self.link_is(function.into(), false);
                }
                if matches!(fault, Fault::InterruptsLost { .. }) {
                    self.interrupts_are_back(function.into())?;
                }
                continue;
            }
            let side = usize::from(function);
            // An earlier recovery may have ended it.
            if self.ledger.weather.trouble.get(side) == Some(&true) {
                self.fail_over(side, fault)?;
            }
        }
        Ok(())
    }

    /// Injects the faults that are due.
    pub(super) fn strike(
        &mut self,
        step: u32,
        events: &[FaultEvent],
        struck: &mut Vec<FaultEvent>,
    ) {
        for event in events {
            match *event {
                FaultEvent::Function {
                    step: when,
                    function,
                    fault,
                    steps,
                } if when == step => {
                    self.note(|| format!("fault: {event}"));
                    self.world
                        .with(|world| world.inject(function.into(), fault));
                    let end = step.saturating_add(steps.max(1));
                    self.ending.push((end, function, fault));
                    let trouble = self.ledger.weather.trouble.get_mut(usize::from(function));
                    if let Fault::InterruptsLost { .. } = fault
                        && let Some(lossy) = self.lossy.get_mut(usize::from(function))
                    {
                        *lossy = true;
                    }
                    if let Some(trouble) = trouble.filter(|_| !is_harmless(fault)) {
                        *trouble = true;
                    }
                    if let Some(known) = self.ledger.weather.harm.get_mut(usize::from(function)) {
                        let more = harm(fault);
                        known.stops |= more.stops;
                        known.lacks_memory |= more.lacks_memory;
                    }
                    if fault == Fault::LinkDown {
                        self.link_is(function.into(), true);
                    }
                }
                FaultEvent::Clock {
                    step: when,
                    milliseconds,
                } if when == step => {
                    self.note(|| format!("fault: {event}"));
                    self.world.jump(Duration::from_millis(milliseconds.into()));
                    self.ledger.weather.outages += 1;
                }
                _ => continue,
            }
            struck.push(*event);
        }
    }

    /// The link of a side goes down or comes up: frames lost in between are not counted.
    fn link_is(&mut self, side: usize, down: bool) {
        let weather = &mut self.ledger.weather;
        weather.outages += 1;
        if let Some(known) = weather.link_down.get_mut(side) {
            *known = down;
        }
    }

    fn fail_over(&mut self, side: usize, fault: Fault) -> Result<(), Problem> {
        self.notice(side, fault)?;
        self.check_flushed(side)?;
        self.counts.accesses_refused += self.world.with(|world| {
            let refused = world.space(side).map_or(0, DmaSpace::refusals);
            world.clear_faults(side);
            refused
        });
        self.ending
            .retain(|(_, function, fault)| usize::from(*function) != side || is_harmless(*fault));
        self.ending.retain(|(_, function, fault)| {
            // The link came up together with the end of other faults.
            usize::from(*function) != side || *fault != Fault::LinkDown
        });
        if self.ledger.weather.link_down.get(side) == Some(&true) {
            self.link_is(side, false);
        }
        self.excuse_packets();
        let destroy_first = self.random.chance(500);
        if destroy_first {
            self.drop_port(side);
            self.destroy_all(side)?;
        }
        let recovered = self.call("recovering a device", |run| run.side(side).device.recover())?;
        match recovered {
            Ok(report) => self.note(|| {
                format!(
                    "side {side}: recovered in {} us: {}",
                    report.took.as_micros(),
                    report.cause
                )
            }),
            Err(error) => {
                let text = format!("side {side}, after {fault}: {error}");
                return Err(Problem::new(Rule::CallRight, text));
            }
        }
        if !destroy_first {
            self.destroy_all(side)?;
        }
        self.forget_old_keys(side);
        let mut own = self.own_memory_again();
        let [first, second] = &mut self.sides;
        let place = if side == 0 { first } else { second };
        if let Some(arenas) = self.ledger.memory.arenas.get_mut(side) {
            // Keys from before the recovery are no longer valid.
            let regions = arenas.iter().filter_map(|arena| arena.region.as_ref());
            let ended = regions.map(|region| region.remote().at(64));
            if let Some(dead) = self.dead_keys.get_mut(side) {
                dead.extend(ended);
            }
            place.renew(arenas, own.as_mut())?;
        }
        self.count_own_memory(side);
        if let Some(trouble) = self.ledger.weather.trouble.get_mut(side) {
            *trouble = false;
        }
        if let Some(harm) = self.ledger.weather.harm.get_mut(side) {
            *harm = Harm::default();
        }
        if let Some(told) = self.told.get_mut(side) {
            *told = 0;
        }
        self.ledger.recovered(side);
        self.open_datagrams()?;
        self.reopen_port(side)?;
        self.compare()
    }

    /// Waits until the driver reports that its device failed; otherwise declares it failed.
    fn notice(&mut self, side: usize, fault: Fault) -> Result<(), Problem> {
        let fatal = is_fatal(fault);
        for _ in 0..NOTICE_ROUNDS {
            self.call("asking for a sign of life", |run| {
                run.side(side).device.probe()
            })?;
            self.poll_all()?;
            if self.side(side).device.failure().is_some() {
                break;
            }
            if !fatal {
                self.note(|| format!("side {side} is declared failed"));
                let given_up = self.side(side).device.give_up();
                if let Err(error) = given_up {
                    return Err(Problem::new(
                        Rule::CallRight,
                        format!("giving a device up: {error}"),
                    ));
                }
                break;
            }
            self.clock.pause(Duration::from_micros(100));
        }
        self.poll_all()?;
        if self.side(side).device.failure().is_none() {
            let text = format!("side {side} did not notice {fault}");
            return Err(Problem::new(Rule::EventRight, text));
        }
        if self.told.get(side) != Some(&1) {
            let text = format!(
                "side {side} got {:?} reports of {fault}",
                self.told.get(side)
            );
            return Err(Problem::new(Rule::EventRight, text));
        }
        Ok(())
    }

    /// Checks that every outstanding request on a failed device has completed.
    fn check_flushed(&mut self, side: usize) -> Result<(), Problem> {
        self.poll_all()?;
        match self.ledger.outstanding_at(side) {
            None => Ok(()),
            Some(text) => Err(Problem::new(
                Rule::Completes,
                format!("the device of side {side} has failed: {text}"),
            )),
        }
    }

    /// Destroys every object of a failed device.
    fn destroy_all(&mut self, side: usize) -> Result<(), Problem> {
        let links: Vec<u32> = self.held.keys().copied().collect();
        for link in links {
            self.destroy_link(link)?;
        }
        self.close_datagrams()?;
        let place = self.side(side);
        place.shared = None;
        place.queues.clear();
        self.ledger.forget_pool(side);
        Ok(())
    }
}
