//! PHY, MAC and link.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::link::{
    GetLinkStatus, GetPhyCapabilities, LINK_STATUS_BYTES, LinkEvents, LinkInfo, LinkStatus,
    ModuleBus, ModuleEeprom, PhyCapabilities, PhyConfig, PhyReport, SetEventMask, SetMacConfig,
    SetPhyConfig, SetPortLed, page_mode, speed,
};
use ringside_spec::lan::module;
use ringside_spec::lan::registers::reset::{PAUSE_QUANTA, PAUSE_REFRESH, PauseTimer};
use serde::Serialize;
use zerocopy::IntoBytes;

/// The state of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct LinkState {
    /// Frames go and come.
    pub up: bool,
    /// A module or cable is there.
    pub media: bool,
    /// Megabits a second; `None` while down or unknown.
    pub megabits_per_second: Option<u32>,
    /// Largest frame that the MAC takes, bytes.
    pub frame_bytes_max: u16,
}

impl LinkState {
    /// Reads the body of an answer or of an event.
    pub(crate) fn decode(data: &[u8]) -> Result<Self, AdminError> {
        let opcode = Opcode::GetLinkStatus;
        if data.len() < LINK_STATUS_BYTES {
            let reason = format!("{} bytes, and {LINK_STATUS_BYTES} are needed", data.len());
            return Err(AdminError::malformed(opcode, reason));
        }
        // The E810 gives the first part only; the rest stays zero.
        let mut bytes = [0; LinkStatus::SIZE];
        for (to, from) in bytes.iter_mut().zip(data) {
            *to = *from;
        }
        let status: LinkStatus = read_at(opcode, &bytes, 0)?;
        let info = LinkInfo(status.link_info);
        Ok(Self {
            up: info.up(),
            media: info.media(),
            megabits_per_second: info
                .up()
                .then(|| speed::megabits(status.speed.get()))
                .flatten(),
            frame_bytes_max: status.frame_bytes_max.get(),
        })
    }
}

impl AdminQueue {
    /// The abilities or settings of the PHY (0x0600); `mode` is one of `link::report_mode`.
    pub fn phy_capabilities(&self, mode: u16) -> Result<PhyCapabilities, AdminError> {
        let opcode = Opcode::GetPhyCapabilities;
        let parameters = GetPhyCapabilities {
            report: PhyReport::ZERO.with_mode(mode).0.into(),
            ..GetPhyCapabilities::zeroed()
        };
        let data = Data::Receive(PhyCapabilities::SIZE);
        let answer = self.execute(opcode, &parameters, data)?;
        read_at(opcode, &answer.data, 0)
    }

    /// The requested settings of the PHY (0x0601).
    pub fn set_phy_config(&self, port: u8, config: &PhyConfig) -> Result<(), AdminError> {
        let parameters = SetPhyConfig {
            port,
            ..SetPhyConfig::zeroed()
        };
        let data = Data::Send(config.as_bytes());
        self.execute(Opcode::SetPhyConfig, &parameters, data)?;
        Ok(())
    }

    /// Largest frame of the MAC (0x0603), bytes. The command sets the timers of pause frames as
    /// well; they stay as they are.
    ///
    /// Source: ice `ice_common.c`, `ice_aq_set_mac_cfg`.
    pub fn set_mac_config(&self, frame_bytes_max: u16) -> Result<(), AdminError> {
        let parameters = SetMacConfig {
            frame_bytes_max: frame_bytes_max.into(),
            timer_value: self.pause_timer(PAUSE_QUANTA)?.into(),
            refresh_threshold: self.pause_timer(PAUSE_REFRESH)?.into(),
            ..SetMacConfig::zeroed()
        };
        self.execute(Opcode::SetMacConfig, &parameters, Data::None)?;
        Ok(())
    }

    fn pause_timer(&self, register: u64) -> Result<u16, AdminError> {
        let timer = PauseTimer(self.registers().read(register)?);
        Ok(u16::try_from(timer.time()).unwrap_or(u16::MAX))
    }

    /// State of the link (0x0607); `events` is one of `link::link_events`.
    pub fn link_status(&self, port: u8, events: u16) -> Result<LinkState, AdminError> {
        let parameters = GetLinkStatus {
            port,
            flags: events.into(),
            ..GetLinkStatus::zeroed()
        };
        let data = Data::Receive(LINK_STATUS_BYTES);
        let answer = self.execute(Opcode::GetLinkStatus, &parameters, data)?;
        LinkState::decode(&answer.data)
    }

    /// Has the LED of the function's port blink, or show the link (0x06E9). The command names no
    /// port, as Linux's does not: it means the function's own.
    pub fn set_port_led(&self, blink: bool) -> Result<(), AdminError> {
        let parameters = SetPortLed {
            mode: blink.into(),
            ..SetPortLed::zeroed()
        };
        self.execute(Opcode::SetPortLed, &parameters, Data::None)?;
        Ok(())
    }

    /// The kind of the module in the function's port: the first byte of its memory (0x06EE).
    /// `None`: there is no module, or it does not answer.
    pub fn module_identifier(&self) -> Result<Option<u8>, AdminError> {
        let mut byte = [0];
        let found = self.read_module(page_mode::KEEP, 0, &mut byte)?;
        Ok(found.map(|()| byte[0]))
    }

    /// [`module::READ_BYTES`] from `address` of the module's memory (0x06EE), of its first page
    /// unless it is an SFP, which has no pages. `None` as in [`AdminQueue::module_identifier`].
    pub fn module_block(
        &self,
        identifier: u8,
        address: u16,
    ) -> Result<Option<[u8; module::READ_BYTES]>, AdminError> {
        let mode = match identifier {
            module::identifier::SFP => page_mode::KEEP,
            _ => page_mode::SET,
        };
        let mut block = [0; module::READ_BYTES];
        let found = self.read_module(mode, address, &mut block)?;
        Ok(found.map(|()| block))
    }

    /// Fills `bytes`. The firmware wants the flag of data to be read for a read of the module, too.
    ///
    /// Source: ice `ice_common.c`, `ice_aq_sff_eeprom`; `ice_ethtool.c`, `ice_get_module_eeprom`.
    fn read_module(
        &self,
        page_mode: u16,
        address: u16,
        bytes: &mut [u8],
    ) -> Result<Option<()>, AdminError> {
        let opcode = Opcode::ModuleEeprom;
        let bus = ModuleBus::ZERO
            .with_address(module::BUS_ADDRESS)
            .with_page_mode(page_mode);
        let parameters = ModuleEeprom {
            bus_address: bus.0.into(),
            memory_address: address.into(),
            ..ModuleEeprom::zeroed()
        };
        let answer = match self.execute(opcode, &parameters, Data::Send(bytes)) {
            Ok(answer) => answer,
            Err(AdminError::Refused {
                code: ReturnCode::NoEntry | ReturnCode::Busy,
                ..
            }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(data) = answer.data.get(..bytes.len()) else {
            let reason = format!("{} bytes of {}", answer.data.len(), bytes.len());
            return Err(AdminError::malformed(opcode, reason));
        };
        bytes.copy_from_slice(data);
        Ok(Some(()))
    }

    /// The masked link events (0x0613).
    pub fn set_link_event_mask(&self, port: u8, masked: LinkEvents) -> Result<(), AdminError> {
        let parameters = SetEventMask {
            port,
            mask: masked.0.into(),
            ..SetEventMask::zeroed()
        };
        self.execute(Opcode::SetEventMask, &parameters, Data::None)?;
        Ok(())
    }
}
