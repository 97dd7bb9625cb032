//! Commands as the Linux driver sends them: the descriptor and the buffer.

use ringside_spec::lan::admin::generic::*;
use ringside_spec::lan::admin::link::*;
use ringside_spec::lan::admin::nvm::{FLAT, NvmCommand, NvmFlags};
use ringside_spec::lan::admin::package::{DownloadPackage, GetPackageInfo, LAST_BUFFER};
use ringside_spec::lan::admin::queues::*;
use ringside_spec::lan::admin::scheduler::*;
use ringside_spec::lan::admin::switch::*;
use ringside_spec::lan::admin::vsi::*;
use ringside_spec::lan::admin::{Descriptor, Direction, Opcode, capabilities};
use ringside_spec::lan::transmit::TransmitContext;

use super::{Fields, contexts, vectors};

pub(crate) const COUNT: usize = 49;

/// A descriptor and the content of its buffer.
struct Command {
    descriptor: Descriptor,
    buffer: Vec<u8>,
}

fn direct<P: ringside_spec::lan::Parameters>(opcode: Opcode, parameters: P) -> Command {
    Command {
        descriptor: Descriptor::direct(opcode, &parameters),
        buffer: Vec::new(),
    }
}

/// A command whose buffer the device reads.
fn with_data<P: ringside_spec::lan::Parameters>(
    opcode: Opcode,
    parameters: P,
    input: Fields<'_>,
    buffer: Vec<u8>,
) -> Command {
    let length = u16::try_from(buffer.len()).expect("a short buffer");
    let address = input.number("buffer_address");
    Command {
        descriptor: Descriptor::indirect(
            opcode,
            &parameters,
            address,
            length,
            Direction::DeviceReads,
        ),
        buffer,
    }
}

/// A command whose buffer the device only writes.
fn for_answer<P: ringside_spec::lan::Parameters>(
    opcode: Opcode,
    parameters: P,
    input: Fields<'_>,
    length: u64,
) -> Command {
    let length = u16::try_from(length).expect("a short buffer");
    let address = input.number("buffer_address");
    Command {
        descriptor: Descriptor::indirect(
            opcode,
            &parameters,
            address,
            length,
            Direction::DeviceWrites,
        ),
        buffer: Vec::new(),
    }
}

fn build(name: &str, input: Fields<'_>) -> Command {
    match name {
        _ if name.starts_with("get_phy_caps_") => get_phy_capabilities(input),
        "get_version" => direct(Opcode::GetVersion, NoParameters::zeroed()),
        "driver_version" => driver_version(input),
        "queue_shutdown_unloading" => direct(
            Opcode::QueueShutdown,
            QueueShutdown {
                driver_unloading: input.to("unloading"),
                ..QueueShutdown::zeroed()
            },
        ),
        "request_resource_nvm_read" | "request_resource_pattern" => {
            direct(Opcode::RequestResource, resource_of(input))
        }
        "release_resource" => direct(Opcode::ReleaseResource, resource_of(input)),
        "list_function_capabilities" => capabilities(Opcode::ListFunctionCapabilities, input),
        "list_device_capabilities" => capabilities(Opcode::ListDeviceCapabilities, input),
        "read_mac" => for_answer(
            Opcode::ReadMac,
            ReadMac::zeroed(),
            input,
            input.number("buffer_length"),
        ),
        "write_mac" => direct(
            Opcode::WriteMac,
            WriteMac {
                flags: input.to("flags"),
                mac: input.mac("mac"),
                ..WriteMac::zeroed()
            },
        ),
        "clear_pxe" => direct(
            Opcode::ClearPxe,
            ClearPxe {
                receive_count: CLEAR_PXE_RECEIVE_COUNT,
                ..ClearPxe::zeroed()
            },
        ),
        "nvm_read_last" | "nvm_read_shadow_ram" => nvm_read(input),
        "download_package_last" => download(input),
        "get_package_info" => for_answer(
            Opcode::GetPackageInfo,
            GetPackageInfo::zeroed(),
            input,
            input.number("buffer_length"),
        ),
        _ => switch_or_queue(name, input),
    }
}

fn switch_or_queue(name: &str, input: Fields<'_>) -> Command {
    match name {
        "get_switch_config_continue" => for_answer(
            Opcode::GetSwitchConfig,
            GetSwitchConfig {
                element: input.to::<u16>("start_element").into(),
                ..GetSwitchConfig::zeroed()
            },
            input,
            input.number("buffer_length"),
        ),
        "set_port_params_double_vlan" => set_port(input),
        "allocate_resource" => allocate(Opcode::AllocateResource, input),
        "free_resource" => allocate(Opcode::FreeResource, input),
        "add_vsi_from_pool" | "add_vsi_fixed_number" => vsi(Opcode::AddVsi, input),
        "update_vsi" => vsi(Opcode::UpdateVsi, input),
        "free_vsi" | "free_vsi_keep" => free_vsi(input),
        "add_switch_rule_mac" => mac_rule(input),
        "update_switch_rule_to_queue_region" | "remove_switch_rule" => queue_rule(name, input),
        "vsi_list_set" => vsi_list(input),
        "get_default_topology" => for_answer(
            Opcode::GetDefaultTopology,
            GetTopology {
                port: input.to("port"),
                ..GetTopology::zeroed()
            },
            input,
            input.number("buffer_length"),
        ),
        "query_scheduler_resources" => for_answer(
            Opcode::QuerySchedulerResources,
            QuerySchedulerResources::zeroed(),
            input,
            SchedulerResources::SIZE as u64,
        ),
        "add_scheduler_elements" => add_elements(input),
        "set_phy_config" => set_phy(input),
        "set_mac_config" => set_mac(input),
        "restart_an_enable" | "restart_an_disable" => restart(input),
        "set_event_mask" => direct(
            Opcode::SetEventMask,
            SetEventMask {
                port: input.to("port"),
                mask: input.to::<u16>("mask").into(),
                ..SetEventMask::zeroed()
            },
        ),
        "add_tx_queue" => add_queue(input),
        "disable_tx_queues_1" | "disable_tx_queues_2" | "disable_tx_queues_vf_reset" => {
            disable_queues(input)
        }
        "add_rdma_queue_sets" => add_queue_sets(input),
        other => panic!("{other} has no encoder here"),
    }
}

fn driver_version(input: Fields<'_>) -> Command {
    let parameters = DriverVersion {
        major: input.to("major"),
        minor: input.to("minor"),
        build: input.to("build"),
        subbuild: input.to("subbuild"),
        ..DriverVersion::zeroed()
    };
    let text = input.text("text").as_bytes().to_vec();
    assert!(text.len() <= MAX_DRIVER_TEXT_BYTES);
    with_data(Opcode::DriverVersion, parameters, input, text)
}

fn resource_of(input: Fields<'_>) -> RequestResource {
    RequestResource {
        resource: input.to::<u16>("resource").into(),
        access: input.to::<u16>("access").into(),
        timeout_ms: input.to::<u32>("timeout_ms").into(),
        number: input.to::<u32>("number").into(),
        ..RequestResource::zeroed()
    }
}

fn capabilities(opcode: Opcode, input: Fields<'_>) -> Command {
    let parameters = capabilities::ListCapabilities::zeroed();
    for_answer(opcode, parameters, input, input.number("buffer_length"))
}

fn nvm_read(input: Fields<'_>) -> Command {
    let in_flash = !input.flag("shadow_ram") && input.to::<u16>("module") == FLAT;
    let flags = NvmFlags::ZERO
        .with_last(input.flag("last"))
        .with_flash_only(in_flash);
    let parameters = NvmCommand {
        module: input.to::<u16>("module").into(),
        ..NvmCommand::at(input.to("offset"), input.to("length"), flags)
    };
    assert_eq!(u64::from(parameters.offset()), input.number("offset"));
    for_answer(Opcode::NvmRead, parameters, input, input.number("length"))
}

/// The buffer is one of the package, whose bytes the vector leaves out.
fn download(input: Fields<'_>) -> Command {
    let parameters = DownloadPackage {
        flags: if input.flag("last") { LAST_BUFFER } else { 0 },
        ..DownloadPackage::zeroed()
    };
    let buffer = vec![0; input.to("buffer_length")];
    let command = with_data(Opcode::DownloadPackage, parameters, input, buffer);
    Command {
        buffer: Vec::new(),
        ..command
    }
}

fn set_port(input: Fields<'_>) -> Command {
    let parameters = SetPortParameters {
        flags: PortFlags::ZERO
            .with_double_vlan(input.flag("double_vlan"))
            .0
            .into(),
        local_forward_mode: LocalForward::ZERO
            .with_mode(input.to("local_forward_mode"))
            .with_valid(true)
            .0,
        ..SetPortParameters::zeroed()
    };
    direct(Opcode::SetPortParameters, parameters)
}

fn allocate(opcode: Opcode, input: Fields<'_>) -> Command {
    let elements = input.list("elements");
    let kind = ResourceType::ZERO
        .with_resource(input.to("type"))
        .with_shared(input.flag("shared"))
        .with_scan_bottom(input.flag("scan_bottom"));
    let head = ResourceElements {
        resource_type: kind.0.into(),
        count: u16::try_from(elements.len()).expect("few elements").into(),
    };
    let mut buffer = head.to_bytes().to_vec();
    extend_u16(&mut buffer, &elements);
    let parameters = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    with_data(opcode, parameters, input, buffer)
}

fn extend_u16(buffer: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        buffer.extend(u16::try_from(*value).expect("16 bits").to_le_bytes());
    }
}

fn number_of(input: Fields<'_>) -> VsiNumber {
    let number = VsiNumber::ZERO.with_number(input.to("vsi_number"));
    number.with_valid(!input.flag("allocate_from_pool"))
}

fn vsi(opcode: Opcode, input: Fields<'_>) -> Command {
    let parameters = VsiCommand {
        number: number_of(input).0.into(),
        vsi_flags: VsiType::ZERO.with_kind(input.to("vsi_type")).0.into(),
        ..VsiCommand::zeroed()
    };
    let buffer = properties(input).to_bytes().to_vec();
    with_data(opcode, parameters, input, buffer)
}

fn properties(input: Fields<'_>) -> VsiProperties {
    let mut properties = VsiProperties {
        valid_sections: input.to::<u16>("valid_sections").into(),
        switch_id: input.to("switch_id"),
        switch_flags: input.to("switch_flags"),
        switch_flags_2: input.to("switch_flags2"),
        veb_statistics: input.to("veb_statistics"),
        security_flags: input.to("security_flags"),
        inner_port_vlan: input.to::<u16>("inner_pvid").into(),
        inner_vlan_flags: input.to("inner_vlan_flags"),
        ingress_table: input.to::<u32>("ingress_table").into(),
        egress_table: input.to::<u32>("egress_table").into(),
        outer_port_vlan: input.to::<u16>("outer_pvid").into(),
        outer_vlan_flags: input.to("outer_vlan_flags"),
        mapping_flags: input.to::<u16>("mapping_flags").into(),
        queue_option_rss: input.to("rss_options"),
        queue_option_class: input.to("tc_option"),
        queue_option_flags: input.to("queue_flags"),
        outer_priority_table: input.to::<u32>("outer_up_table").into(),
        section_10_reserved: input.to::<u16>("section_10").into(),
        flow_director_options: input.to::<u16>("fd_options").into(),
        flow_director_dedicated: input.to::<u16>("fd_dedicated").into(),
        flow_director_shared: input.to::<u16>("fd_shared").into(),
        flow_director_default: input.to::<u16>("fd_default_queue").into(),
        flow_director_report: input.to::<u16>("fd_report").into(),
        process_address_space: input.to::<u32>("pasid").into(),
        ..VsiProperties::zeroed()
    };
    assert!(input.flag("queue_mapping_from_256_step_3"));
    for (index, queue) in (0u16..).zip(properties.queue_mapping.iter_mut()) {
        *queue = (256 + 3 * index).into();
    }
    assert!(input.flag("tc_mapping_i_is_i_times_64_or_i_plus_1_shl_11"));
    for (index, class) in (0u16..).zip(properties.class_mapping.iter_mut()) {
        *class = ClassMapping::ZERO
            .with_offset(index * 64)
            .with_count_log2(index + 1)
            .0
            .into();
    }
    properties
}

fn free_vsi(input: Fields<'_>) -> Command {
    let keep = input.flag("keep_allocation");
    let parameters = VsiCommand {
        number: number_of(input).0.into(),
        flags: if keep { KEEP_ALLOCATED } else { 0 }.into(),
        ..VsiCommand::zeroed()
    };
    direct(Opcode::FreeVsi, parameters)
}

fn rules(opcode: Opcode, input: Fields<'_>, buffer: Vec<u8>) -> Command {
    let parameters = SwitchRules {
        rule_count: input.to::<u16>("rules").into(),
        ..SwitchRules::zeroed()
    };
    with_data(opcode, parameters, input, buffer)
}

fn rule_header(input: Fields<'_>) -> RuleHeader {
    RuleHeader {
        kind: input.to::<u16>("type").into(),
        status: 0.into(),
    }
}

fn mac_rule(input: Fields<'_>) -> Command {
    let action = SingleAction::ZERO
        .with_kind(action::FORWARD)
        .with_vsi(input.to("forward_to_vsi"))
        .with_lan(input.flag("lan_enable"))
        .with_loopback(input.flag("loopback_enable"))
        .with_valid(input.flag("valid"));
    assert_eq!(
        input.number("type"),
        u64::from(RuleType::LookupTransmit.code())
    );
    assert_eq!(input.number("recipe"), u64::from(recipe::MAC));
    let rule = LookupRule {
        header: rule_header(input),
        recipe: input.to::<u16>("recipe").into(),
        source: input.to::<u16>("source_vsi").into(),
        action: action.0.into(),
        index: 0.into(),
        header_length: (LOOKUP_HEADER_BYTES as u16).into(),
    };
    let mut buffer = rule.to_bytes().to_vec();
    buffer.extend(input.hex::<LOOKUP_HEADER_BYTES>("header"));
    rules(Opcode::AddSwitchRules, input, buffer)
}

/// The rule to a region of queues. Linux removes it with the first 16 bytes that it added it
/// with, so the vector of the removal has the same fields, which its input leaves out.
fn queue_rule(name: &str, input: Fields<'_>) -> Command {
    let action = QueueAction::ZERO
        .with_kind(action::QUEUE)
        .with_queue(677)
        .with_region_log2(3);
    let rule = LookupRule {
        header: rule_header(input),
        recipe: recipe::DEFAULT_VSI.into(),
        source: 5.into(),
        action: action.0.into(),
        index: input.to::<u16>("index").into(),
        header_length: (LOOKUP_HEADER_BYTES as u16).into(),
    };
    let mut buffer = rule.to_bytes().to_vec();
    if input.flag("without_header") {
        return rules(Opcode::RemoveSwitchRules, input, buffer);
    }
    assert_eq!(name, "update_switch_rule_to_queue_region");
    assert_eq!(input.number("queue"), 677);
    assert_eq!(input.number("region_log2"), 3);
    assert_eq!(input.number("source_port"), 5);
    assert_eq!(input.number("recipe"), u64::from(recipe::DEFAULT_VSI));
    // The header that the harness gave to every rule.
    buffer.extend([0xFF; 6]);
    buffer.extend([2, 0, 0, 0, 0, 0, 0x81, 0, 0x0A, 0xBC]);
    rules(Opcode::UpdateSwitchRules, input, buffer)
}

fn vsi_list(input: Fields<'_>) -> Command {
    let members = input.list("vsis");
    let rule = VsiListRule {
        header: rule_header(input),
        list: input.to::<u16>("list").into(),
        count: u16::try_from(members.len()).expect("few VSIs").into(),
    };
    let mut buffer = rule.to_bytes().to_vec();
    extend_u16(&mut buffer, &members);
    rules(Opcode::AddSwitchRules, input, buffer)
}

fn element(input: Fields<'_>) -> Element {
    let bandwidth = |profile: &str, share: &str| Bandwidth {
        profile: input.to::<u16>(profile).into(),
        share: input.to::<u16>(share).into(),
    };
    Element {
        kind: input.to("type"),
        valid_sections: input.to("valid"),
        generic: input.to("generic"),
        flags: input.to("flags"),
        committed: bandwidth("cir_profile", "cir_share"),
        excess: bandwidth("eir_profile", "eir_share"),
        shared_limit: input.to::<u16>("srl").into(),
        reserved: 0.into(),
    }
}

fn add_elements(input: Fields<'_>) -> Command {
    let elements = input.objects("elements");
    let head = GroupHeader {
        parent: input.to::<u32>("parent").into(),
        count: u16::try_from(elements.len()).expect("few nodes").into(),
        reserved: 0.into(),
    };
    let mut buffer = head.to_bytes().to_vec();
    for (index, fields) in elements.into_iter().enumerate() {
        let node = Node {
            parent: fields.to::<u32>("parent").into(),
            node: fields.to::<u32>("node").into(),
            element: element(fields),
        };
        if index == 0 {
            assert_eq!(node, Node::generic_under(input.to("parent")));
        }
        buffer.extend(node.to_bytes());
    }
    let parameters = ElementCommand {
        requested: input.to::<u16>("groups").into(),
        ..ElementCommand::zeroed()
    };
    with_data(Opcode::AddSchedulerElements, parameters, input, buffer)
}

fn get_phy_capabilities(input: Fields<'_>) -> Command {
    let report = PhyReport::ZERO
        .with_qualified_modules(input.flag("qualified_modules"))
        .with_mode(input.to::<u16>("report_mode") >> PhyReport::MODE_SHIFT);
    let parameters = GetPhyCapabilities {
        report: report.0.into(),
        ..GetPhyCapabilities::zeroed()
    };
    let length = PhyCapabilities::SIZE as u64;
    for_answer(Opcode::GetPhyCapabilities, parameters, input, length)
}

fn set_phy(input: Fields<'_>) -> Command {
    let config = PhyConfig {
        phy_type_low: input.number("phy_type_low").into(),
        phy_type_high: input.number("phy_type_high").into(),
        enable: input.to("caps"),
        low_power_control: input.to("low_power"),
        energy_efficient: input.to::<u16>("eee").into(),
        energy_efficient_value: input.to::<u16>("eeer").into(),
        error_correction: input.to("fec"),
        compliance_enforcement: input.to("enforcement"),
    };
    let parameters = SetPhyConfig {
        port: input.to("port"),
        ..SetPhyConfig::zeroed()
    };
    with_data(
        Opcode::SetPhyConfig,
        parameters,
        input,
        config.to_bytes().to_vec(),
    )
}

fn set_mac(input: Fields<'_>) -> Command {
    assert_eq!(input.number("max_frame"), u64::from(MAX_FRAME_BYTES));
    let parameters = SetMacConfig {
        frame_bytes_max: MAX_FRAME_BYTES.into(),
        timer_value: input.to::<u16>("timer_value").into(),
        refresh_threshold: input.to::<u16>("refresh_threshold").into(),
        ..SetMacConfig::zeroed()
    };
    direct(Opcode::SetMacConfig, parameters)
}

fn restart(input: Fields<'_>) -> Command {
    let parameters = RestartAutonegotiation {
        port: input.to("port"),
        flags: RestartFlags::ZERO
            .with_restart(true)
            .with_enable(input.flag("enable"))
            .0,
        ..RestartAutonegotiation::zeroed()
    };
    direct(Opcode::RestartAutonegotiation, parameters)
}

/// The start of the ring of the vector `add_tx_queue` according to its input.
const RECORDED_BASE: u64 = 0x24_685C_3F20;
/// Its start according to its bytes: at 0x1234_5678_9000, as in `tx_data.eop_rs_1500` and, as
/// a base, in `tx_queue_context.example_pf_queue`. The sweep over all bits of the base in
/// `tx_queue_context` leaves no doubt about the encoding, so the input was recorded wrongly.
const ENCODED_BASE: u64 = 0x1234_5678_9000 / 128;

fn add_queue(input: Fields<'_>) -> Command {
    let recorded = contexts::transmit(Fields(&input.0["context"]));
    assert_eq!(recorded.base_in_128_bytes, RECORDED_BASE);
    let context = TransmitContext {
        base_in_128_bytes: ENCODED_BASE,
        ..recorded
    };
    let group = TransmitQueueGroup {
        parent: input.to::<u32>("parent").into(),
        count: input.to("queues"),
        ..TransmitQueueGroup::zeroed()
    };
    let queue = TransmitQueue {
        queue: input.to::<u16>("queue").into(),
        context: context.encode(),
        element: Element::unlimited(),
        ..TransmitQueue::zeroed()
    };
    assert_eq!(queue.element, element(Fields(&input.0["element"])));
    let mut buffer = group.to_bytes().to_vec();
    buffer.extend(queue.to_bytes());
    let parameters = AddTransmitQueues {
        group_count: input.to("groups"),
        ..AddTransmitQueues::zeroed()
    };
    with_data(Opcode::AddTransmitQueues, parameters, input, buffer)
}

fn disable_queues(input: Fields<'_>) -> Command {
    let parameters = DisableTransmitQueues {
        flags: DisableFlags::ZERO
            .with_reset(input.to("reset"))
            .with_flush(true)
            .0,
        group_count: input.to("groups"),
        scope: DisableScope::ZERO
            .with_virtual_function(input.to("vf"))
            .with_timeout_100us(DISABLE_TIMEOUT_100US)
            .0
            .into(),
        ..DisableTransmitQueues::zeroed()
    };
    let queues = input.list("queues");
    if queues.is_empty() {
        return direct(Opcode::DisableTransmitQueues, parameters);
    }
    let group = DisableGroup {
        parent: input.to::<u32>("parent").into(),
        count: u8::try_from(queues.len()).expect("few queues"),
        reserved: 0,
    };
    let mut buffer = group.to_bytes().to_vec();
    extend_u16(&mut buffer, &queues);
    buffer.resize(DisableGroup::size_with(queues.len()), 0);
    with_data(Opcode::DisableTransmitQueues, parameters, input, buffer)
}

fn add_queue_sets(input: Fields<'_>) -> Command {
    let sets = input.list("queue_sets");
    let group = RdmaQueueSetGroup {
        parent: input.to::<u32>("parent").into(),
        count: u16::try_from(sets.len()).expect("few sets").into(),
        ..RdmaQueueSetGroup::zeroed()
    };
    let mut buffer = group.to_bytes().to_vec();
    for set in sets {
        let set = RdmaQueueSet {
            queue_set: u16::try_from(set).expect("16 bits").into(),
            element: element(input),
            ..RdmaQueueSet::zeroed()
        };
        buffer.extend(set.to_bytes());
    }
    let parameters = AddRdmaQueueSets {
        group_count: input.to("groups"),
        ..AddRdmaQueueSets::zeroed()
    };
    with_data(Opcode::AddRdmaQueueSets, parameters, input, buffer)
}

#[test]
fn commands_are_as_linux_sends_them() {
    let vectors = vectors("aq_command");
    for vector in &vectors {
        let name = vector.name().strip_prefix("command.").expect("a command");
        let command = build(name, vector.input());
        let bytes = command.descriptor.to_bytes().to_vec();
        assert_eq!(bytes, vector.hex("bytes"), "{name}");
        assert_eq!(command.buffer, vector.hex("buffer"), "{name}: buffer");
        let read = Descriptor::read(&vector.hex("bytes"));
        assert_eq!(read, Some(command.descriptor), "{name}");
        let address = vector.input().number("buffer_address");
        if address != 0 {
            assert_eq!(command.descriptor.buffer_address(), address, "{name}");
        }
    }
    assert_eq!(vectors.len(), COUNT);
}
