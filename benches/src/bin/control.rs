//! Figures of registration and of control operations, with their goals.
//!
//! `control [--json] [--check] [--runs COUNT]`. The first rows: 4 KiB of the program's memory
//! registered on the model, and found in the registration cache. The others: operations a second of
//! one and of four threads on a model that answers each command after 20 us. Both are measured
//! twice: with answers that overlap, as those of a card, and with commands that wait for each
//! other. Runs of all cases take turns; a figure is the median of the runs, beside the least and
//! the most. `--check` fails if a goal is missed. The model has the second core; all threads share
//! the first.

use ringside_benches::connected::{Result, placement};
use ringside_bus::memory::DmaAccess;
use ringside_bus::pinning::pin_to;
use ringside_bus::{DmaPool, LendPermit};
use ringside_model::faults::ANY_CONTROL_COMMAND;
use ringside_model::{Fault, Threaded, WorldSettings};
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, CacheSettings, Completion, CompletionQueue, MemoryRegion, ProtectionDomain,
    QueuePairConfig, RegistrationCache,
};
use ringside_testkit::{bring_up_all, config};
use std::hint::black_box;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// The time in which the model answers a command.
const LATENCY: Duration = Duration::from_micros(20);

/// The number of threads in the runs with several threads.
const THREADS: usize = 4;

/// Registrations of a run; look-ups are a hundred times as many.
const REGISTRATIONS: usize = 500;

/// Operations of each thread and run: one makes an object and ends it.
const OPERATIONS: usize = 300;

/// Runs; each runs all cases.
const RUNS: usize = 11;

/// Memory of the program of which each thread has a page: the most threads are those of the runs
/// with several.
struct Area(&'static [AtomicU8]);

impl Area {
    fn new() -> Self {
        let bytes = (0..(THREADS + 1) * PAGE).map(|_| AtomicU8::new(1));
        Self(Box::leak(bytes.collect()))
    }

    /// A whole page.
    fn page(&self, number: usize) -> *const u8 {
        let first: *const u8 = self.0.as_ptr().cast();
        first.wrapping_add(first.align_offset(PAGE) + number * PAGE)
    }
}

/// The object that an operation makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Object {
    Region,
    QueuePair,
}

/// The answers of the model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Overlap,
    OneByOne,
}

struct Registrar {
    model: Threaded,
    device: Device,
    pool: Arc<DmaPool>,
    domain: ProtectionDomain,
    cache: RegistrationCache,
    permit: LendPermit,
    area: Area,
}

impl Registrar {
    fn new() -> Result<Self> {
        let settings = WorldSettings::with_functions(1);
        // The model on the second core, the program's threads on the first.
        let model = Threaded::start(&settings, Some(1))?;
        pin_to(0)?;
        let [device] = bring_up_all(|index| model.function(index), &config());
        let domain = device.protection_domain()?;
        let area = Area::new();
        let permit = LendPermit::for_static(area.0);
        Ok(Self {
            pool: Arc::clone(device.pool().ok_or("no pool of memory")?),
            cache: domain.registration_cache(permit.clone(), CacheSettings::default())?,
            model,
            device,
            domain,
            permit,
            area,
        })
    }

    fn register(&self, page: usize) -> Result<MemoryRegion> {
        let first = self.area.page(page).expose_provenance();
        let (pool, permit) = (&self.pool, &self.permit);
        let lent = pool.lend_permitted(permit, first, PAGE, DmaAccess::ReadWrite)?;
        let region = self.domain.register(lent, Access::LOCAL_WRITE);
        Ok(region.map_err(|failed| failed.error)?)
    }

    /// Medians of one run, in microseconds: a registration, and the end of one.
    fn registrations(&self) -> Result<[f64; 2]> {
        let mut spans = [const { Vec::new() }; 2];
        for _ in 0..REGISTRATIONS {
            let began = Instant::now();
            let region = self.register(0)?;
            let between = Instant::now();
            region.deregister().map_err(|failed| failed.to_string())?;
            spans[1].push(between.elapsed().as_secs_f64() * 1e6);
            spans[0].push((between - began).as_secs_f64() * 1e6);
        }
        Ok(spans.map(median))
    }

    /// Nanoseconds of a look-up that the cache answers: the mean of a part, the median of parts.
    fn look_ups(&self) -> Result<f64> {
        let first = self.area.page(0);
        black_box(self.cache.get(first, PAGE)?);
        let mut parts = Vec::new();
        for _ in 0..100 {
            let began = Instant::now();
            for _ in 0..REGISTRATIONS {
                black_box(self.cache.get(black_box(first), PAGE)?);
            }
            parts.push(began.elapsed().as_secs_f64() * 1e9 / REGISTRATIONS as f64);
        }
        Ok(median(parts))
    }

    /// Returns operations a second of `threads` threads together.
    fn rate(&self, threads: usize, object: Object, answers: Answers) -> Result<f64> {
        let places = (0..threads).map(|page| Ok((page, self.device.completion_queue(64)?)));
        let places = places.collect::<Result<Vec<_>>>()?;
        let (opcode, by) = (ANY_CONTROL_COMMAND, LATENCY);
        let fault = match answers {
            Answers::Overlap => Fault::ControlCompletionLate { opcode, by },
            Answers::OneByOne => Fault::ControlCommandDelayed { opcode, by },
        };
        let set = self.model.with(move |world| world.inject(0, fault));
        set.ok_or("the model has ended")?;
        let start = &Barrier::new(threads);
        let work = |mut place: (usize, CompletionQueue)| {
            start.wait();
            let began = Instant::now();
            for _ in 0..OPERATIONS {
                let done = self.operate(object, &mut place);
                done.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>((began, Instant::now()))
        };
        let spans: Vec<_> = std::thread::scope(|scope| {
            let started = places.into_iter().map(|one| scope.spawn(|| work(one)));
            let started: Vec<_> = started.collect();
            let ended = started.into_iter().map(|worker| worker.join());
            ended.collect()
        });
        let cleared = self.model.with(|world| world.clear_faults(0));
        cleared.ok_or("the model has ended")?;
        let (mut first, mut last) = (None, None);
        for span in spans {
            let (began, ended) = span.map_err(|_| "a thread panicked")??;
            first = Some(first.map_or(began, |first: Instant| first.min(began)));
            last = Some(last.map_or(ended, |last: Instant| last.max(ended)));
        }
        let passed = last.zip(first).map(|(last, first)| last - first);
        let passed = passed.ok_or("no thread")?.as_secs_f64();
        Ok((threads * OPERATIONS) as f64 / passed)
    }

    /// Makes an object and ends it.
    fn operate(&self, object: Object, place: &mut (usize, CompletionQueue)) -> Result<()> {
        let (page, completions) = place;
        match object {
            Object::Region => {
                let region = self.register(*page)?;
                region.deregister().map_err(|failed| failed.to_string())?;
            }
            Object::QueuePair => {
                let wanted = QueuePairConfig::reliable(completions);
                drop(self.domain.queue_pair(wanted)?);
                // A poll discards the completions of queue pairs that were destroyed.
                completions.poll(&mut [Completion::EMPTY; 1]);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let Self {
            model,
            device,
            domain,
            cache,
            ..
        } = self;
        drop((cache, domain));
        if let Some(failure) = device.shutdown().failures.first() {
            return Err(failure.to_string().into());
        }
        model.stop();
        Ok(())
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A figure over all runs.
struct Row {
    name: String,
    unit: &'static str,
    /// a limit: at most this, or at least
    goal: Option<Goal>,
    runs: Vec<f64>,
}

#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Row {
    fn figure(&self) -> f64 {
        median(self.runs.clone())
    }

    fn is_met(&self) -> Option<bool> {
        let figure = self.figure();
        self.goal.map(|goal| match goal {
            Goal::AtMost(limit) => figure <= limit,
            Goal::AtLeast(limit) => figure >= limit,
        })
    }

    fn ends(&self) -> [f64; 2] {
        let least = self.runs.iter().copied().fold(f64::INFINITY, f64::min);
        [
            least,
            self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ]
    }

    fn text(&self) -> String {
        let [least, most] = self.ends();
        let goal = match self.goal {
            None => String::new(),
            Some(Goal::AtMost(limit)) => format!("at most {limit}"),
            Some(Goal::AtLeast(limit)) => format!("at least {limit}"),
        };
        let verdict = match self.is_met() {
            None => "",
            Some(true) => "met",
            Some(false) => "NOT MET",
        };
        let (name, figure, unit) = (&self.name, self.figure(), self.unit);
        format!("{name:<66} {figure:>9.2} {least:>9.2} {most:>9.2}  {unit:<4} {goal:<13} {verdict}")
            .trim_end()
            .to_owned()
    }

    /// Names and units have no characters that JSON escapes.
    fn json(&self) -> String {
        let [least, most] = self.ends();
        let goal = match self.goal {
            None => "null".to_owned(),
            Some(Goal::AtMost(limit)) => format!("{{\"at_most\": {limit}}}"),
            Some(Goal::AtLeast(limit)) => format!("{{\"at_least\": {limit}}}"),
        };
        let met = self
            .is_met()
            .map_or("null", |met| if met { "true" } else { "false" });
        format!(
            "{{\"name\": \"{}\", \"unit\": \"{}\", \"median\": {:.4}, \"least\": {least:.4}, \
             \"most\": {most:.4}, \"runs\": {}, \"goal\": {goal}, \"met\": {met}}}",
            self.name,
            self.unit,
            self.figure(),
            self.runs.len(),
        )
    }
}

/// The rows of one run, in the order in which they are printed.
fn run(registrar: &Registrar) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut row = |name: String, unit, goal, figure| {
        rows.push(Row {
            name,
            unit,
            goal,
            runs: vec![figure],
        });
    };
    let [registered, ended] = registrar.registrations()?;
    row(
        "4 KiB of the program's memory registered".into(),
        "us",
        Some(Goal::AtMost(10.0)),
        registered,
    );
    row("the same deregistered".into(), "us", None, ended);
    let found = registrar.look_ups()?;
    row(
        "4 KiB found in the registration cache".into(),
        "ns",
        Some(Goal::AtMost(100.0)),
        found,
    );
    let objects = [
        (Object::Region, "regions made and ended"),
        (Object::QueuePair, "queue pairs made and ended"),
    ];
    for (object, name) in objects {
        let one = registrar.rate(1, object, Answers::Overlap)?;
        let four = registrar.rate(THREADS, object, Answers::Overlap)?;
        let serial = registrar.rate(THREADS, object, Answers::OneByOne)?;
        row(format!("{name}: one thread"), "1/s", None, one);
        row(
            format!("{name}: {THREADS} threads, commands one by one"),
            "1/s",
            None,
            serial,
        );
        row(format!("{name}: {THREADS} threads"), "1/s", None, four);
        row(
            format!("{name}: {THREADS} threads to one"),
            "",
            Some(Goal::AtLeast(3.0)),
            four / one,
        );
        row(
            format!("{name}: {THREADS} threads, one by one, to one"),
            "",
            None,
            serial / one,
        );
    }
    Ok(rows)
}

fn main() -> Result<()> {
    let (mut json, mut check, mut runs) = (false, false, RUNS);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--check" => check = true,
            "--runs" => runs = arguments.next().ok_or("--runs takes a number")?.parse()?,
            other => {
                let usage = "usage: control [--json] [--check] [--runs COUNT]";
                return Err(format!("{other} is not known; {usage}").into());
            }
        }
    }
    eprintln!("{}", placement()?);
    let registrar = Registrar::new()?;
    // The first run is not counted: it accesses everything for the first time.
    run(&registrar)?;
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..runs.max(1) {
        let once = run(&registrar)?;
        match rows.is_empty() {
            true => rows = once,
            false => rows
                .iter_mut()
                .zip(once)
                .for_each(|(row, one)| row.runs.extend(one.runs)),
        }
    }
    registrar.finish()?;
    if json {
        let lines: Vec<_> = rows.iter().map(Row::json).collect();
        println!("[\n{}\n]", lines.join(",\n"));
    } else {
        println!("{:<66} {:>9} {:>9} {:>9}", "", "median", "least", "most");
        rows.iter().for_each(|row| println!("{}", row.text()));
    }
    let missed = rows
        .iter()
        .filter(|row| row.is_met() == Some(false))
        .count();
    match check && missed > 0 {
        true => Err(format!("{missed} goals are missed").into()),
        false => Ok(()),
    }
}
