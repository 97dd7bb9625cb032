//! Dispatches each command to the part of the firmware that executes it.

use super::command::{Command, Outcome};
use super::rules::ListKind;
use super::{Firmware, board, bridging, generic, media, nvm, recipes, switch};
use crate::chip::Context;
use ringside_spec::lan::admin::generic::resource;
use ringside_spec::lan::admin::link::{
    GetLinkStatus, GetPhyCapabilities, RestartAutonegotiation, SetEventMask, SetPhyConfig,
};
use ringside_spec::lan::admin::scheduler::GetTopology;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::admin::{Opcode, ReturnCode, further_name};

impl Firmware {
    /// Commands of the admin queue itself, of the device, and of locks.
    pub(super) fn execute(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        match opcode {
            Opcode::GetVersion => {
                self.version_asked = true;
                generic::version(command)
            }
            Opcode::DriverVersion => generic::driver_version(command, context),
            Opcode::QueueShutdown => {
                self.shutdown_said = true;
                command.done()
            }
            Opcode::RequestResource => {
                let complete = self.package.complete(context.faults);
                self.locks.request(command, complete, context)
            }
            Opcode::ReleaseResource => self.locks.release(command, context),
            Opcode::ListFunctionCapabilities => {
                generic::capabilities(command, &self.settings, false)
            }
            Opcode::ListDeviceCapabilities => generic::capabilities(command, &self.settings, true),
            Opcode::ReadMac => generic::read_mac(command, self.mac, self.settings.pci_function),
            Opcode::WriteMac => generic::write_mac(command, &mut self.mac),
            Opcode::ClearPxe => {
                let already = std::mem::replace(&mut self.pxe_cleared, true);
                generic::clear_pxe(command, already)
            }
            Opcode::DriverSharedParameters => self.shared_words.access(command),
            Opcode::GetExpandedError | Opcode::ConfigureNoDrop => command.done(),
            Opcode::ClearFunctionConfig => {
                self.begin_anew(context);
                command.done()
            }
            Opcode::NvmRead => {
                let locked = self.locks.holds(resource::NVM, context.now);
                nvm::read(command, locked, context)
            }
            Opcode::NvmChecksum => nvm::checksum(command),
            Opcode::DownloadPackage => {
                let locked = self.locks.holds(resource::GLOBAL_CONFIG, context.now);
                self.changed = true;
                self.package.download(command, locked, context)
            }
            Opcode::UpdatePackage => {
                let locked = self.locks.holds(resource::CHANGE_LOCK, context.now);
                self.changed = true;
                self.package.update(command, locked, context)
            }
            Opcode::UploadSection => self.package.upload(command, context),
            Opcode::GetPackageInfo => self.package.info(command, context.faults),
            Opcode::FirmwareLogQuery => self.logging.query(command),
            Opcode::FirmwareLogConfig => self.logging.configure(command),
            // The firmware of the model is always healthy: no event will come.
            Opcode::FirmwareLogRegister | Opcode::SetHealthEvents => command.done(),
            Opcode::NeighbourDeviceRequest => {
                self.changed = true;
                self.phy.request(command, context)
            }
            _ => self.execute_switch(opcode, command, context),
        }
    }

    /// The driver clears what the function has.
    fn begin_anew(&mut self, context: &mut Context<'_>) {
        // A driver that has set its queue up anew knows of the reset before. Source: ice
        // `ice_main.c`, `ice_rebuild`.
        if !self.reset_since_start {
            context.ledger.excuse(false);
        }
        self.clear_config();
        self.locks.clear();
        self.link.reset_function();
    }

    /// Commands of the switch and its VSIs.
    fn execute_switch(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        match opcode {
            Opcode::GetSwitchConfig => switch::config(command, self.settings.pci_function),
            Opcode::SetPortParameters => {
                switch::port_parameters(command, self.settings.double_vlan, context)
            }
            Opcode::AllocateResource => self.resources.allocate(command, context),
            Opcode::FreeResource => {
                for (kind, number) in self.resources.free(command, context)? {
                    self.let_go(kind, number);
                }
                command.done()
            }
            Opcode::GetAllocatedResources | Opcode::ShareResource => command.done(),
            Opcode::GetVlanMode => switch::vlan_mode(command, self.settings.double_vlan),
            Opcode::SetVlanMode => command.done(),
            Opcode::AddVsi | Opcode::UpdateVsi | Opcode::GetVsi | Opcode::FreeVsi => {
                self.changed = true;
                self.execute_vsi(opcode, command, context)
            }
            Opcode::GetRecipe => recipes::get(command),
            Opcode::GetRecipeToProfile => recipes::of_profile(command),
            Opcode::AddSwitchRules => {
                self.changed = true;
                self.rules
                    .add(command, &self.vsis, &self.resources, context)
            }
            Opcode::UpdateSwitchRules => {
                self.changed = true;
                self.rules
                    .update(command, &self.vsis, &self.resources, context)
            }
            Opcode::RemoveSwitchRules => {
                self.changed = true;
                self.rules.remove(command, context)
            }
            Opcode::SetRssKey => {
                self.changed = true;
                self.rss.set_key(command, &self.vsis)
            }
            Opcode::GetRssKey => self.rss.get_key(command, &self.vsis),
            Opcode::SetRssTable => {
                self.changed = true;
                self.rss
                    .set_table(command, &self.vsis, &self.resources, context)
            }
            Opcode::GetRssTable => {
                self.rss
                    .get_table(command, &self.vsis, &self.resources, context)
            }
            _ => self.execute_scheduler(opcode, command, context),
        }
    }

    /// Removes the state that depended on a resource that was freed.
    fn let_go(&mut self, kind: Resource, number: u16) {
        match kind {
            Resource::VsiListReplication => {
                self.rules.forget_list(ListKind::Replication, number);
            }
            Resource::VsiListPrune => self.rules.forget_list(ListKind::Prune, number),
            Resource::GlobalHash => self.rss.forget_global(number),
            Resource::FlowDirectorTcam => self.package.profiles_mut().free_filter_row(number),
            Resource::HashTcam => self.package.profiles_mut().free_hash_row(number),
            _ => return,
        }
        self.changed = true;
    }

    fn execute_vsi(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        match opcode {
            Opcode::AddVsi => self.vsis.add(command, context),
            Opcode::UpdateVsi => self.vsis.update(command, context),
            Opcode::GetVsi => self.vsis.get(command, context),
            _ => {
                let queues = &self.queues;
                let outcome = self
                    .vsis
                    .free(command, |vsi| queues.sends_for(vsi), context)?;
                self.rss.keep(&self.vsis);
                self.lldp_receivers.keep(&self.vsis);
                Ok(outcome)
            }
        }
    }

    /// Commands of the transmit scheduler and its leaves.
    fn execute_scheduler(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        check_port(opcode, command, self.settings.pci_function, context);
        match opcode {
            Opcode::GetDefaultTopology => self.scheduler.default_topology(command),
            Opcode::AddSchedulerElements => self.scheduler.add_elements(command, context),
            Opcode::ConfigureSchedulerElements => {
                self.scheduler.configure_elements(command, context)
            }
            Opcode::QuerySchedulerElements => self.scheduler.query_elements(command),
            Opcode::MoveSchedulerElements => self.scheduler.move_elements(command, context),
            Opcode::SuspendSchedulerElements => self.scheduler.suspend(command, true),
            Opcode::ResumeSchedulerElements => self.scheduler.suspend(command, false),
            Opcode::QueryPortEts => self.scheduler.port_ets(command),
            Opcode::DeleteSchedulerElements => self.scheduler.delete_elements(command, context),
            Opcode::AddRateLimitProfiles => self.scheduler.add_rate_profiles(command),
            Opcode::QueryRateLimitProfiles => self.scheduler.query_rate_profiles(command),
            Opcode::RemoveRateLimitProfiles => {
                self.scheduler.remove_rate_profiles(command, context)
            }
            Opcode::QuerySchedulerResources => self.scheduler.resources(command),
            Opcode::AddTransmitQueues => {
                self.changed = true;
                self.queues
                    .add_transmit(command, &mut self.scheduler, &self.vsis, context)
            }
            Opcode::MoveTransmitQueues => {
                let queues = &mut self.queues;
                queues.move_transmit(command, &mut self.scheduler, context)
            }
            Opcode::DisableTransmitQueues => {
                self.changed = true;
                self.queues.disable(command, &mut self.scheduler, context)
            }
            Opcode::AllocateAccessTable
            | Opcode::FreeAccessTable
            | Opcode::AllocateAccessActions
            | Opcode::FreeAccessActions
            | Opcode::AllocateAccessScenario
            | Opcode::FreeAccessScenario
            | Opcode::AllocateAccessCounters
            | Opcode::FreeAccessCounters
            | Opcode::FreeAccessResources
            | Opcode::UpdateAccessScenario
            | Opcode::ProgramAccessActions
            | Opcode::ProgramAccessProfile
            | Opcode::ProgramAccessRanges
            | Opcode::QueryAccessProfile
            | Opcode::QueryAccessRanges
            | Opcode::QueryAccessScenario
            | Opcode::ProgramAccessEntry => self.access_control.execute(opcode, command, context),
            Opcode::AddRdmaQueueSets => {
                self.changed = true;
                self.queues.add_rdma(command, &mut self.scheduler, context)
            }
            _ => self.execute_link(opcode, command, context),
        }
    }

    /// Commands of link, LLDP and flow control; all others are not implemented.
    fn execute_link(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        check_port(opcode, command, self.settings.pci_function, context);
        match opcode {
            Opcode::GetPhyCapabilities => self.link.phy_capabilities(command, context.faults),
            Opcode::SetPhyConfig => self.link.set_phy_config(command, context),
            Opcode::SetMacConfig => self.link.set_mac_config(command),
            Opcode::RestartAutonegotiation => self.link.restart(command, context),
            Opcode::GetLinkStatus => self.link.get_status(command, context.faults),
            Opcode::SetEventMask => self.link.set_event_mask(command),
            Opcode::GetPortOptions => self.link.port_options(command),
            Opcode::SetPortLed => self.link.set_led(command, context),
            Opcode::ModuleEeprom => media::read(command, context),
            Opcode::GetLinkTopology => board::find_node(command),
            Opcode::RunScript => board::run_script(command, context),
            Opcode::LldpGetMib => bridging::configuration(self.agent, command, context.faults),
            Opcode::LldpStop => self.agent.stop(command),
            Opcode::LldpStart => self.agent.start(command),
            Opcode::LldpDcbAgent => self.agent.exchange(command, context.faults),
            Opcode::GetCeeDcbConfig => Err(ReturnCode::NoEntry),
            Opcode::LldpSetLocalMib => {
                self.changed = true;
                self.scheduler.set_local_mib(command)
            }
            Opcode::LldpFilterControl => {
                self.changed = true;
                self.lldp_receivers.control(command, &self.vsis, context)
            }
            Opcode::LldpMibChange
            | Opcode::LldpExecutePendingMib
            | Opcode::QueryFlowControlMode
            | Opcode::SetFlowControlMode => command.done(),
            Opcode::SetMacLoopback => {
                self.changed = true;
                self.link.set_loopback(command)
            }
            _ => {
                not_done(opcode, context);
                Err(ReturnCode::NotImplemented)
            }
        }
    }
}

/// Counts a command for another port than the function's own, by the number that 0x0200 lists. 0
/// means that too. Source: ice `ice_common.c` and `ice_sched.c`, uses of `pi->lport`.
fn check_port(opcode: Opcode, command: &Command, own: u8, context: &mut Context<'_>) {
    let port = match opcode {
        Opcode::GetPhyCapabilities => command.parameters::<GetPhyCapabilities>().port,
        Opcode::SetPhyConfig => command.parameters::<SetPhyConfig>().port,
        Opcode::RestartAutonegotiation => command.parameters::<RestartAutonegotiation>().port,
        Opcode::GetLinkStatus => command.parameters::<GetLinkStatus>().port,
        Opcode::SetEventMask => command.parameters::<SetEventMask>().port,
        Opcode::GetDefaultTopology => command.parameters::<GetTopology>().port,
        _ => return,
    };
    if port != 0 && port != own {
        context.ledger.breach("command for another port", || {
            format!("{}, port {port} of function {own}", opcode.c_name())
        });
    }
}

/// Counts a command that the model does not carry out: a breach unless a driver's sources name it.
fn not_done(opcode: Opcode, context: &mut Context<'_>) {
    let code = opcode.code();
    let name = match opcode {
        Opcode::Unknown(code) => further_name(code),
        _ => Some(opcode.c_name()),
    };
    let ledger = &mut context.ledger;
    match name {
        Some(name) => ledger.remark("admin command that the model does not carry out", || {
            format!("{code:#06x} {name}")
        }),
        None => ledger.breach("admin command that does not exist", || {
            format!("{code:#06x}")
        }),
    }
}
