//! The port's connector: LED, pause frames, error correction, module.

use super::{Port, PortError};
use crate::lan::link::as_configured;
use ringside_spec::lan::admin::link::{
    ForwardErrorCorrection, PhyCapabilities, PhyConfig, PhyEnable, report_mode,
};
use ringside_spec::lan::module;
use serde::Serialize;

/// Pause frames (IEEE 802.3, annex 31B) that the port sends and obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Pause {
    /// The port sends them when its buffer runs full.
    pub transmit: bool,
    /// The port stops sending when it receives one.
    pub receive: bool,
}

/// Forward error correction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCorrection {
    /// The firmware chooses.
    Automatic,
    /// None.
    Off,
    /// Reed-Solomon (clause 91).
    ReedSolomon,
    /// BASE-R (clause 74).
    BaseR,
}

/// A module, as its memory describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Module {
    /// Kind: first byte of its memory. Source: SFF-8024, table 4-1.
    pub identifier: u8,
    /// Maker.
    pub vendor: String,
    /// Part number.
    pub part_number: String,
    /// Serial number.
    pub serial_number: String,
    /// Degrees Celsius; `None` if the kind of module has it elsewhere.
    pub temperature_celsius: Option<f32>,
    /// Volts; the same.
    pub supply_volts: Option<f32>,
}

impl Port {
    /// Has the LED of the port blink, or show the link again.
    ///
    /// Control path. Errors: [`PortError`]. Source: ice `ice_aq_set_port_id_led`.
    pub fn identify(&self, blink: bool) -> Result<(), PortError> {
        let shared = &self.shared;
        shared.admin()?.set_port_led(blink)?;
        shared.configured().is_identified = blink;
        Ok(())
    }

    /// The requested settings of pause frames. Control path.
    pub fn pause(&self) -> Result<Pause, PortError> {
        let enable = PhyEnable(self.active_phy()?.1.enable);
        Ok(Pause {
            transmit: enable.transmit_pause(),
            receive: enable.receive_pause(),
        })
    }

    /// Asks for pause frames in each direction. The link may go down and up again for it; the port
    /// takes the setting back when it is closed.
    ///
    /// Control path. Errors: [`PortError`].
    pub fn set_pause(&self, wanted: Pause) -> Result<(), PortError> {
        let (_, found) = self.active_phy()?;
        let enable = PhyEnable(found.enable)
            .with_transmit_pause(wanted.transmit)
            .with_receive_pause(wanted.receive);
        let asked = PhyConfig {
            enable: enable.0,
            ..found
        };
        self.configure_phy(found, asked)
    }

    /// The requested error correction. Control path.
    pub fn error_correction(&self) -> Result<ErrorCorrection, PortError> {
        let (_, found) = self.active_phy()?;
        let asked = ForwardErrorCorrection(found.error_correction);
        Ok(if PhyEnable(found.enable).automatic_correction() {
            ErrorCorrection::Automatic
        } else if asked.0 & REED_SOLOMON.0 != 0 {
            ErrorCorrection::ReedSolomon
        } else if asked.0 & BASE_R.0 != 0 {
            ErrorCorrection::BaseR
        } else {
            ErrorCorrection::Off
        })
    }

    /// Asks for an error correction; as [`Port::set_pause`].
    ///
    /// Errors: [`PortError::Invalid`], one that port and module do not have; others.
    pub fn set_error_correction(&self, wanted: ErrorCorrection) -> Result<(), PortError> {
        let (possible, found) = self.active_phy()?;
        let has = ForwardErrorCorrection(possible.error_correction);
        let (is_possible, asked) = match wanted {
            // The firmware chooses among those that it may.
            ErrorCorrection::Automatic => (true, has),
            ErrorCorrection::Off => (true, ForwardErrorCorrection::ZERO),
            ErrorCorrection::ReedSolomon => (has.rs_clause_91(), REED_SOLOMON),
            ErrorCorrection::BaseR => (
                has.kr_10g_40g() || has.kr_clause_74(),
                BASE_R
                    .with_kr_10g_40g(has.kr_10g_40g())
                    .with_kr_clause_74(has.kr_clause_74()),
            ),
        };
        if !is_possible {
            return Err(PortError::Invalid {
                what: "error correction",
                value: format!("{wanted:?}"),
                remedy: "port and module do not have it: choose Automatic, Off, or the other code",
            });
        }
        let automatic = wanted == ErrorCorrection::Automatic;
        let enable = PhyEnable(found.enable).with_automatic_correction(automatic);
        let asked = PhyConfig {
            enable: enable.0,
            error_correction: asked.0,
            ..found
        };
        self.configure_phy(found, asked)
    }

    /// Reads the memory of the module: `None` without a module, or if it does not answer.
    ///
    /// Control path. Errors: [`PortError`]. Source: ice `ice_get_module_eeprom`; SFF-8636,
    /// SFF-8472.
    pub fn module(&self) -> Result<Option<Module>, PortError> {
        let admin = self.shared.admin()?;
        let Some(identifier) = admin.module_identifier()? else {
            return Ok(None);
        };
        let mut memory = Vec::with_capacity(module::PAGE_BYTES);
        while memory.len() < module::PAGE_BYTES {
            let at = memory.len() as u16;
            match admin.module_block(identifier, at)? {
                Some(block) => memory.extend(block),
                None => return Ok(None),
            }
        }
        Ok(decode(&memory))
    }

    /// The possible settings of the PHY, and the active ones as a configuration.
    fn active_phy(&self) -> Result<(PhyCapabilities, PhyConfig), PortError> {
        let admin = self.shared.admin()?;
        let possible = admin.phy_capabilities(report_mode::TOPOLOGY_WITH_MEDIA)?;
        let active = admin.phy_capabilities(report_mode::ACTIVE)?;
        Ok((possible, as_configured(&active)))
    }

    /// Asks for settings; those that the port found go back when it is closed.
    fn configure_phy(&self, found: PhyConfig, asked: PhyConfig) -> Result<(), PortError> {
        let admin = self.shared.admin()?;
        self.shared.configured().found_phy.get_or_insert(found);
        Ok(admin.set_phy_config(self.shared.port, &asked)?)
    }
}

/// The bits of Reed-Solomon codes, abilities and requests. None of the other family may go with
/// them. Source: ice `ice_common.c`, `ice_cfg_phy_fec`.
const REED_SOLOMON: ForwardErrorCorrection = ForwardErrorCorrection::ZERO
    .with_rs_clause_91(true)
    .with_rs_528_request(true)
    .with_rs_544_request(true);

/// The same of BASE-R codes.
const BASE_R: ForwardErrorCorrection = ForwardErrorCorrection::ZERO
    .with_kr_10g_40g(true)
    .with_kr_clause_74(true)
    .with_kr_10g_40g_request(true)
    .with_kr_25g_request(true);

fn decode(memory: &[u8]) -> Option<Module> {
    let identifier = *memory.first()?;
    let places = module::places(identifier)?;
    let text = |at: usize| {
        let bytes = memory.get(at..at + module::TEXT_BYTES)?;
        Some(String::from_utf8_lossy(bytes).trim().to_owned())
    };
    let pair = |at: Option<usize>| {
        let bytes = memory.get(at?..)?.first_chunk::<2>()?;
        Some(*bytes)
    };
    Some(Module {
        identifier,
        vendor: text(places.vendor)?,
        part_number: text(places.part_number)?,
        serial_number: text(places.serial_number)?,
        temperature_celsius: pair(places.temperature)
            .map(|bytes| f32::from(i16::from_be_bytes(bytes)) / 256.0),
        supply_volts: pair(places.supply).map(|bytes| f32::from(u16::from_be_bytes(bytes)) / 1e4),
    })
}
