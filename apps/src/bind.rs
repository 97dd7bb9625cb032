//! `ringside bind` and `unbind`: a function between the kernel's driver and vfio-pci.
//!
//! The plan is a list of [`plan::Step`]s, made from facts alone; `--dry-run` prints it as
//! commands that a person could type, and without it the same list is carried out.

mod plan;
mod usage;

use crate::cli::{Bind, Unbind};
use crate::failure::Failure;
use crate::output::stdout;
use anyhow::anyhow;
use plan::{Record, Refusal, Step};
use ringside_bus::DeviceAddress;
use ringside_bus::sysfs::{PciFunction, Sysfs};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use usage::{system_addresses, usage};

/// The file with the previous drivers of functions; lost at a restart, as bindings are.
const RECORDS: &str = "run/ringside/bind";

/// The time that a driver may take to release or to claim a function.
const DRIVER_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn bind(options: &Bind) -> Result<(), Failure> {
    bind_on(&Machine::default(), options)
}

pub(crate) fn unbind(options: &Unbind) -> Result<(), Failure> {
    unbind_on(&Machine::default(), options)
}

/// The kernel's files, its loader of modules, and its drivers' longest time.
struct Machine {
    sysfs: Sysfs,
    modprobe: PathBuf,
    driver_wait: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            sysfs: Sysfs::default(),
            modprobe: "modprobe".into(),
            driver_wait: DRIVER_WAIT,
        }
    }
}

/// A function and the steps that are planned for it.
struct Planned {
    function: PciFunction,
    record: Option<Record>,
    steps: Vec<Step>,
}

/// All functions are looked at before the first one changes.
fn bind_on(machine: &Machine, options: &Bind) -> Result<(), Failure> {
    let sysfs = &machine.sysfs;
    let plans = options.addresses.iter().map(|address| {
        let function = function_at(sysfs, address)?;
        let usage = usage(sysfs, &function, &system_addresses());
        let group = function.group.map(|group| sysfs.group(group));
        let wanted = plan::Wanted {
            driver: &options.driver,
            driver_loaded: driver_is_loaded(sysfs, &options.driver),
            holder: sysfs.claimants(&function).into_iter().next(),
            force: options.force,
        };
        let plan = plan::bind(&function, &group.unwrap_or_default(), &usage, &wanted);
        let plan = plan.map_err(refused)?;
        for warning in &plan.warnings {
            let _ = writeln!(std::io::stderr(), "ringside: {warning}");
        }
        Ok(Planned {
            function,
            record: None,
            steps: plan.steps,
        })
    });
    let plans = plans.collect::<Result<Vec<_>, Failure>>()?;
    for plan in &plans {
        let address = &plan.function.address;
        if plan.steps.is_empty() {
            writeln!(stdout(), "{address} is bound to {} already", options.driver)?;
        } else if options.dry_run {
            print_steps(&plan.steps)?;
        } else {
            need_root(sysfs)?;
            bind_one(machine, plan, &options.driver)?;
        }
    }
    Ok(())
}

/// Carries out a plan; restores the earlier state if it fails.
fn bind_one(machine: &Machine, plan: &Planned, driver: &str) -> Result<(), Failure> {
    let sysfs = &machine.sysfs;
    let address = &plan.function.address;
    let is_module = |step: &&Step| matches!(step, Step::LoadModule(_));
    for module in plan.steps.iter().filter(is_module) {
        do_step(machine, module)?;
    }
    let before = Record {
        driver: plan.function.driver.clone(),
        driver_override: plan.function.driver_override.clone(),
    };
    let is_first = write_record(sysfs, address, &before)?;
    let mut changes = plan.steps.iter().filter(|step| !is_module(step));
    let done = changes
        .try_for_each(|step| do_step(machine, step))
        .and_then(|()| wait_for_driver(machine, address, Some(driver)));
    if let Err(failure) = done {
        return Err(match restore(machine, address, &before) {
            Ok(()) => {
                if is_first {
                    let _ = std::fs::remove_file(record_path(sysfs, address));
                }
                let driven = driven(before.driver.as_deref());
                failure.and(&format!("it was given back, and is {driven}"))
            }
            Err(error) => failure.and(&format!(
                "it could not be given back: {}; `ringside unbind {address}` tries it again",
                error.text()
            )),
        });
    }
    writeln!(
        stdout(),
        "{address}: {} -> {driver}",
        shown(before.driver.as_deref()),
    )?;
    Ok(())
}

/// Gives a function back to the driver that it had. Every step is done, also after one that
/// failed: the function may be driven again nevertheless.
fn restore(machine: &Machine, address: &str, before: &Record) -> Result<(), Failure> {
    let now = driver_of(&machine.sysfs, address);
    let steps = steps_back(&machine.sysfs, address, now.as_deref(), Some(before));
    let done: Vec<_> = steps.iter().map(|step| do_step(machine, step)).collect();
    let first = done.into_iter().find_map(Result::err);
    match before.driver.as_deref() {
        None => first.map_or(Ok(()), Err),
        driver => {
            wait_for_driver(machine, address, driver).map_err(|failure| first.unwrap_or(failure))
        }
    }
}

fn steps_back(
    sysfs: &Sysfs,
    address: &str,
    driver: Option<&str>,
    record: Option<&Record>,
) -> Vec<Step> {
    let earlier = record.and_then(|record| record.driver.as_deref());
    let loaded = earlier.is_none_or(|earlier| driver_is_loaded(sysfs, earlier));
    plan::unbind(address, driver, record, loaded)
}

/// All functions are looked at before the first one changes.
fn unbind_on(machine: &Machine, options: &Unbind) -> Result<(), Failure> {
    let sysfs = &machine.sysfs;
    let plans = options.addresses.iter().map(|address| {
        let function = function_at(sysfs, address)?;
        let address = &function.address;
        let record = read_record(sysfs, address);
        let driver = function.driver.as_deref();
        if record.is_none() && driver != Some(plan::VFIO) {
            return Err(Failure::usage(anyhow!(
                "{address} is {}, and ringside did not bind it: there is nothing to undo",
                driven(driver)
            )));
        }
        let steps = match &record {
            // given back by other means
            Some(record) if record.driver.as_deref() == driver => {
                let left = function.driver_override.as_deref() == Some(plan::VFIO);
                let own = left.then(|| steps_back(sysfs, address, driver, Some(record)));
                own.unwrap_or_default()
            }
            record => {
                let usage = usage(sysfs, &function, &system_addresses());
                let holders = sysfs.claimants(&function);
                plan::may_change(address, &usage, holders.first(), options.force)
                    .map_err(refused)?;
                steps_back(sysfs, address, driver, record.as_ref())
            }
        };
        Ok(Planned {
            function,
            record,
            steps,
        })
    });
    let plans = plans.collect::<Result<Vec<_>, Failure>>()?;
    for plan in &plans {
        if options.dry_run {
            print_steps(&plan.steps)?;
            continue;
        }
        need_root(sysfs)?;
        unbind_one(machine, plan)?;
    }
    Ok(())
}

fn unbind_one(machine: &Machine, plan: &Planned) -> Result<(), Failure> {
    let sysfs = &machine.sysfs;
    let address = &plan.function.address;
    let before = plan.function.driver.as_deref();
    for step in &plan.steps {
        do_step(machine, step)?;
    }
    let wanted = plan.record.as_ref().and_then(|it| it.driver.as_deref());
    wait_for_driver(machine, address, wanted)?;
    let _ = std::fs::remove_file(record_path(sysfs, address));
    if plan.record.is_some() && wanted == before {
        let driven = driven(before);
        writeln!(stdout(), "{address} is {driven} already")?;
        return Ok(());
    }
    let now = driver_of(sysfs, address);
    let (before, now) = (shown(before), shown(now.as_deref()));
    writeln!(stdout(), "{address}: {before} -> {now}")?;
    Ok(())
}

fn function_at(sysfs: &Sysfs, address: &DeviceAddress) -> Result<PciFunction, Failure> {
    let address = pci_text(address)?;
    let function = sysfs.function(&address);
    function.ok_or_else(|| no_such_function(&address))
}

fn driver_of(sysfs: &Sysfs, address: &str) -> Option<String> {
    sysfs.function(address)?.driver
}

fn pci_text(address: &DeviceAddress) -> Result<String, Failure> {
    match address {
        DeviceAddress::Pci { .. } => Ok(address.to_string()),
        _ => Err(Failure::usage(anyhow!(
            "{address} is not a PCI address such as 0000:3b:00.0: only cards are bound to drivers"
        ))),
    }
}

pub(crate) fn no_such_function(address: &str) -> Failure {
    Failure::usage(anyhow!(
        "{address}: no PCI function has this address; `ringside devices` lists the available ones"
    ))
}

fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotOurs { .. } => Failure::usage(anyhow!("{refusal}")),
        _ => Failure::operation(anyhow!("{refusal}")),
    }
}

fn driver_is_loaded(sysfs: &Sysfs, driver: &str) -> bool {
    sysfs.path("sys/bus/pci/drivers").join(driver).is_dir()
}

fn driven(driver: Option<&str>) -> String {
    driver.map_or("driven by no driver".into(), |driver| {
        format!("driven by {driver}")
    })
}

fn shown(driver: Option<&str>) -> &str {
    driver.unwrap_or("no driver")
}

fn print_steps(steps: &[Step]) -> std::io::Result<()> {
    steps
        .iter()
        .try_for_each(|step| writeln!(stdout(), "{step}"))
}

fn need_root(sysfs: &Sysfs) -> Result<(), Failure> {
    let status = sysfs.text("proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = line.and_then(|line| line.split_whitespace().nth(1));
    match effective {
        Some("0") | None => Ok(()),
        Some(_) => Err(Failure::operation(anyhow!(
            "changing drivers needs root: run it with sudo; --dry-run shows what would be done"
        ))),
    }
}

fn record_path(sysfs: &Sysfs, address: &str) -> PathBuf {
    sysfs.path(RECORDS).join(address)
}

/// Written before anything changes, so that every change can be undone. Returns false if there is
/// one already: it stays, as a function that is bound twice in a row goes back to its first driver.
/// A function whose driver was not chosen by an override was given back by other means since.
fn write_record(sysfs: &Sysfs, address: &str, record: &Record) -> Result<bool, Failure> {
    let path = record_path(sysfs, address);
    let is_chosen = record.driver.is_none() || record.driver == record.driver_override;
    if path.exists() && is_chosen {
        return Ok(false);
    }
    let cannot = |error: std::io::Error| {
        Failure::operation(anyhow!(
            "{}: {error}; the driver that {address} has now is noted there before it is changed",
            path.display()
        ))
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    std::fs::write(&path, serde_json::to_string(record)?).map_err(cannot)?;
    Ok(true)
}

fn read_record(sysfs: &Sysfs, address: &str) -> Option<Record> {
    let text = std::fs::read_to_string(record_path(sysfs, address)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Waits until `driver` has the function; does not wait if there is none to wait for.
fn wait_for_driver(machine: &Machine, address: &str, driver: Option<&str>) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let now = driver_of(&machine.sysfs, address);
        if driver.is_none() || now.as_deref() == driver {
            return Ok(());
        }
        if began.elapsed() > machine.driver_wait {
            return Err(Failure::operation(anyhow!(
                "{address} is {} and not by {}: the kernel's log (dmesg) has the reason why the driver did not \
                 take it; `ringside doctor {address}` looks for the usual reasons",
                driven(now.as_deref()),
                shown(driver)
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn do_step(machine: &Machine, step: &Step) -> Result<(), Failure> {
    match step {
        Step::LoadModule(name) => {
            let done = Command::new(&machine.modprobe).arg(name).output();
            match done {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(Failure::operation(anyhow!(
                    "modprobe {name}: {}; the kernel's package has this module",
                    String::from_utf8_lossy(&output.stderr).trim()
                ))),
                Err(error) => Err(Failure::operation(anyhow!(
                    "modprobe {name}: {error}; load the module by hand"
                ))),
            }
        }
        Step::Write { text, path } => write_to(&machine.sysfs.path(path), text),
    }
}

fn write_to(path: &Path, text: &str) -> Result<(), Failure> {
    // A line break empties driver_override.
    let text = if text.is_empty() { "\n" } else { text };
    std::fs::write(path, text).map_err(|error| {
        Failure::operation(anyhow!("writing {text:?} to {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests;
