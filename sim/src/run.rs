//! One run: brings both devices up, performs the steps, checks the results, and shuts down.

mod connections;
mod control;
mod datagrams;
mod extra;
mod failure;
mod finish;
mod keys;
mod own;
mod packets;
mod poll;
mod reuse;
mod transfers;
mod wrong;

use crate::fault::FaultEvent;
use crate::oracle::{Ledger, Seen};
use crate::random::{Digest, Random};
use crate::rig::{self, Held, Side};
use crate::rule::{Finding, Problem, Rule};
use crate::scenario::{Scenario, Step, StepKind};
use crate::seam::Interference;
use crate::wire::{self, Wire};
use ringside_bus::{Clock, Function};
use ringside_model::{Stepped, TimeOver};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The longest virtual time for one call of the driver: a command's deadline, twice, and the
/// five seconds that a queue pair may take to drain.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The longest virtual time for a step, and for all that comes before the first or after the last:
/// more than all its calls and waits may take. A run that is beyond it hangs.
const STEP_LIMIT: Duration = Duration::from_secs(600);

/// The number of runs in a thousand that have messages of up to 1 MiB.
const RUNS_WITH_LONG_MESSAGES: usize = 20;

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests posted, receives included.
    pub posted: u64,
    /// Completions.
    pub completed: u64,
    /// Successful completions.
    pub succeeded: u64,
    /// Frames sent.
    pub frames: u64,
    /// Bytes of requests that succeeded.
    pub bytes: u64,
    /// Memory accesses that the host refused.
    pub accesses_refused: u64,
    /// Completion events whose interrupt did not arrive.
    pub interrupts_lost: u64,
    /// Admin commands that failed or were answered late.
    pub admin_troubles: u64,
    /// Completion queues that overflowed on purpose.
    pub overflows: u64,
    /// Buffers that a device in trouble returned and that were used again.
    pub reused: u64,
    /// Requests of more than 5,000 bytes that succeeded.
    pub long_messages: u64,
    /// Runs with mapped doorbells.
    pub mapped_doorbells: u64,
    /// Runs with packets beside RDMA.
    pub runs_with_packets: u64,
    /// Packets sent.
    pub packets: u64,
    /// Regions of the application's own memory, at the start and after recoveries.
    pub own_memory: u64,
    /// Addresses that were added and removed.
    pub addresses: u64,
    /// Connections with drawn attributes.
    pub attributes: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.posted += other.posted;
        self.completed += other.completed;
        self.succeeded += other.succeeded;
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.accesses_refused += other.accesses_refused;
        self.interrupts_lost += other.interrupts_lost;
        self.admin_troubles += other.admin_troubles;
        self.overflows += other.overflows;
        self.reused += other.reused;
        self.long_messages += other.long_messages;
        self.mapped_doorbells += other.mapped_doorbells;
        self.runs_with_packets += other.runs_with_packets;
        self.packets += other.packets;
        self.own_memory += other.own_memory;
        self.addresses += other.addresses;
        self.attributes += other.attributes;
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first violated rule.
    pub finding: Option<Finding>,
    /// A hash of all events of the run; the same scenario gives the same value.
    pub digest: u64,
    /// Faults that struck, in order.
    pub events: Vec<FaultEvent>,
    /// The counts of the run.
    pub counts: Counts,
    /// Frames that were written as bytes and parsed again: none unless
    /// [`Scenario::frames_as_bytes`] is set.
    pub frames_parsed_again: u64,
    /// Virtual time that passed, nanoseconds.
    pub time_ns: u64,
    /// The steps of the run, if a trace was requested.
    pub trace: Vec<String>,
}

/// A run under way.
pub(crate) struct Run<'a> {
    world: Stepped,
    clock: Arc<dyn Clock>,
    interference: &'a mut dyn Interference,
    sides: [Side; 2],
    held: BTreeMap<u32, [Held; 2]>,
    ledger: Ledger,
    wire: Wire,
    random: Random,
    digest: Digest,
    counts: Counts,
    progress: &'a mut Progress,
    next_id: u64,
    next_link: u32,
    /// Requests whose completion is waited for, and those completions.
    watched: BTreeSet<u64>,
    caught: BTreeMap<u64, (Seen, ringside_pmd::rdma::Completion)>,
    /// Remote keys that are no longer valid, by side.
    dead_keys: [Vec<ringside_pmd::rdma::RemoteAddress>; 2],
    /// Faults of functions that end before a step: function, fault.
    ending: Vec<(u32, u16, ringside_model::Fault)>,
    /// The number of failure reports that a side received since its device was brought up.
    told: [u32; 2],
    /// True while no fault can strike.
    quiet_wire: bool,
    /// Interrupts of a side may have been lost, and its vector be masked for it.
    lossy: [bool; 2],
    /// A completion queue of a side has overflowed, which the model counts.
    overflowed: [bool; 2],
    reuse: reuse::Reuse,
    own: own::Own,
    packets: packets::Packets,
    /// Bytes of the longest message.
    longest: usize,
}

/// The lines of [`Outcome::trace`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// None.
    #[default]
    Off,
    /// The steps. The run is the same as without a trace.
    Steps,
    /// The steps, and all frames. Every packet is a frame of its own then, so that a run without
    /// faults of frames may take another course.
    Frames,
}

/// Performs a scenario.
#[must_use]
pub fn run(scenario: &Scenario, trace: Trace, interference: &mut dyn Interference) -> Outcome {
    let wire = Wire::default();
    let world = rig::world(scenario);
    let mut record = Record {
        progress: Progress {
            trace: (trace != Trace::Off).then(Vec::new),
            shows_frames: trace == Trace::Frames,
            ..Progress::default()
        },
        digest: Digest::new(),
        counts: Counts::default(),
        of_functions: Vec::new(),
        frames_parsed_again: 0,
    };
    let result = {
        let all =
            AssertUnwindSafe(|| perform(scenario, (&world, &wire), &mut record, interference));
        catch_unwind(all).unwrap_or_else(|panic| Err(of_panic(&*panic, &record.progress)))
    };
    let time_ns = world.clock().now().0;
    let book = wire.book().clone();
    let mut events = record.of_functions;
    events.extend(book.events);
    record.digest.add(&[time_ns, events.len() as u64]);
    Outcome {
        finding: result.err().map(|(problem, step)| Finding {
            rule: problem.rule,
            what: problem.what,
            step,
            time_ns,
        }),
        digest: record.digest.value(),
        events,
        counts: record.counts,
        frames_parsed_again: record.frames_parsed_again,
        time_ns,
        trace: record.progress.trace.unwrap_or_default(),
    }
}

type Stopped = (Problem, Option<u32>);

fn of_panic(panic: &(dyn std::any::Any + Send), progress: &Progress) -> Stopped {
    if panic.is::<TimeOver>() {
        let what = match progress.call.as_str() {
            "" => "the run",
            call => call,
        };
        let limit = match progress.call.as_str() {
            "" => STEP_LIMIT,
            _ => CALL_LIMIT,
        };
        let text = format!("{what} does not end within {} s", limit.as_secs());
        return (Problem::new(Rule::EndsInTime, text), progress.step);
    }
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    let what = text.unwrap_or("no words").to_owned();
    (Problem::new(Rule::NoPanic, what), progress.step)
}

/// The point that a run has reached; known after a panic as well.
#[derive(Default)]
struct Progress {
    trace: Option<Vec<String>>,
    shows_frames: bool,
    step: Option<u32>,
    /// the call of the driver that is under way
    call: String,
}

/// Records of a run under way. Those of a run that panics stay as they began, but for the faults
/// and the progress.
struct Record {
    progress: Progress,
    digest: Digest,
    counts: Counts,
    /// Faults of functions that struck, in order.
    of_functions: Vec<FaultEvent>,
    frames_parsed_again: u64,
}

fn perform(
    scenario: &Scenario,
    (world, wire): (&Stepped, &Wire),
    record: &mut Record,
    interference: &mut dyn Interference,
) -> Result<(), Stopped> {
    let last = scenario.steps.last().map_or(0, |step| step.number + 1);
    let (of_frames, events) = wire::divide(&scenario.faults, scenario.seed, last);
    let progress = &mut record.progress;
    let mut run = Run::new(scenario.seed, (world, wire), progress, interference)
        .map_err(|problem| (problem, None))?;
    run.quiet_wire = of_frames.is_quiet() && events.is_empty();
    let forge = run.interference.forges();
    // Packets then go from function to function as in service: in long frames, or without one.
    if !of_frames.is_quiet() || forge.is_some() {
        let script = wire.script(of_frames, forge);
        world.with(|world| world.switch().set_script(Some(script)));
    }
    if run.progress.shows_frames {
        run.wire.book().shown = Some(Vec::new());
        world.with(|world| world.switch().set_tap(Some(wire.tap())));
    }
    run.reuse.wanted = events.iter().any(breaks_commands);
    let mut result = Ok(());
    if events.iter().any(loses_interrupts) {
        result = run.connect_interrupts();
    }
    for step in &scenario.steps {
        result = result
            .and_then(|()| run.take_step(scenario.seed, *step, &events, &mut record.of_functions))
            .and_then(|()| run.after_step(scenario.seed, step.number));
        if result.is_err() {
            break;
        }
    }
    let step = run.progress.step.filter(|_| result.is_err());
    let result = result.and_then(|()| run.settle_down(last));
    record.digest = run.digest;
    record.counts = run.counts.clone();
    record.counts.mapped_doorbells = world.has_mapped_doorbells().into();
    world.with(|world| {
        let switch = world.switch();
        record.counts.frames = switch.counters().delivered;
        record.frames_parsed_again = switch.parsed_again();
    });
    match result {
        Ok(()) => {
            let (troubled, overflowed) = (run.ledger.weather.trouble, run.overflowed);
            let (world, sides) = run.into_sides();
            finish::take_down(&world, sides, troubled, overflowed)
                .map_err(|problem| (problem, None))
        }
        Err(problem) => Err((problem, step)),
    }
}

fn loses_interrupts(event: &FaultEvent) -> bool {
    let FaultEvent::Function { fault, .. } = event else {
        return false;
    };
    matches!(fault, ringside_model::Fault::InterruptsLost { .. })
}

fn breaks_commands(event: &FaultEvent) -> bool {
    match event {
        FaultEvent::Function { fault, .. } => reuse::is_of_commands(*fault),
        FaultEvent::Frame { .. } | FaultEvent::Clock { .. } => false,
    }
}

/// Returns the longest message of a run, in bytes.
fn longest(seed: u64) -> usize {
    if Random::split(seed, 0xB16).chance(RUNS_WITH_LONG_MESSAGES) {
        1 << 20
    } else {
        transfers::MAX_BYTES
    }
}

impl<'a> Run<'a> {
    fn new(
        seed: u64,
        (world, wire): (&Stepped, &Wire),
        progress: &'a mut Progress,
        interference: &'a mut dyn Interference,
    ) -> Result<Self, Problem> {
        world.end_at(Some(world.clock().now().plus(STEP_LIMIT)));
        let mut random = Random::split(seed, 0x5E7);
        let mut ledger = Ledger::default();
        let mut sides = Vec::new();
        interference.begin(world);
        for index in 0..2 {
            let function: Option<Arc<dyn Function>> = world.function(index);
            let function = function.ok_or_else(|| Problem::new(Rule::CallRight, "no function"))?;
            let function = interference.function(index, function);
            let up = rig::bring_up(world, index, function, seed)?;
            let mut own = own::of_memory(seed, index.into());
            let (side, arenas) = Side::new(up, longest(seed), (&mut random, own.as_mut()))?;
            if let Some(place) = ledger.memory.arenas.get_mut(usize::from(index)) {
                *place = arenas;
            }
            sides.push(side);
        }
        let sides = <[Side; 2]>::try_from(sides);
        let sides = sides.map_err(|_| Problem::new(Rule::CallRight, "two sides"))?;
        let mut run = Self {
            clock: world.clock(),
            world: world.clone(),
            interference,
            sides,
            held: BTreeMap::new(),
            ledger,
            wire: wire.clone(),
            random,
            digest: Digest::new(),
            counts: Counts::default(),
            progress,
            next_id: 1,
            next_link: 0,
            watched: BTreeSet::new(),
            caught: BTreeMap::new(),
            dead_keys: [Vec::new(), Vec::new()],
            ending: Vec::new(),
            told: [0; 2],
            quiet_wire: false,
            lossy: [false; 2],
            overflowed: [false; 2],
            reuse: reuse::Reuse::default(),
            own: own::Own::of(seed),
            packets: packets::Packets::default(),
            longest: longest(seed),
        };
        run.count_own_memory(0);
        run.count_own_memory(1);
        run.open_datagrams()?;
        run.connect()?;
        run.open_ports(seed)?;
        Ok(run)
    }

    fn into_sides(self) -> (Stepped, [Side; 2]) {
        (self.world, self.sides)
    }

    fn take_step(
        &mut self,
        seed: u64,
        step: Step,
        events: &[FaultEvent],
        struck: &mut Vec<FaultEvent>,
    ) -> Result<(), Problem> {
        self.progress.step = Some(step.number);
        self.random = Random::split(seed, 0x1_0000 + u64::from(step.number));
        self.end_faults(step.number)?;
        self.strike(step.number, events, struck);
        // Behind a jump of the clock, which is no wait.
        self.limit_time();
        self.let_interfere(step.number);
        self.digest
            .add(&[u64::from(step.number), self.clock.now().0]);
        self.note(|| format!("{:?}", step.kind));
        match step.kind {
            StepKind::Write => self.write(),
            StepKind::Read => self.read(),
            StepKind::Send => self.send(),
            StepKind::Chain => self.chain(),
            StepKind::Receive => self.receive(),
            StepKind::NoOperation => self.no_operation(),
            StepKind::Datagram => self.datagram(false),
            StepKind::GroupDatagram => self.datagram(true),
            StepKind::Group => self.group(),
            StepKind::Window => self.window(),
            StepKind::FastRegister => self.fast_register(),
            StepKind::Invalidate => self.invalidate(),
            StepKind::Reregister => self.reregister(),
            StepKind::Connect => self.connect(),
            StepKind::Destroy => self.destroy(),
            StepKind::Fail => self.fail(),
            StepKind::Drain => self.drain(),
            StepKind::Resume => self.resume(),
            StepKind::Resize => self.resize(),
            StepKind::Arm => self.arm(),
            StepKind::Query => self.query(),
            StepKind::Objects => self.objects(),
            StepKind::WrongRemote => self.wrong_remote(),
            StepKind::WrongLocal => self.wrong_local(),
            StepKind::TooLong => self.too_long(),
            StepKind::WrongCall => self.wrong_call(),
            StepKind::Pass => self.pass(),
            StepKind::Poll => self.poll_a_little(),
            StepKind::Compare => self.compare(),
        }
    }

    fn let_interfere(&mut self, step: u32) {
        let [first, second] = &self.sides;
        let devices = [&first.device, &second.device];
        let ungranted = [first.ungranted.iova(), second.ungranted.iova()];
        self.interference
            .between(step, &self.world, devices, ungranted);
    }

    /// Adds a line to the trace, if there is one.
    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.clock.now().0;
        let Progress { trace, step, .. } = &mut *self.progress;
        if let Some(trace) = trace {
            let step = step.map_or(String::from("-"), |step| step.to_string());
            let shown = self.wire.book().shown.as_mut().map(std::mem::take);
            for (at, frame) in shown.unwrap_or_default() {
                let at = at.map_or(String::from("-"), |at| at.0.to_string());
                trace.push(format!("{at:>12} ns  {step:>4}    {frame}"));
            }
            trace.push(format!("{now:>12} ns  {step:>4}  {}", text()));
        }
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Gives the next part of the run its time: one that never ends is found.
    fn limit_time(&self) {
        let end = self.clock.now().plus(STEP_LIMIT);
        self.world.end_at(Some(end));
    }

    /// Calls the driver, and checks that the call ends in time.
    fn call<T>(&mut self, what: &str, call: impl FnOnce(&mut Self) -> T) -> Result<T, Problem> {
        let before = self.clock.now();
        let end_of_part = self.world.end_at(Some(before.plus(CALL_LIMIT)));
        what.clone_into(&mut self.progress.call);
        let result = call(self);
        self.progress.call.clear();
        self.world.end_at(end_of_part);
        let took = self.clock.now().since(before);
        self.digest.add(&[self.clock.now().0]);
        if took > CALL_LIMIT {
            let text = format!(
                "{what} took {} ms, {} are allowed",
                took.as_millis(),
                CALL_LIMIT.as_millis()
            );
            return Err(Problem::new(Rule::EndsInTime, text));
        }
        Ok(result)
    }

    /// Calls the driver of a side. The call must succeed, unless the device of that side is in
    /// trouble: trouble of the other side excuses nothing.
    fn must<T, E: std::fmt::Display>(
        &mut self,
        side: usize,
        what: &str,
        call: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        match self.call(what, call)? {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.note(|| format!("side {side}, {what}: {error}"));
                if self.is_troubled_at(side) {
                    return Ok(None);
                }
                let text = format!("side {side}, {what}: {error}");
                Err(Problem::new(Rule::CallRight, text))
            }
        }
    }

    fn is_troubled(&self) -> bool {
        self.ledger.weather.trouble.contains(&true)
    }

    fn is_troubled_at(&self, side: usize) -> bool {
        self.ledger.weather.is_troubled_at(side)
    }

    fn side(&mut self, side: usize) -> &mut Side {
        let [first, second] = &mut self.sides;
        if side == 0 { first } else { second }
    }
}
