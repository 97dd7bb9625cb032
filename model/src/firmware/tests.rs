//! The firmware, driven through its rings.

mod board;
pub(crate) mod client;
mod foreign;
mod goodbyes;
mod link;
mod packages;
mod refusals;
pub(crate) mod scheduling;
mod spreading;
mod strictness;
pub(crate) mod switching;

use crate::faults::Fault;
use client::{BASE, Client, ENTRIES, none};
use ringside_bus::{Iova, Refusal};
use ringside_spec::lan::admin::capabilities::{Capability, CapabilityId, ListCapabilities};
use ringside_spec::lan::admin::generic::{
    ClearPxe, DriverVersion, FIRMWARE_LOG_MODULES, FirmwareLog, FirmwareLogModule, MacAddress,
    MacReadFlags, ReadMac, RequestResource, Version, lock_status, resource,
};
use ringside_spec::lan::admin::link::SetMacConfig;
use ringside_spec::lan::admin::nvm::{NvmCommand, NvmFlags, shadow_ram};
use ringside_spec::lan::admin::{Descriptor, Opcode, ReturnCode};
use ringside_spec::lan::registers::control_queues::{ADMIN_SEND, MAILBOX_SEND, RingLength};
use ringside_spec::lan::registers::reset;
use std::time::Duration;
use zerocopy::IntoBytes;

fn lock(resource: u16) -> RequestResource {
    RequestResource {
        resource: resource.into(),
        access: 1.into(),
        timeout_ms: 3000.into(),
        ..RequestResource::zeroed()
    }
}

#[test]
fn bring_up_queries_are_answered_without_a_breach() {
    let mut client = Client::ready();
    let version: Version = client
        .direct(Opcode::GetVersion, &none())
        .ok()
        .descriptor
        .parameters();
    assert_eq!((version.interface_major, version.interface_minor), (1, 7));
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    let pxe = ClearPxe {
        receive_count: 2,
        ..ClearPxe::zeroed()
    };
    client.direct(Opcode::ClearPxe, &pxe).ok();
    let again = client.direct(Opcode::ClearPxe, &pxe);
    assert_eq!(again.descriptor.return_code(), ReturnCode::Exists);
    client
        .give(Opcode::DriverVersion, &DriverVersion::zeroed(), b"1.0")
        .ok();
    let mac = client.ask(Opcode::ReadMac, &ReadMac::zeroed(), 64).ok();
    let flags: ReadMac = mac.descriptor.parameters();
    assert!(MacReadFlags(flags.flags.get()).lan_valid());
    assert_eq!(flags.address_count, 1);
    assert_eq!(mac.item::<MacAddress>(0).mac, [0x02, 0xE8, 0x10, 0, 0, 1]);
    let frame = SetMacConfig {
        frame_bytes_max: 9728.into(),
        ..SetMacConfig::zeroed()
    };
    client.direct(Opcode::SetMacConfig, &frame).ok();
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn capabilities_hold_what_linux_divides_by() {
    let mut client = Client::ready();
    let opcodes = [
        Opcode::ListDeviceCapabilities,
        Opcode::ListFunctionCapabilities,
    ];
    for opcode in opcodes {
        let answer = client.ask(opcode, &ListCapabilities::zeroed(), 4096).ok();
        let list: ListCapabilities = answer.descriptor.parameters();
        let all: Vec<Capability> = (0..list.count.get() as usize)
            .map(|n| answer.item(n * Capability::SIZE))
            .collect();
        let number = |id| {
            all.iter()
                .find(|one| one.id() == id)
                .map(|one| one.number.get())
        };
        assert_eq!(number(CapabilityId::Vsi), Some(768));
        assert_eq!(number(CapabilityId::Rdma), Some(1));
        assert_eq!(number(CapabilityId::Rss), Some(2048));
        let functions = number(CapabilityId::ValidFunctions);
        assert_eq!(
            functions,
            (opcode == Opcode::ListDeviceCapabilities).then_some(1)
        );
        assert_eq!(
            number(CapabilityId::PendingNvmVersion),
            None,
            "its presence means an update"
        );
    }
}

#[test]
fn ring_wraps_and_every_command_is_answered_once() {
    let mut client = Client::ready();
    for _ in 0..3 * ENTRIES {
        client.direct(Opcode::GetVersion, &none()).ok();
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn commands_out_of_order_are_written_down() {
    let mut client = Client::with_rings();
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    assert_eq!(
        client.breach_names(),
        ["admin command before the version was asked for"]
    );
    client.direct(Opcode::GetVersion, &none()).ok();
    client.write(ADMIN_SEND.length, 0);
    assert!(
        client
            .breach_names()
            .contains(&"admin queue switched off without a queue shutdown")
    );
}

#[test]
fn shutdown_leaves_the_queues_as_found() {
    let before = Client::claimed();
    let found = before.world.with(|world| world.snapshot(0));
    let mut client = Client::ready();
    assert_ne!(client.world.with(|world| world.snapshot(0)), found);
    client.stop_rings();
    assert_eq!(client.world.with(|world| world.snapshot(0)), found);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn unknown_and_unimplemented_commands_are_refused_by_code() {
    let mut client = Client::ready();
    let clock = client.direct(Opcode::GetClockInfo, &none());
    assert_eq!(clock.descriptor.return_code(), ReturnCode::NotImplemented);
    assert_eq!(client.breach_names(), [""; 0]);
    let unknown = client.direct(Opcode::Unknown(0x7777), &none());
    assert_eq!(unknown.descriptor.return_code(), ReturnCode::NotImplemented);
    assert_eq!(client.breach_names(), ["admin command that does not exist"]);
}

#[test]
fn wrong_descriptor_flags_are_written_down_one_by_one() {
    let mut client = Client::ready();
    let plain = Descriptor::direct(Opcode::GetVersion, &none());
    let cases = [
        (
            0x0001,
            0,
            "admin descriptor flags that are not the driver's",
        ),
        (
            0x0010,
            0,
            "admin descriptor flags that are not the driver's",
        ),
        (0x0200, 0, "admin descriptor with a wrong large-buffer flag"),
        (
            0x1000,
            0,
            "admin descriptor whose buffer flag contradicts its length",
        ),
        (
            0x0000,
            16,
            "admin descriptor whose buffer flag contradicts its length",
        ),
        (0x0400, 0, "admin descriptor with data but no buffer"),
        (
            0x1200,
            5000,
            "admin descriptor with a buffer of more than 4096 bytes",
        ),
    ];
    for (flags, length, kind) in cases {
        let wrong = Descriptor {
            flags: flags.into(),
            data_length: length.into(),
            ..plain
        };
        let wrong = wrong.with_buffer_address(0x10_4000);
        client.send(&wrong, &[]).unwrap();
        assert!(client.breach_names().contains(&kind), "{kind}");
    }
}

#[test]
fn data_that_the_firmware_was_not_told_to_read_are_not_guessed() {
    let mut client = Client::ready();
    let wrong = client.ask(Opcode::DriverVersion, &DriverVersion::zeroed(), 8);
    assert_eq!(wrong.descriptor.return_code(), ReturnCode::Invalid);
    assert_eq!(
        client.breach_names(),
        ["admin command without the data that it needs"]
    );
}

#[test]
fn unreachable_ring_stops_with_the_critical_bit_and_the_model_lives_on() {
    let client = Client::ready();
    client
        .function
        .unmap_dma(Iova(0x10_0000), 64 << 10)
        .unwrap();
    client.write(ADMIN_SEND.tail, 2);
    client.pass(Duration::from_millis(1));
    assert!(RingLength(client.read(ADMIN_SEND.length)).critical_error());
    assert_eq!(
        client.breach_names(),
        ["control queue descriptor cannot be read"]
    );
    client.write(MAILBOX_SEND.tail, 5);
}

#[test]
fn a_ring_that_failed_stays_so_though_its_error_bit_is_cleared() {
    let client = Client::ready();
    let refused = Fault::DmaRefused(Refusal::EVERYTHING);
    client.inject(refused);
    let head = client.read(ADMIN_SEND.head);
    client.write(ADMIN_SEND.tail, head + 1);
    client.pass(Duration::from_millis(1));
    let length = RingLength(client.read(ADMIN_SEND.length));
    assert!(length.critical_error());
    client.end(refused);
    // As a driver does that has waited without an answer.
    client.write(ADMIN_SEND.length, length.with_critical_error(false).0);
    client.pass(Duration::from_millis(1));
    assert_eq!(client.read(ADMIN_SEND.head), head);
    // It takes no shutdown, so that none is missed.
    client.write(ADMIN_SEND.length, 0);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn failing_and_silent_commands_are_faults_that_others_survive() {
    let mut client = Client::ready();
    client.inject(Fault::AdminCommandFails {
        opcode: 0x0107,
        code: 1,
    });
    let answer = client.ask(Opcode::ReadMac, &ReadMac::zeroed(), 64);
    assert_eq!(answer.descriptor.return_code(), ReturnCode::NotPermitted);
    assert!(answer.descriptor.flags().error());
    client.direct(Opcode::GetVersion, &none()).ok();
    client.inject(Fault::AdminCommandSilent { opcode: 0x0001 });
    let silent = Descriptor::direct(Opcode::GetVersion, &none());
    assert!(client.send(&silent, &[]).is_none());
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn locks_are_granted_once_and_expire() {
    let mut client = Client::ready();
    client
        .direct(Opcode::RequestResource, &lock(resource::NVM))
        .ok();
    client
        .direct(Opcode::ReleaseResource, &lock(resource::NVM))
        .ok();
    client
        .direct(Opcode::RequestResource, &lock(resource::NVM))
        .ok();
    client.pass(Duration::from_millis(3001));
    client
        .direct(Opcode::RequestResource, &lock(resource::NVM))
        .ok();
    client.pass(Duration::from_millis(1000));
    let busy = client.direct(Opcode::RequestResource, &lock(resource::NVM));
    assert_eq!(busy.descriptor.return_code(), ReturnCode::Busy);
    let left: RequestResource = busy.descriptor.parameters();
    assert!((1990..=2000).contains(&left.timeout_ms.get()), "{left:?}");
    // As a second reader does, which waits for the first one.
    client.pass(Duration::from_millis(left.timeout_ms.get().into()));
    client
        .direct(Opcode::RequestResource, &lock(resource::NVM))
        .ok();
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn the_lock_of_the_package_is_taken_once() {
    let mut client = Client::ready();
    client.inject(Fault::NoPackageLoaded);
    let wanted = lock(resource::GLOBAL_CONFIG);
    client.direct(Opcode::RequestResource, &wanted).ok();
    let twice = client.direct(Opcode::RequestResource, &wanted);
    assert_eq!(twice.descriptor.return_code(), ReturnCode::Busy);
    // Drivers look at the status only: zero would be a lock.
    let status = twice.descriptor.parameters::<RequestResource>().status;
    assert_eq!(status.get(), lock_status::IN_PROGRESS);
    assert_eq!(client.breach_names(), ["resource requested by its holder"]);
}

fn read_flash(client: &mut Client, offset: u32, length: u16, flash: bool) -> client::Answered {
    let flags = NvmFlags::ZERO.with_last(true).with_flash_only(flash);
    client.ask(
        Opcode::NvmRead,
        &NvmCommand::at(offset, length, flags),
        length,
    )
}

#[test]
fn flash_size_is_found_by_the_code_of_reads_beyond_it() {
    let mut client = Client::ready();
    client
        .direct(Opcode::RequestResource, &lock(resource::NVM))
        .ok();
    let (mut inside, mut outside) = (0u32, 1u32 << 24);
    while outside - inside > 1 {
        let middle = inside + (outside - inside) / 2;
        match read_flash(&mut client, middle, 1, true)
            .descriptor
            .return_code()
        {
            ReturnCode::Ok => inside = middle,
            ReturnCode::Invalid => outside = middle,
            other => panic!("{other:?} at {middle:#x}"),
        }
    }
    assert_eq!(outside, 1 << 20);
    let word = |client: &mut Client, at: u16| {
        u16::from_le_bytes(read_flash(client, u32::from(at) * 2, 2, false).ok().item(0))
    };
    assert_eq!(word(&mut client, shadow_ram::CONTROL), 0x0040);
    for bank in [
        shadow_ram::FIRMWARE_BANK,
        shadow_ram::ROM_BANK,
        shadow_ram::NETLIST_BANK,
    ] {
        let (pointer, size) = (word(&mut client, bank), word(&mut client, bank + 1));
        assert_eq!(pointer >> 15, 1, "in units of 4 KiB");
        let end = (u32::from(pointer & 0x7FFF) + 2 * u32::from(size)) * 4096;
        assert!(
            size > 0 && end <= 1 << 20,
            "both banks lie inside the flash"
        );
    }
    // the version that Linux reads from the copy behind the bank's header
    let bank = u32::from(word(&mut client, shadow_ram::FIRMWARE_BANK) & 0x7FFF) * 4096;
    let dwords = u16::from_le_bytes(read_flash(&mut client, bank + 4, 2, true).ok().item(0));
    let copy = (u32::from(dwords) * 2 + 8).next_multiple_of(32);
    let version = read_flash(
        &mut client,
        bank + (copy + u32::from(shadow_ram::VERSION)) * 2,
        2,
        true,
    );
    assert_eq!(version.ok().bytes, 0x4020u16.to_le_bytes());
    // and those of the netlist, behind its header
    let bank = u32::from(word(&mut client, shadow_ram::NETLIST_BANK) & 0x7FFF) * 4096;
    let netlist = read_flash(&mut client, bank + (6 + 2) * 2, 16, true).ok();
    assert_eq!(
        netlist.bytes,
        [4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0x40, 0x14, 0, 0, 0]
    );
    assert_eq!(client.breach_names(), [""; 0]);
    let across = read_flash(&mut client, 4095, 2, true);
    assert_eq!(across.descriptor.return_code(), ReturnCode::Invalid);
    client
        .direct(Opcode::ReleaseResource, &lock(resource::NVM))
        .ok();
    read_flash(&mut client, 0, 2, false).ok();
    assert_eq!(
        client.breach_names(),
        [
            "flash read across a sector",
            "flash read without owning the flash"
        ]
    );
}

#[test]
fn firmware_log_levels_are_kept_as_they_were_set() {
    let mut client = Client::ready();
    let level = |client: &mut Client| {
        let answer = client.ask(Opcode::FirmwareLogQuery, &none(), 4096).ok();
        let parameters: FirmwareLog = answer.descriptor.parameters();
        assert_eq!(parameters.module_count.get(), FIRMWARE_LOG_MODULES);
        let module: FirmwareLogModule = answer.item(5 * FirmwareLogModule::SIZE);
        (module.module.get(), module.level)
    };
    assert_eq!(level(&mut client), (5, 1));
    let one = FirmwareLog {
        module_count: 1.into(),
        ..FirmwareLog::zeroed()
    };
    let entry = |module: u16| FirmwareLogModule {
        module: module.into(),
        level: 4,
        reserved: 0,
    };
    client
        .give(Opcode::FirmwareLogConfig, &one, entry(5).as_bytes())
        .ok();
    assert_eq!(level(&mut client), (5, 4));
    let wrong = client.give(Opcode::FirmwareLogConfig, &one, entry(32).as_bytes());
    assert_eq!(wrong.descriptor.return_code(), ReturnCode::Invalid);
}

#[test]
fn a_delayed_answer_comes_when_its_time_has_come_and_a_garbled_one_names_another_command() {
    let mut client = Client::ready();
    let opcode = Opcode::GetVersion.code();
    let garbled = Fault::AdminCommandGarbled { opcode };
    client.inject(garbled);
    let answer = client.direct(Opcode::GetVersion, &none());
    assert_ne!(answer.descriptor.opcode(), Opcode::GetVersion);
    client.world.with(|world| world.clear_faults(0));
    let by = Duration::from_secs(10);
    client.inject(Fault::AdminCommandDelayed {
        opcode: crate::faults::ANY_ADMIN_COMMAND,
        by,
    });
    let head = client.read(ADMIN_SEND.head);
    let asked = Descriptor::direct(Opcode::GetVersion, &none());
    assert!(client.send(&asked, &[]).is_none());
    client.pass(by);
    assert_ne!(client.read(ADMIN_SEND.head), head);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn a_stalled_firmware_answers_nothing_until_the_function_is_reset() {
    let mut client = Client::ready();
    client.inject(Fault::FirmwareStall);
    let asked = Descriptor::direct(Opcode::GetVersion, &none());
    assert!(client.send(&asked, &[]).is_none());
    // A driver that gives up has nothing to send a shutdown with. Linux zeroes the indices first.
    for register in [ADMIN_SEND.head, ADMIN_SEND.tail, ADMIN_SEND.length] {
        client.write(register, 0);
    }
    assert_eq!(client.breach_names(), [""; 0]);
    let control = reset::FunctionControl::ZERO.with_software_reset(true);
    client.write(reset::FUNCTION_CONTROL, control.0);
    client.pass(Duration::from_millis(1));
    let faults = client
        .world
        .with(|world| world.function(0).unwrap().faults().to_vec());
    assert_eq!(faults, []);
}

#[test]
fn a_queue_may_be_switched_off_while_the_firmware_cannot_reach_it() {
    let mut client = Client::ready();
    let off = 2u16.to_le_bytes();
    client.function.config_write(4, &off).unwrap();
    let shutdown = Descriptor::direct(Opcode::QueueShutdown, &none());
    assert!(client.send(&shutdown, &[]).is_none());
    for register in [ADMIN_SEND.head, ADMIN_SEND.tail, ADMIN_SEND.length] {
        client.write(register, 0);
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

/// ice sends this twice a load once the interface is 1.7.6 or newer.
#[test]
fn a_driver_may_ask_for_health_events() {
    let mut client = Client::ready();
    client.direct(Opcode::from_code(0xFF20), &none()).ok();
    let codes = client.ask(Opcode::GetHealthCodes, &none(), 64);
    assert_eq!(codes.descriptor.return_code(), ReturnCode::NotImplemented);
    assert_eq!(client.breach_names(), [""; 0]);
}

/// Breaches of rings whose head or tail lies beyond their length.
const BEYOND: &str = "control queue enabled with head or tail beyond the ring";

/// Checks that the send ring has stopped with a critical error, and the world does nothing more.
fn assert_stopped_by_its_indices(client: &Client) {
    assert!(RingLength(client.read(ADMIN_SEND.length)).critical_error());
    let found = client.breaches();
    let counts: Vec<_> = found.iter().map(|one| (one.kind, one.count)).collect();
    assert_eq!(counts, [(BEYOND, 1)]);
    let head = client.read(ADMIN_SEND.head);
    let now = client.world.clock().now();
    assert!(!client.world.with(|world| world.step(now)));
    assert_eq!(client.read(ADMIN_SEND.head), head);
}

#[test]
fn a_ring_that_is_enabled_with_head_or_tail_beyond_it_stops() {
    let length = RingLength::ZERO.with_entries(4).with_enable(true).0;
    for (head, tail) in [(0, 4), (4, 0), (9, 2)] {
        let client = Client::claimed();
        client.write(ADMIN_SEND.base_low, BASE as u32);
        client.write(ADMIN_SEND.head, head);
        client.write(ADMIN_SEND.tail, tail);
        client.write(ADMIN_SEND.length, length);
        assert_stopped_by_its_indices(&client);
    }
}

#[test]
fn a_ring_whose_length_is_reduced_below_its_tail_stops() {
    let client = Client::claimed();
    client.write(ADMIN_SEND.base_low, BASE as u32);
    let length = RingLength::ZERO.with_entries(8).with_enable(true);
    client.write(ADMIN_SEND.length, length.0);
    // The firmware reaches no command meanwhile.
    let memory_only = 2u16.to_le_bytes();
    client.function.config_write(4, &memory_only).unwrap();
    client.write(ADMIN_SEND.tail, 6);
    client.write(ADMIN_SEND.length, length.with_entries(6).0);
    let bus_master = 6u16.to_le_bytes();
    client.function.config_write(4, &bus_master).unwrap();
    assert_stopped_by_its_indices(&client);
}

#[test]
fn a_ring_that_stopped_by_its_indices_starts_again_with_others() {
    let mut client = Client::claimed();
    client.write(ADMIN_SEND.base_low, BASE as u32);
    client.write(ADMIN_SEND.tail, ENTRIES);
    let length = RingLength::ZERO.with_entries(ENTRIES).with_enable(true).0;
    client.write(ADMIN_SEND.length, length);
    assert_stopped_by_its_indices(&client);
    client.write(ADMIN_SEND.length, 0);
    client.restart_rings();
    client.direct(Opcode::GetVersion, &none()).ok();
    assert_eq!(client.breach_names(), [BEYOND]);
}
