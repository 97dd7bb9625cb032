//! The two functions of a test, and their model if it is in this process.

use super::placement::{Placement, core_text};
use crate::cli::Bench;
use crate::failure::Failure;
use crate::open::{Cores, model_function, model_index, named_twice, open, start_model};
use anyhow::anyhow;
use ringside_bus::function::Backend;
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_model::Threaded;
use std::sync::Arc;

/// See the module.
pub(crate) struct Bed {
    pub(crate) functions: [Arc<dyn Function>; 2],
    pub(crate) model: Option<(Threaded, [u16; 2])>,
    pub(crate) placement: Placement,
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
                if named_twice(&[address.clone(), peer.clone()]).is_some() {
                    return Err(Failure::usage(anyhow!(
                        "--peer {peer}: it is the function of --device; a test needs two functions"
                    )));
                }
                let functions = [
                    open(address, config)?.function,
                    open(peer, config)?.function,
                ];
                let placement = Placement::with_server(&*functions[0], cores.driver);
                return Ok(Self {
                    functions,
                    model: None,
                    placement,
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
                "Driven: {device} (driver on {}{}).{}",
                core_text(placement.driver_core),
                placement.of_server(),
                placement.hand_off()
            );
        }
        format!(
            "Driven: the software model of the E810 (driver on {}, model on {}), not hardware; its \
             wire has no speed limit{capture}.{}",
            core_text(placement.driver_core),
            core_text(placement.model_core),
            placement.hand_off()
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
