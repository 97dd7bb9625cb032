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
use ringside_bus::sysfs::Sysfs;
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
    let sysfs = Sysfs::default();
    for address in &options.addresses {
        let address = pci_text(address)?;
        let function = sysfs
            .function(&address)
            .ok_or_else(|| no_such_function(&address))?;
        let usage = usage(&sysfs, &function, &system_addresses());
        let group = function
            .group
            .map(|group| sysfs.group(group))
            .unwrap_or_default();
        let wanted = plan::Wanted {
            driver: &options.driver,
            driver_loaded: driver_is_loaded(&sysfs, &options.driver),
            force: options.force,
        };
        let plan = plan::bind(&function, &group, &usage, &wanted).map_err(refused)?;
        for warning in &plan.warnings {
            let _ = writeln!(std::io::stderr(), "ringside: {warning}");
        }
        if plan.steps.is_empty() {
            writeln!(stdout(), "{address} is bound to {} already", options.driver)?;
            continue;
        }
        if options.dry_run {
            print_steps(&plan.steps)?;
            continue;
        }
        need_root(&sysfs)?;
        let record = Record {
            driver: function.driver.clone(),
            driver_override: function.driver_override.clone(),
        };
        write_record(&sysfs, &address, &record)?;
        if let Err(failure) = carry_out(&sysfs, &plan.steps, &address, Some(&options.driver)) {
            // Restores the earlier state as far as possible; the first failure is reported.
            let back = plan::unbind(&address, Some(&options.driver), Some(&record));
            let _ = carry_out(&sysfs, &back, &address, record.driver.as_deref());
            let _ = std::fs::remove_file(record_path(&sysfs, &address));
            return Err(failure);
        }
        writeln!(
            stdout(),
            "{address}: {} -> {}",
            shown(record.driver.as_deref()),
            options.driver
        )?;
    }
    Ok(())
}

pub(crate) fn unbind(options: &Unbind) -> Result<(), Failure> {
    let sysfs = Sysfs::default();
    for address in &options.addresses {
        let address = pci_text(address)?;
        let function = sysfs
            .function(&address)
            .ok_or_else(|| no_such_function(&address))?;
        let record = read_record(&sysfs, &address);
        if record.is_none() && function.driver.as_deref() != Some(plan::VFIO) {
            return Err(Failure::usage(anyhow!(
                "{address} is {}, and ringside did not bind it: there is nothing to undo",
                driven(function.driver.as_deref())
            )));
        }
        let holders = function
            .group
            .map(|group| sysfs.holders(&format!("/dev/vfio/{group}")));
        let holders = holders.unwrap_or_default();
        if let Some(holder) = holders.first().filter(|_| !options.force) {
            return Err(Failure::operation(anyhow!(
                "{address} is in use by {holder}; the kernel would wait until the device is released: end it \
                 first, or use --force to wait"
            )));
        }
        let steps = plan::unbind(&address, function.driver.as_deref(), record.as_ref());
        if options.dry_run {
            print_steps(&steps)?;
            continue;
        }
        need_root(&sysfs)?;
        let wanted = record.as_ref().and_then(|record| record.driver.as_deref());
        carry_out(&sysfs, &steps, &address, wanted)?;
        let _ = std::fs::remove_file(record_path(&sysfs, &address));
        let now = sysfs
            .function(&address)
            .and_then(|function| function.driver);
        writeln!(
            stdout(),
            "{address}: {} -> {}",
            shown(function.driver.as_deref()),
            shown(now.as_deref())
        )?;
    }
    Ok(())
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
    Failure::operation(anyhow!("{refusal}"))
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

/// Written before anything changes, so that every change can be undone.
fn write_record(sysfs: &Sysfs, address: &str, record: &Record) -> Result<(), Failure> {
    let path = record_path(sysfs, address);
    // Bound twice in a row: the first driver is the original one.
    if path.exists() {
        return Ok(());
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
    std::fs::write(&path, serde_json::to_string(record)?).map_err(cannot)
}

fn read_record(sysfs: &Sysfs, address: &str) -> Option<Record> {
    let text = std::fs::read_to_string(record_path(sysfs, address)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Does the steps, then waits until `driver` has the function (or none, if none had it).
fn carry_out(
    sysfs: &Sysfs,
    steps: &[Step],
    address: &str,
    driver: Option<&str>,
) -> Result<(), Failure> {
    for step in steps {
        do_step(sysfs, step)?;
    }
    let began = Instant::now();
    loop {
        let now = sysfs.function(address).and_then(|function| function.driver);
        if driver.is_none_or(|driver| now.as_deref() == Some(driver)) {
            return Ok(());
        }
        if began.elapsed() > DRIVER_WAIT {
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

fn do_step(sysfs: &Sysfs, step: &Step) -> Result<(), Failure> {
    match step {
        Step::LoadModule(name) => {
            let done = Command::new("modprobe").arg(name).output();
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
        Step::Write { text, path } => write_to(&sysfs.path(path), text),
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
