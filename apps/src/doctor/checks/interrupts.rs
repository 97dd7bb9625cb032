//! The cores that serve the interrupts of workers that sleep.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Finding, Weight, core_list, finding, fine};
use ringside_config::{Config, Polling};

pub(super) fn affinity(facts: &Facts, config: &Config) -> Option<Finding> {
    let check = "interrupt affinity";
    let cores: Vec<_> = config
        .worker
        .cores
        .iter()
        .map(|&core| core as usize)
        .collect();
    if !config.worker.bind_interrupts {
        // Workers that poll all the time have no interrupts.
        let sleep = config.worker.polling == Polling::BusyThenSleep && !cores.is_empty();
        return sleep.then(|| {
            finding(
                check,
                Weight::Slows,
                format!("the kernel chooses the cores that wake the workers on {cores:?}"),
                ["worker.bind_interrupts = true in the configuration, as root".into()],
            )
        });
    }
    if facts.user != 0 {
        return Some(finding(
            check,
            Weight::Slows,
            "worker.bind_interrupts is on, and only root may write /proc/irq/*/smp_affinity_list",
            ["run as root".into()],
        ));
    }
    if facts.spreads_interrupts {
        return Some(finding(
            check,
            Weight::Slows,
            "irqbalance runs: it moves interrupts that worker.bind_interrupts has bound",
            [
                "systemctl stop irqbalance".into(),
                format!(
                    "or IRQBALANCE_BANNED_CPULIST={} in /etc/default/irqbalance",
                    core_list(&cores)
                ),
            ],
        ));
    }
    Some(fine(
        check,
        "interrupts are bound to the cores of their threads",
    ))
}
