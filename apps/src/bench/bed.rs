//! The two functions of a test, and their model if it is in this process.

use crate::cli::Bench;
use crate::failure::Failure;
use crate::open::{Cores, model_function, model_index, open, start_model};
use anyhow::anyhow;
use ringside_bus::function::Backend;
use ringside_bus::hand_off::hand_off;
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_model::Threaded;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub(crate) struct Bed {
    pub(crate) functions: [Arc<dyn Function>; 2],
    pub(crate) model: Option<(Threaded, [u16; 2])>,
    pub(crate) placement: Placement,
}

/// The cores that spin: driver and model of this process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Placement {
    pub(crate) driver_core: Option<usize>,
    /// `None` too where the device is not a model in this process
    pub(crate) model_core: Option<usize>,
    /// time of a cache line from one core to the other, if both spin
    pub(crate) line_hand_off_nanoseconds: Option<f64>,
}

/// Time for the probe of the two cores, at most: it must not delay the first figure.
const PROBE: Duration = Duration::from_millis(100);

impl Placement {
    /// Measures the hand-off between the cores. The model's thread has not started yet: it would
    /// spin on one of them.
    fn measure(cores: Cores) -> Self {
        let line_hand_off_nanoseconds = match (cores.driver, cores.model) {
            (Some(driver), Some(model)) if driver != model => {
                hand_off(driver, model, PROBE).ok().map(f64::round)
            }
            _ => None,
        };
        Self {
            driver_core: cores.driver,
            model_core: cores.model,
            line_hand_off_nanoseconds,
        }
    }
}

impl Bed {
    pub(crate) fn find(
        options: &Bench,
        address: &DeviceAddress,
        config: &Config,
        cores: Cores,
    ) -> Result<Self, Failure> {
        let by_itself = |address: &DeviceAddress| !matches!(address, DeviceAddress::Model(_));
        match &options.peer {
            Some(peer) if by_itself(peer) && by_itself(address) => {
                let functions = [
                    open(address, config)?.function,
                    open(peer, config)?.function,
                ];
                return Ok(Self {
                    functions,
                    model: None,
                    placement: Placement {
                        driver_core: cores.driver,
                        ..Placement::default()
                    },
                });
            }
            Some(_) => {
                return Err(Failure::usage(anyhow!(
                    "--peer goes with --device where both are PCI addresses or vfio-user:PATH; \
                     otherwise the peer is the next function of the same model"
                )));
            }
            None => {}
        }
        let index = model_index(address)?;
        let placement = Placement::measure(cores);
        let model = start_model(config, cores)?;
        let peer = (index + 1) % u16::try_from(config.model.functions).unwrap_or(1).max(1);
        if peer == index {
            return Err(Failure::usage(anyhow!(
                "a test needs two functions: set model.functions to 2 or more in the configuration"
            )));
        }
        let functions = [
            model_function(&model, index)?,
            model_function(&model, peer)?,
        ];
        Ok(Self {
            functions,
            model: Some((model, [index, peer])),
            placement,
        })
    }

    pub(crate) fn model_to_capture(&self) -> Result<&Threaded, Failure> {
        let model = self.model.as_ref().map(|(model, _)| model);
        model.ok_or_else(|| {
            Failure::usage(anyhow!(
                "--pcap captures the wire of the model in this process only"
            ))
        })
    }

    /// The breaches that the model saw; `None` if it is in another process, which reports them.
    pub(crate) fn breaches(&self) -> Result<Option<Vec<String>>, Failure> {
        let model = self.model.as_ref();
        let found = model.map(|(model, functions)| breaches(model, functions));
        found.transpose()
    }

    /// The line that names the measured device.
    pub(crate) fn driven(&self, captured: bool) -> String {
        let placement = &self.placement;
        let core =
            |core: Option<usize>| core.map_or("any core".into(), |core| format!("core {core}"));
        let capture = if captured {
            "; every frame was captured, which slows it"
        } else {
            ""
        };
        if self.model.is_none() {
            let device = match self.functions[0].backend() {
                Backend::Vfio => "PCI functions of this machine, through the kernel's VFIO",
                _ => "a device in another process, over vfio-user, not hardware",
            };
            return format!(
                "Driven: {device} (driver on {}).",
                core(placement.driver_core)
            );
        }
        let hand_off = match placement.line_hand_off_nanoseconds {
            Some(nanoseconds) => {
                format!(
                    "\nA cache line takes {nanoseconds} ns from one of these cores to the other."
                )
            }
            None if placement.model_core.is_some() => {
                "\nThe time of a cache line between these cores was not measured: they are one, or were busy.".into()
            }
            None => String::new(),
        };
        format!(
            "Driven: the software model of the E810 (driver on {}, model on {}), not hardware; its \
             wire has no speed limit{capture}.{hand_off}",
            core(placement.driver_core),
            core(placement.model_core)
        )
    }
}

fn breaches(model: &Threaded, functions: &[u16]) -> Result<Vec<String>, Failure> {
    let functions = functions.to_vec();
    let told = model.with(move |world| {
        let of = |&index: &u16| {
            let breaches = world.breaches(usize::from(index)).into_iter();
            breaches
                .map(|breach| {
                    format!(
                        "model:{index}: {} ({} times), first: {}",
                        breach.kind, breach.count, breach.first
                    )
                })
                .collect::<Vec<_>>()
        };
        functions.iter().flat_map(of).collect()
    });
    told.ok_or_else(|| Failure::operation(anyhow!("the model's thread has ended")))
}
