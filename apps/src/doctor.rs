//! `ringside doctor`: everything that keeps this machine from line rate, each with the command that
//! corrects it.
//!
//! [`facts`] reads the kernel's files; [`checks`] judges the values and changes nothing.

mod checks;
mod facts;
mod finding;

use crate::bind::no_such_function;
use crate::cli::Doctor;
use crate::failure::Failure;
use crate::output::stdout;
use anyhow::anyhow;
use finding::{Finding, Weight};
use ringside_bus::DeviceAddress;
use ringside_bus::sysfs::Sysfs;
use ringside_config::Config;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
    blocking: usize,
    slowing: usize,
}

pub(crate) fn run(options: &Doctor, config: &Config) -> Result<(), Failure> {
    let sysfs = Sysfs::default();
    let address = match &options.address {
        None => None,
        Some(address @ DeviceAddress::Pci { .. }) => Some(address.to_string()),
        Some(other) => {
            return Err(Failure::usage(anyhow!(
                "{other} is not a PCI address such as 0000:3b:00.0: doctor looks at cards"
            )));
        }
    };
    if let Some(address) = &address
        && sysfs.function(address).is_none()
    {
        return Err(no_such_function(address));
    }
    let facts = facts::gather(&sysfs, address.as_deref(), config);
    let findings = checks::all(&facts, config);
    let count = |weight| findings.iter().filter(|one| one.weight == weight).count();
    let report = Report {
        blocking: count(Weight::Blocks),
        slowing: count(Weight::Slows),
        findings,
    };
    show(&report, options.json)?;
    match report.blocking {
        0 => Ok(()),
        count => Err(Failure::operation(anyhow!(
            "{count} of the findings keep a card from being driven"
        ))),
    }
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    let mut out = stdout();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    for finding in &report.findings {
        let mark = match finding.weight {
            Weight::Fine => "ok    ",
            Weight::Slows => "slows ",
            Weight::Blocks => "BLOCKS",
        };
        writeln!(out, "{mark}  {:<18} {}", finding.check, finding.what)?;
        for line in &finding.remedy {
            writeln!(out, "{:27}fix: {line}", "")?;
        }
    }
    writeln!(
        out,
        "\n{} block, {} slow, {} are as they should be",
        report.blocking,
        report.slowing,
        report.findings.len() - report.blocking - report.slowing
    )?;
    Ok(())
}
