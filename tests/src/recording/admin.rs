//! Commands of the admin queue in fields.

use super::described::{Described, Value, bytes_of, number, some};
use ringside_model::record::AdminCommand;
use ringside_model::record::text::admin_opcode;
use ringside_spec::lan::Layout;
use ringside_spec::lan::admin::{
    Descriptor, DescriptorFlags, Generic, Opcode, board, capabilities, generic, link, lldp, nvm,
    package, queues, rss, scheduler, switch, vsi,
};
use ringside_spec::lan::package::{BufferHeader, SectionEntry};
use ringside_spec::lan::transmit::TransmitContext;

/// A piece of a command's buffer.
enum Part {
    One(Layout),
    /// As often as there are bytes for.
    Each(Layout),
    /// Numbers of so many bytes, as often as there are bytes for.
    Numbers(&'static str, usize),
    Rest(&'static str),
}
use Part::{Each, Numbers, One, Rest};

/// The structure of the sixteen bytes in the descriptor.
#[must_use]
pub(super) fn parameters(opcode: Opcode) -> Layout {
    match opcode {
        Opcode::GetVersion => generic::Version::LAYOUT,
        Opcode::DriverVersion => generic::DriverVersion::LAYOUT,
        Opcode::QueueShutdown => generic::QueueShutdown::LAYOUT,
        Opcode::RequestResource | Opcode::ReleaseResource => generic::RequestResource::LAYOUT,
        Opcode::ListFunctionCapabilities | Opcode::ListDeviceCapabilities => {
            capabilities::ListCapabilities::LAYOUT
        }
        Opcode::ReadMac => generic::ReadMac::LAYOUT,
        Opcode::WriteMac => generic::WriteMac::LAYOUT,
        Opcode::ClearPxe => generic::ClearPxe::LAYOUT,
        Opcode::GetSwitchConfig => switch::GetSwitchConfig::LAYOUT,
        Opcode::SetPortParameters => switch::SetPortParameters::LAYOUT,
        Opcode::AllocateResource | Opcode::FreeResource => switch::AllocateResource::LAYOUT,
        Opcode::AddRecipe | Opcode::GetRecipe => switch::RecipeCommand::LAYOUT,
        Opcode::RecipeToProfile | Opcode::GetRecipeToProfile => switch::RecipeToProfile::LAYOUT,
        Opcode::AddSwitchRules | Opcode::UpdateSwitchRules | Opcode::RemoveSwitchRules => {
            switch::SwitchRules::LAYOUT
        }
        Opcode::SetFlowControlMode | Opcode::QueryFlowControlMode => {
            switch::FlowControlMode::LAYOUT
        }
        Opcode::AddVsi | Opcode::UpdateVsi | Opcode::GetVsi | Opcode::FreeVsi => {
            vsi::VsiCommand::LAYOUT
        }
        Opcode::GetDefaultTopology => scheduler::GetTopology::LAYOUT,
        Opcode::GetTransmitTopology | Opcode::SetTransmitTopology => {
            scheduler::TransmitTopology::LAYOUT
        }
        Opcode::AddSchedulerElements
        | Opcode::ConfigureSchedulerElements
        | Opcode::QuerySchedulerElements
        | Opcode::MoveSchedulerElements
        | Opcode::SuspendSchedulerElements
        | Opcode::ResumeSchedulerElements
        | Opcode::DeleteSchedulerElements => scheduler::ElementCommand::LAYOUT,
        Opcode::QueryPortEts => scheduler::QueryPortEts::LAYOUT,
        Opcode::QuerySchedulerResources => scheduler::QuerySchedulerResources::LAYOUT,
        Opcode::AddRateLimitProfiles | Opcode::RemoveRateLimitProfiles => {
            scheduler::RateLimitCommand::LAYOUT
        }
        Opcode::AddTransmitQueues => queues::AddTransmitQueues::LAYOUT,
        Opcode::DisableTransmitQueues => queues::DisableTransmitQueues::LAYOUT,
        Opcode::MoveTransmitQueues => queues::MoveTransmitQueues::LAYOUT,
        Opcode::AddRdmaQueueSets => queues::AddRdmaQueueSets::LAYOUT,
        Opcode::DownloadPackage | Opcode::UpdatePackage => package::DownloadPackage::LAYOUT,
        Opcode::GetPackageInfo => package::GetPackageInfo::LAYOUT,
        Opcode::SetRssKey | Opcode::GetRssKey => rss::RssKeyCommand::LAYOUT,
        Opcode::SetRssTable | Opcode::GetRssTable => rss::RssTableCommand::LAYOUT,
        Opcode::NvmRead => nvm::NvmCommand::LAYOUT,
        Opcode::NvmChecksum => nvm::NvmChecksum::LAYOUT,
        Opcode::FirmwareLogConfig | Opcode::FirmwareLogRegister | Opcode::FirmwareLogQuery => {
            generic::FirmwareLog::LAYOUT
        }
        other => network_parameters(other),
    }
}

fn network_parameters(opcode: Opcode) -> Layout {
    match opcode {
        Opcode::GetPhyCapabilities => link::GetPhyCapabilities::LAYOUT,
        Opcode::SetPhyConfig => link::SetPhyConfig::LAYOUT,
        Opcode::SetMacConfig => link::SetMacConfig::LAYOUT,
        Opcode::RestartAutonegotiation => link::RestartAutonegotiation::LAYOUT,
        Opcode::GetLinkStatus => link::GetLinkStatus::LAYOUT,
        Opcode::SetEventMask => link::SetEventMask::LAYOUT,
        Opcode::SetMacLoopback => link::SetMacLoopback::LAYOUT,
        Opcode::GetLinkTopology => link::GetLinkTopology::LAYOUT,
        Opcode::RunScript => board::RunScript::LAYOUT,
        Opcode::GetPortOptions => link::GetPortOptions::LAYOUT,
        Opcode::ModuleEeprom => link::ModuleEeprom::LAYOUT,
        Opcode::LldpGetMib => lldp::LldpGetMib::LAYOUT,
        Opcode::LldpMibChange => lldp::LldpSetMibChange::LAYOUT,
        Opcode::LldpStop => lldp::LldpStop::LAYOUT,
        Opcode::LldpStart => lldp::LldpStart::LAYOUT,
        Opcode::LldpSetLocalMib => lldp::LldpSetLocalMib::LAYOUT,
        Opcode::LldpDcbAgent => lldp::LldpDcbAgent::LAYOUT,
        Opcode::LldpFilterControl => lldp::LldpFilterControl::LAYOUT,
        _ => Generic::LAYOUT,
    }
}

/// The bytes that the driver sends in the buffer.
fn parts(opcode: Opcode, sent: &[u8]) -> Vec<Part> {
    match opcode {
        Opcode::DriverVersion => vec![Rest("driver_string")],
        Opcode::AllocateResource | Opcode::FreeResource => {
            vec![One(switch::ResourceElements::LAYOUT), Numbers("elem", 2)]
        }
        Opcode::AddVsi | Opcode::UpdateVsi => vec![One(vsi::VsiProperties::LAYOUT)],
        Opcode::SetVlanMode => vec![One(switch::SetVlanMode::LAYOUT)],
        Opcode::AddSwitchRules | Opcode::UpdateSwitchRules | Opcode::RemoveSwitchRules => {
            match sent.first() {
                // lookup of received and of transmitted packets
                Some(0 | 1) => vec![One(switch::LookupRule::LAYOUT), Rest("header")],
                _ => vec![One(switch::VsiListRule::LAYOUT), Numbers("vsi", 2)],
            }
        }
        Opcode::AddSchedulerElements => vec![
            One(scheduler::GroupHeader::LAYOUT),
            Each(scheduler::Node::LAYOUT),
        ],
        Opcode::DeleteSchedulerElements => {
            vec![One(scheduler::GroupHeader::LAYOUT), Numbers("teid", 4)]
        }
        Opcode::ConfigureSchedulerElements | Opcode::QuerySchedulerElements => {
            vec![Each(scheduler::Node::LAYOUT)]
        }
        Opcode::MoveSchedulerElements => {
            vec![One(scheduler::MoveHeader::LAYOUT), Numbers("teid", 4)]
        }
        Opcode::SuspendSchedulerElements | Opcode::ResumeSchedulerElements => {
            vec![Numbers("teid", 4)]
        }
        Opcode::AddTransmitQueues => vec![
            One(queues::TransmitQueueGroup::LAYOUT),
            Each(queues::TransmitQueue::LAYOUT),
        ],
        Opcode::DisableTransmitQueues => {
            vec![One(queues::DisableGroup::LAYOUT), Numbers("q_id", 2)]
        }
        Opcode::AddRdmaQueueSets => vec![
            One(queues::RdmaQueueSetGroup::LAYOUT),
            Each(queues::RdmaQueueSet::LAYOUT),
        ],
        Opcode::SetPhyConfig => vec![One(link::PhyConfig::LAYOUT)],
        Opcode::FirmwareLogConfig => vec![Each(generic::FirmwareLogModule::LAYOUT)],
        Opcode::SetRssKey => vec![One(rss::RssKey::LAYOUT)],
        Opcode::SetRssTable => vec![Rest("table")],
        // The first section names the parser table.
        Opcode::UpdatePackage | Opcode::UploadSection => vec![
            One(BufferHeader::LAYOUT),
            One(SectionEntry::LAYOUT),
            Rest("sections"),
        ],
        _ => vec![Rest("buffer")],
    }
}

/// Structures within structures.
fn nested(outer: &str, field: &str) -> Option<Layout> {
    match (outer, field) {
        (_, "hdr") => Some(switch::RuleHeader::LAYOUT),
        ("ice_aqc_txsched_elem_data", "data") | (_, "info") => Some(scheduler::Element::LAYOUT),
        _ => None,
    }
}

/// Fields that hold a number of the device, or an address.
fn is_given(name: &str) -> bool {
    name.contains("teid") || matches!(name, "addr" | "elem" | "index")
}

/// Fields that are random, or derived from random ones.
fn is_drawn(name: &str) -> bool {
    matches!(name, "standard_rss_key" | "extended_hash_key")
}

fn place(part: &Part, rest: &mut &[u8], fields: &mut Vec<(String, Value)>) {
    match part {
        One(layout) => {
            let (taken, left) = rest.split_at(layout.size.min(rest.len()));
            bytes_of(layout, taken, &nested, fields);
            *rest = left;
        }
        Each(layout) => {
            while rest.len() >= layout.size {
                place(&One(*layout), rest, fields);
            }
        }
        Numbers(name, bytes) => {
            while let Some((taken, left)) = rest.split_at_checked(*bytes) {
                fields.push(((*name).to_owned(), number(taken)));
                *rest = left;
            }
        }
        Rest(name) => {
            fields.push(((*name).to_owned(), Value::Bytes(rest.to_vec())));
            *rest = &[];
        }
    }
}

/// A transmit queue's context, which is not a structure of bytes.
fn transmit_context(bytes: &[u8], fields: &mut Vec<(String, Value)>) {
    let Ok(bytes) = bytes.try_into() else {
        return;
    };
    let shown = format!("{:?}", TransmitContext::decode(bytes));
    let inside = shown.split_once("{ ").map_or("", |(_, inside)| inside);
    let flat = inside.trim_end_matches(" }").split(", ");
    for (name, value) in flat.filter_map(|field| field.split_once(": ")) {
        let value = match value {
            "true" => 1,
            "false" => 0,
            number => number.parse().unwrap_or(u128::MAX),
        };
        let value = Value::Number(value);
        let is_address = name == "base_in_128_bytes";
        let value = if is_address { some(&value) } else { value };
        fields.push((format!("context.{name}"), value));
    }
}

pub(super) fn describe(command: &AdminCommand) -> Described {
    let opcode = admin_opcode(&command.before);
    let mut fields = Vec::new();
    if let Some(descriptor) = Descriptor::read(&command.before) {
        let flags = descriptor.flags();
        fields.push(("flags".to_owned(), Value::Number(flags.0.into())));
        let length = descriptor.data_length.get();
        fields.push(("datalen".to_owned(), Value::Number(length.into())));
        let cookie = (descriptor.cookie_high.get(), descriptor.cookie_low.get());
        let cookie = u128::from(cookie.0) << 32 | u128::from(cookie.1);
        fields.push(("cookie".to_owned(), Value::Number(cookie)));
        place_parameters(opcode, &descriptor, flags, &mut fields);
    }
    let mut rest = &command.sent[..];
    for part in parts(opcode, &command.sent) {
        if !command.sent.is_empty() {
            place(&part, &mut rest, &mut fields);
        }
    }
    if !rest.is_empty() {
        fields.push(("beyond".to_owned(), Value::Bytes(rest.to_vec())));
    }
    let mut described = Vec::new();
    for (name, value) in fields {
        match &value {
            Value::Bytes(bytes) if name == "txq_ctx" => transmit_context(bytes, &mut described),
            _ if is_given(&name) => described.push((name, some(&value))),
            _ if is_drawn(&name) => described.push((name, Value::Drawn)),
            _ => described.push((name, value)),
        }
    }
    Described {
        kind: format!("admin {opcode:?}"),
        variant: String::new(),
        fields: described,
    }
}

fn place_parameters(
    opcode: Opcode,
    descriptor: &Descriptor,
    flags: DescriptorFlags,
    fields: &mut Vec<(String, Value)>,
) {
    let mut all = Vec::new();
    let layout = parameters(opcode);
    bytes_of(&layout, &descriptor.parameters, &nested, &mut all);
    let is_address = |name: &str| matches!(name, "addr_high" | "addr_low");
    fields.extend(all.into_iter().filter(|(name, _)| !is_address(name)));
    // Commands without a buffer have other fields there, or nothing.
    if flags.buffer() {
        let address = Value::Number(descriptor.buffer_address().into());
        fields.push(("addr".to_owned(), address));
    } else if layout.fields.iter().any(|field| is_address(field.c_name)) {
        let address = Value::Number(descriptor.buffer_address().into());
        fields.push(("addr (no buffer)".to_owned(), address));
    }
}
