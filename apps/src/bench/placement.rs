//! The cores that spin during a bench, and how near they are to each other.

use crate::open::Cores;
use ringside_bus::Function;
use ringside_bus::hand_off::hand_off;
use ringside_bus::pinning::allowed_cores_of;
use serde::Serialize;
use std::time::Duration;

/// Time for the probe of the two cores, at most: it must not delay the first figure.
const PROBE: Duration = Duration::from_millis(100);

/// The cores of driver and model.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Placement {
    pub(crate) driver_core: Option<usize>,
    /// of a model in another process: the core on which its busiest thread ran last; `None` too for
    /// a card
    pub(crate) model_core: Option<usize>,
    /// the model's process, if it is another one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model_process: Option<u32>,
    /// time of a cache line from one core to the other, if both spin
    pub(crate) line_hand_off_nanoseconds: Option<f64>,
    /// true if driver and model have one core between them
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) one_core: bool,
}

impl Placement {
    /// Measures the hand-off between the cores. The model's thread must not spin yet: it would have
    /// one of them.
    pub(crate) fn measure(cores: Cores) -> Self {
        let line_hand_off_nanoseconds = match (cores.driver, cores.model) {
            (Some(driver), Some(model)) if driver != model => {
                hand_off(driver, model, PROBE).ok().map(f64::round)
            }
            _ => None,
        };
        Self {
            driver_core: cores.driver,
            model_core: cores.model,
            model_process: None,
            line_hand_off_nanoseconds,
            one_core: cores.are_one(),
        }
    }

    /// The same beside the process that serves a function, before the function is brought up: an
    /// idle model sleeps.
    pub(crate) fn with_server(function: &dyn Function, driver: Option<usize>) -> Self {
        let process = function.server_process();
        let model = process.and_then(busiest_core);
        Self {
            model_process: process,
            // It may use another core the next moment, if it has one.
            one_core: driver.is_some() && process.and_then(only_core) == driver,
            ..Self::measure(Cores { driver, model })
        }
    }

    /// The process of the model and its core, behind the driver's core in a sentence.
    pub(crate) fn of_server(&self) -> String {
        let Some(process) = self.model_process else {
            return String::new();
        };
        match self.model_core {
            Some(core) => format!("; process {process} serves it, last on core {core}"),
            None => format!("; process {process} serves it"),
        }
    }

    /// The sentence on the hand-off, in a line of its own; empty without two cores to measure.
    pub(crate) fn hand_off(&self) -> String {
        if self.one_core {
            return "\nBoth have one core between them: times are those of the scheduler.".into();
        }
        match self.line_hand_off_nanoseconds {
            Some(nanoseconds) => format!(
                "\nA cache line takes {nanoseconds} ns from one of these cores to the other."
            ),
            None if self.model_core.is_some() => {
                "\nThe time of a cache line between these cores was \
                not measured: they are one, were busy, or are not both open to this process."
                    .into()
            }
            None => String::new(),
        }
    }
}

/// A core in a sentence.
pub(crate) fn core_text(core: Option<usize>) -> String {
    core.map_or("any core".into(), |core| format!("core {core}"))
}

/// The core on which the thread of a process ran last that has used most time; `None` if the
/// process is not to be seen here.
fn busiest_core(process: u32) -> Option<usize> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let threads = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        time_and_core(&stat)
    });
    threads.max().map(|(_, core)| core)
}

/// The core of a process that may use no other; `None` for others, and if it is not to be seen
/// here.
fn only_core(process: u32) -> Option<usize> {
    match allowed_cores_of(process)[..] {
        [core] => Some(core),
        _ => None,
    }
}

/// Time used, in clock ticks, and core of a thread. Source: proc(5), `/proc/pid/stat`: fields 14,
/// 15 and 39; the name, field 2, ends at the last bracket.
fn time_and_core(stat: &str) -> Option<(u64, usize)> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields: Vec<_> = behind_name.split_whitespace().collect();
    // The first of these fields is number 3.
    let field = |number: usize| fields.get(number - 3);
    let ticks = |number| field(number)?.parse::<u64>().ok();
    Some((ticks(14)? + ticks(15)?, field(39)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_of_a_thread_is_read_behind_a_name_with_brackets() {
        let behind: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b) {}", behind.join(" "));
        assert_eq!(time_and_core(&stat), Some((14 + 15, 39)));
        assert_eq!(time_and_core("17 (a) S 1"), None);
    }

    #[test]
    fn this_process_runs_on_a_core_of_its_own_set() {
        let core = busiest_core(std::process::id()).expect("its threads");
        assert!(
            ringside_bus::pinning::allowed_cores().contains(&core),
            "{core}"
        );
        assert_eq!(busiest_core(u32::MAX), None);
    }
}
