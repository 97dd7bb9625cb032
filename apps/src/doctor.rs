//! `ringside doctor`: everything that stands between this machine and line rate, each with the
//! command that mends it.
//!
//! [`facts`] gathers what the kernel shows; [`checks`] judges it and touches nothing.

mod checks;
mod facts;

use crate::bind::no_such_function;
use crate::cli::Doctor;
use crate::failure::Failure;
use anyhow::anyhow;
use checks::{Finding, Weight};
use ringside_bus::DeviceAddress;
use ringside_bus::sysfs::Sysfs;
use ringside_config::Config;
use serde::Serialize;

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
                "{other} is no PCI address such as 0000:3b:00.0: doctor looks at cards"
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
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    match report.blocking {
        0 => Ok(()),
        count => Err(Failure::operation(anyhow!(
            "{count} of the findings keep a card from being driven"
        ))),
    }
}

fn print(report: &Report) {
    for finding in &report.findings {
        let mark = match finding.weight {
            Weight::Fine => "ok    ",
            Weight::Slows => "slows ",
            Weight::Blocks => "BLOCKS",
        };
        println!("{mark}  {:<18} {}", finding.check, finding.what);
        for line in &finding.remedy {
            println!("{:27}mend: {line}", "");
        }
    }
    println!(
        "\n{} block, {} slow, {} are as they should be",
        report.blocking,
        report.slowing,
        report.findings.len() - report.blocking - report.slowing
    );
}
