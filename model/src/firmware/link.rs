//! Link, PHY and MAC of the port: a 100 Gb/s link over short-range fibre.

use super::command::{Command, Outcome};
use crate::chip::Context;
use crate::faults::Fault;
use ringside_bus::Instant;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::link::{
    AutonegotiationInfo, ForwardErrorCorrection, GetLinkStatus, GetPhyCapabilities, GetPortOptions,
    LINK_STATUS_BYTES, LinkConfig, LinkEvents, LinkInfo, LinkStatus, MAX_FRAME_BYTES, PhyAbilities,
    PhyCapabilities, PhyConfig, PhyEnable, PhyReport, PortOption, RestartAutonegotiation,
    RestartFlags, SetEventMask, SetMacConfig, SetMacLoopback, SetPortLed, link_events, module_type,
    phy_type, report_mode, speed,
};
use ringside_spec::lan::registers::reset::{PAUSE_QUANTA, PAUSE_REFRESH, PauseTimer};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Link types that the board supports with other modules.
const BOARD_PHY_TYPES: u64 = phy_type::BASE_100G_CR4
    | phy_type::BASE_100G_SR4
    | phy_type::BASE_100G_LR4
    | phy_type::BASE_100G_KR4
    | phy_type::BASE_25G_SR
    | phy_type::BASE_25G_CR;
const MODULE_PHY_TYPE: u64 = phy_type::BASE_100G_SR4;

/// Extended compliance code of 100GBASE-SR4. Source: SFF-8024, table 4-4.
const COMPLIANCE_SR4: u8 = 2;

/// Bit of [`SetMacLoopback::mode`] that turns the loopback on.
const LOOPBACK_ON: u8 = 1;

/// The time that a link needs to come up again. Source: the order of magnitude of real ports; long
/// enough that a slow driver sees the link down. Linux's ice misses a shorter time, and then never
/// announces the link again (`ice_main.c`, `ice_link_event`).
const TRAINING_TAKES: Duration = Duration::from_millis(500);

/// Code of 100 Gb/s in a port option.
const LANE_SPEED_100G: u8 = 7;

/// Timers of pause frames: pause time and refresh.
type PauseTimers = (u16, u16);

/// The timers after power on: the longest pause, announced again after half of it.
const DEFAULT_PAUSE: PauseTimers = (0xFFFF, 0x7FFF);

/// The state that events report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    up: bool,
    media: bool,
}

/// The port's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    enabled: bool,
    /// the link is trained anew, and is down until then
    training_until: Option<Instant>,
    config: PhyConfig,
    pause: PauseTimers,
    /// The next change is an event. The event ends it: a driver asks anew each time.
    events_enabled: bool,
    event_mask: LinkEvents,
    /// The LED blinks, so that people find the port.
    pub(super) blinks: bool,
    /// The MAC returns frames to the port instead of sending them.
    loopback: bool,
    /// The state that drivers were last notified of.
    reported: Reported,
    /// Something happened since.
    pub(super) check: bool,
}

/// State that a driver could leave behind: link disabled, events enabled, mask, changed PHY
/// settings, loopback, changed pause timers.
pub(super) type LinkDifferences = (bool, bool, u16, bool, bool, bool);

impl Link {
    pub(super) fn new() -> Self {
        Self {
            enabled: true,
            training_until: None,
            config: default_config(),
            pause: DEFAULT_PAUSE,
            events_enabled: false,
            event_mask: LinkEvents::ZERO,
            blinks: false,
            loopback: false,
            reported: Reported {
                up: true,
                media: true,
            },
            check: false,
        }
    }

    /// A reset of the function: its wish for events and its loopback are forgotten, the link stays.
    pub(super) fn reset_function(&mut self) {
        self.loopback = false;
        self.events_enabled = false;
        self.event_mask = LinkEvents::ZERO;
    }

    pub(super) fn differences(&self) -> LinkDifferences {
        let changed = self.config != default_config();
        (
            !self.enabled,
            self.events_enabled,
            self.event_mask.0,
            changed,
            self.loopback,
            self.pause != DEFAULT_PAUSE,
        )
    }

    /// A register of the MAC's pause timers.
    pub(super) fn pause_register(&self, offset: u64) -> Option<u32> {
        let (quanta, refresh) = self.pause;
        let time = match offset {
            PAUSE_QUANTA => quanta,
            PAUSE_REFRESH => refresh,
            _ => return None,
        };
        Some(PauseTimer::ZERO.with_time(time.into()).0)
    }

    /// True while the MAC returns frames to the port.
    pub(super) const fn loops_back(&self) -> bool {
        self.loopback
    }

    pub(super) fn set_loopback(&mut self, command: &Command) -> Outcome {
        let asked: SetMacLoopback = command.parameters();
        self.loopback = asked.mode & LOOPBACK_ON != 0;
        command.done()
    }

    /// True unless the driver switched the link off, or it is trained.
    pub(super) const fn wanted(&self) -> bool {
        self.enabled && self.training_until.is_none()
    }

    /// The end of the training under way.
    pub(super) const fn training_until(&self) -> Option<Instant> {
        self.training_until
    }

    /// Ends a training whose time has come; true if it did.
    pub(super) fn end_training(&mut self, now: Instant) -> bool {
        let over = self.training_until.is_some_and(|until| until <= now);
        if over {
            self.training_until = None;
            self.check = true;
        }
        over
    }

    /// A link that is up goes down and is trained anew. Source: ice `ice_ethtool.c`,
    /// `ice_set_link_ksettings`, which takes the carrier away and waits for the event, and
    /// `ice_main.c`, `ice_configure_phy`, which sends no configuration that is in force already.
    fn train(&mut self, context: &Context<'_>) {
        if self.up(context.faults) {
            self.training_until = Some(context.now.plus(TRAINING_TAKES));
        }
    }

    fn up(&self, faults: &[Fault]) -> bool {
        self.wanted() && has_media(faults) && !faults.contains(&Fault::LinkDown)
    }

    /// The new state if the link changed since the last call.
    pub(super) fn changed(&mut self, faults: &[Fault]) -> Option<LinkStatus> {
        self.check = false;
        let media = has_media(faults);
        if media && !self.reported.media {
            self.module_inserted();
        }
        let now = Reported {
            up: self.up(faults),
            media,
        };
        let changed = std::mem::replace(&mut self.reported, now) != now;
        changed.then(|| self.status(faults))
    }

    /// A module brings the link up with the settings after power on. Source: ice `ice_main.c`,
    /// `ice_check_media_subtask`: "PHY settings are reset on media insertion".
    fn module_inserted(&mut self) {
        self.enabled = true;
        self.config = default_config();
    }

    /// True if a driver has requested an event for the next change of the link; the request is met
    /// with that. Source: ice `ice_main.c`, `ice_link_event`, which enables events again after
    /// each.
    pub(super) fn take_event_request(&mut self) -> bool {
        let wanted = self.events_enabled && !self.event_mask.up_down();
        self.events_enabled &= !wanted;
        wanted
    }

    fn status(&self, faults: &[Fault]) -> LinkStatus {
        let up = self.up(faults);
        let info = LinkInfo::ZERO
            .with_media(has_media(faults))
            .with_up(up)
            .with_port_up(up)
            .with_signal(up);
        // Short-range fibre has no negotiation that could complete.
        let done = AutonegotiationInfo::ZERO.with_qualified_module(has_media(faults));
        let correction = ForwardErrorCorrection(self.config.error_correction);
        let corrects = correction.rs_clause_91() || correction.rs_528_request();
        let enable = PhyEnable(self.config.enable);
        let pause = done
            .with_transmit_pause(up && enable.transmit_pause())
            .with_receive_pause(up && enable.receive_pause());
        LinkStatus {
            link_info: info.0,
            autonegotiation: pause.0,
            frame_bytes_max: MAX_FRAME_BYTES.into(),
            config: LinkConfig::ZERO.with_rs_528(up && corrects).0,
            speed: if up { speed::GIGABITS_100 } else { 0 }.into(),
            phy_type_low: MODULE_PHY_TYPE.into(),
            ..LinkStatus::zeroed()
        }
    }

    /// The 32 bytes that answers and events carry.
    pub(super) fn event_body(status: &LinkStatus) -> Vec<u8> {
        status
            .as_bytes()
            .get(..LINK_STATUS_BYTES)
            .unwrap_or_default()
            .to_vec()
    }

    pub(super) fn get_status(&mut self, command: &mut Command, faults: &[Fault]) -> Outcome {
        let asked: GetLinkStatus = command.parameters();
        match asked.flags.get() {
            link_events::ENABLE => self.events_enabled = true,
            link_events::DISABLE => self.events_enabled = false,
            _ => {}
        }
        let body = Self::event_body(&self.status(faults));
        command.put_bytes(0, &body)?;
        let flags = if self.events_enabled {
            link_events::ENABLED
        } else {
            0
        };
        command.answer_with(
            &GetLinkStatus {
                flags: flags.into(),
                ..asked
            },
            LINK_STATUS_BYTES,
        )
    }

    pub(super) fn phy_capabilities(&self, command: &mut Command, faults: &[Fault]) -> Outcome {
        let asked: GetPhyCapabilities = command.parameters();
        let mode = PhyReport(asked.report.get()).mode();
        let config = if mode == report_mode::ACTIVE {
            self.config
        } else {
            default_config()
        };
        let enable = PhyEnable(config.enable);
        let abilities = PhyAbilities::ZERO
            .with_transmit_pause(enable.transmit_pause())
            .with_receive_pause(enable.receive_pause())
            .with_link(self.enabled_in(mode))
            .with_automatic_correction(enable.automatic_correction());
        let types = match mode {
            report_mode::TOPOLOGY => BOARD_PHY_TYPES,
            report_mode::TOPOLOGY_WITH_MEDIA if !has_media(faults) => 0,
            _ => MODULE_PHY_TYPE,
        };
        let capabilities = PhyCapabilities {
            phy_type_low: types.into(),
            abilities: abilities.0,
            error_correction: config.error_correction,
            extended_compliance: COMPLIANCE_SR4,
            module_type: [module_type::QSFP_PLUS, 0, module_type::QSFP_PLUS_LAST],
            ..PhyCapabilities::zeroed()
        };
        command.put(0, &capabilities)?;
        command.answer_with(&asked, PhyCapabilities::SIZE)
    }

    /// The active settings tell of a link that a restart switched off as well: a driver sets the
    /// PHY up again only if it is off there. Source: ice `ice_main.c`, `ice_configure_phy`.
    fn enabled_in(&self, mode: u16) -> bool {
        mode != report_mode::ACTIVE || self.enabled
    }

    /// Without a module the PHY is busy. Source: ice `ice_ethtool.c` and `ice_main.c`, which set up
    /// the PHY once there is a module.
    pub(super) fn set_phy_config(&mut self, command: &Command, context: &Context<'_>) -> Outcome {
        let config: PhyConfig = command.item(0)?;
        if !has_media(context.faults) {
            return Err(ReturnCode::Busy);
        }
        // Codes that the module does not have are taken and not used: drivers request them for
        // every module. Source: ice `ice_common.c`, `ice_cfg_phy_fec`; DPDK `ice_ethdev.c`,
        // `ice_fec_set`.
        let enable = PhyEnable(config.enable);
        if enable.automatic_update() {
            self.train(context);
        }
        self.enabled = enable.link();
        // "apply at once" is a command, not a setting
        let enable = enable.with_automatic_update(false);
        self.config = PhyConfig {
            enable: enable.0,
            ..config
        };
        self.check = true;
        command.done()
    }

    /// Takes the pause timers over with the largest frame: a driver that means to leave them gives
    /// those that it read. Source: ice `ice_common.c`, `ice_fill_tx_timer_and_fc_thresh`.
    pub(super) fn set_mac_config(&mut self, command: &Command) -> Outcome {
        let asked: SetMacConfig = command.parameters();
        if !(1..=MAX_FRAME_BYTES).contains(&asked.frame_bytes_max.get()) {
            return Err(ReturnCode::Invalid);
        }
        self.pause = (asked.timer_value.get(), asked.refresh_threshold.get());
        command.done()
    }

    pub(super) fn restart(&mut self, command: &Command, context: &Context<'_>) -> Outcome {
        let asked: RestartAutonegotiation = command.parameters();
        self.train(context);
        self.enabled = RestartFlags(asked.flags).enable();
        self.check = true;
        command.done()
    }

    pub(super) fn set_event_mask(&mut self, command: &Command) -> Outcome {
        let asked: SetEventMask = command.parameters();
        self.event_mask = LinkEvents(asked.mask.get());
        command.done()
    }

    pub(super) fn set_led(&mut self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let asked: SetPortLed = command.parameters();
        check_own_port(asked.port, asked.port_valid, context);
        self.blinks = match asked.mode {
            0 => false,
            1 => true,
            _ => return Err(ReturnCode::Invalid),
        };
        command.done()
    }

    pub(super) fn port_options(&self, command: &mut Command) -> Outcome {
        let asked: GetPortOptions = command.parameters();
        let option = PortOption {
            mac_count: 1,
            lane_speed_max: LANE_SPEED_100G,
            ..PortOption::zeroed()
        };
        command.put(0, &option)?;
        // option 0 is active, and that is so for certain
        let answer = GetPortOptions {
            count: 1,
            active: 1 << 7,
            pending: 0,
            ..asked
        };
        command.answer_with(&answer, PortOption::SIZE)
    }
}

/// True with a module in the port.
pub(super) fn has_media(faults: &[Fault]) -> bool {
    !faults.contains(&Fault::ModuleAbsent)
}

/// Drivers leave the port of a command for LED or module out, which means the function's own.
/// Source: ice `ice_common.c`, `ice_aq_set_port_id_led`, and all callers of `ice_aq_sff_eeprom`.
pub(super) fn check_own_port(port: u8, valid: u8, context: &mut Context<'_>) {
    if (port, valid) != (0, 0) {
        context
            .ledger
            .breach("command for LED or module that names a port", || {
                format!("port {port}, valid {valid}")
            });
    }
}

fn default_config() -> PhyConfig {
    let correction = ForwardErrorCorrection::ZERO
        .with_rs_528_request(true)
        .with_rs_clause_91(true);
    PhyConfig {
        phy_type_low: MODULE_PHY_TYPE.into(),
        enable: PhyEnable::ZERO
            .with_link(true)
            .with_automatic_correction(true)
            .0,
        error_correction: correction.0,
        ..PhyConfig::zeroed()
    }
}
