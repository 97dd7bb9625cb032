//! The shell: configuration space, registers, resets, interrupts.

mod clock;
mod frames;
mod lan;
mod steering;

use crate::faults::Fault;
use crate::firmware::tests::client::{Client, none};
use crate::reset_kind::ResetKind;
use crate::{Stepped, WorldSettings};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ringside_bus::config_space::{ConfigSpace, SNAPSHOT_BYTES};
use ringside_bus::function::DmaAccess;
use ringside_bus::{Function, Iova, Memory, PageSize};
use ringside_spec::lan::registers::interrupts::{
    CauseControl, OTHER_CAUSES, OTHER_CAUSES_CONTROL, OTHER_CAUSES_ENABLE, OtherCauses,
    VECTOR_CONTROL, VectorControl,
};
use ringside_spec::lan::registers::queues::{
    RECEIVE_QUEUE_CONTROL, RECEIVE_QUEUE_PROFILE, ReceiveQueueControl,
};
use ringside_spec::lan::registers::reset::{
    self, FLASH_LOAD_DONE_RDMA, FunctionControl, ResetStatus, ResetTrigger,
};
use ringside_spec::rdma::registers::CPU_STATUS;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

fn one() -> (Stepped, Arc<dyn Function>) {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let function = world.function(0).unwrap();
    (world, function)
}

fn breaches(world: &Stepped) -> Vec<&'static str> {
    world.with(|world| world.breaches(0).iter().map(|breach| breach.kind).collect())
}

fn dword(function: &Arc<dyn Function>, at: u16) -> u32 {
    let mut bytes = [0; 4];
    function.config_read(at, &mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

#[test]
fn configuration_space_is_that_of_an_e810() {
    let (_world, function) = one();
    let config = ConfigSpace::read(function.as_ref()).unwrap();
    assert_eq!((config.vendor, config.device), (0x8086, 0x1592));
    assert!(config.function_level_reset);
    let msix = config
        .msix
        .map(|(at, control)| (at, control.table_size_minus_one()));
    assert_eq!(msix, Some((0x70, 1023)));
    assert_eq!(
        config.link.map(|link| (link.speed_code, link.lanes)),
        Some((4, 16))
    );
    assert_eq!(config.serial_number, Some(0x00E8_1000_0000_0000));
}

#[test]
fn base_address_registers_answer_the_question_for_their_size() {
    let (_world, function) = one();
    for (at, size) in [(0x10, 32u64 << 20), (0x1C, 64 << 10)] {
        function.config_write(at, &[0xFF; 8]).unwrap();
        let (low, high) = (dword(&function, at), dword(&function, at + 4));
        assert_eq!(low & 0xF, 0b1100, "64-bit, prefetchable");
        let mask = u64::from(high) << 32 | u64::from(low & !0xF);
        assert_eq!(!mask + 1, size);
    }
    assert_eq!(function.bar(0).unwrap().size, 32 << 20);
    assert_eq!(function.bar(1).unwrap().size, 0);
    // read-only words stay
    function.config_write(0, &[0; 4]).unwrap();
    assert_eq!(dword(&function, 0), 0x1592_8086);
}

#[test]
fn accesses_outside_or_askew_are_refused_and_never_panic() {
    let (world, function) = one();
    for offset in [1, 2, 3, 32 << 20, (32 << 20) - 2, u64::MAX, u64::MAX - 3] {
        assert!(function.read32(0, offset).is_err(), "{offset:#x}");
        assert!(function.write32(0, offset, 1).is_err(), "{offset:#x}");
        assert!(function.read64(0, offset).is_err(), "{offset:#x}");
    }
    assert!(function.read64(0, (32 << 20) - 4).is_err());
    assert!(function.read32(2, 0).is_err());
    for (offset, length) in [(4095u16, 2usize), (4096, 1), (u16::MAX, 4)] {
        assert!(function.config_read(offset, &mut vec![0; length]).is_err());
        assert!(function.config_write(offset, &vec![0; length]).is_err());
    }
    assert_eq!(breaches(&world), [""; 0]);
}

#[test]
fn reset_of_the_function_ends_by_itself_and_firmware_is_ready() {
    let (world, function) = one();
    assert_eq!(
        function.read32(0, reset::FLASH_LOAD_DONE).unwrap(),
        FLASH_LOAD_DONE_RDMA
    );
    let control = RECEIVE_QUEUE_CONTROL.at(3);
    let on = ReceiveQueueControl::ZERO.with_enable_request(true).0;
    // A profile without a layout: the context does not matter.
    function.write32(0, RECEIVE_QUEUE_PROFILE.at(3), 5).unwrap();
    function.write32(0, control, on).unwrap();
    assert!(ReceiveQueueControl(function.read32(0, control).unwrap()).enable_status());
    function.write32(0, reset::FUNCTION_CONTROL, 1).unwrap();
    assert!(FunctionControl(function.read32(0, reset::FUNCTION_CONTROL).unwrap()).software_reset());
    let clock = world.clock();
    for _ in 0..10 {
        clock.pause(Duration::from_millis(1));
    }
    assert_eq!(function.read32(0, reset::FUNCTION_CONTROL).unwrap(), 0);
    assert_eq!(function.read32(0, control).unwrap(), 0);
    assert_eq!(breaches(&world), [""; 0]);
}

/// Source: ice `ice_common.c`, `ice_pf_reset`.
#[test]
fn the_function_is_not_reset_while_the_device_loads_from_its_flash() {
    for waits in [true, false] {
        let (world, function) = one();
        let trigger = ResetTrigger::ZERO.with_core(true).0;
        function.write32(0, reset::RESET_TRIGGER, trigger).unwrap();
        let is_operational = |value| ResetStatus(value).device_state() == 0;
        while !is_operational(function.read32(0, reset::RESET_STATUS).unwrap()) {
            world.clock().pause(Duration::from_micros(100));
        }
        let loaded = |value| value == FLASH_LOAD_DONE_RDMA;
        while waits && !loaded(function.read32(0, reset::FLASH_LOAD_DONE).unwrap()) {
            world.clock().pause(Duration::from_micros(100));
        }
        function.write32(0, reset::FUNCTION_CONTROL, 1).unwrap();
        assert_eq!(breaches(&world).is_empty(), waits);
    }
}

#[test]
fn reset_and_firmware_faults_show_where_drivers_look() {
    let (world, function) = one();
    world.with(|world| world.inject(0, Fault::ResetNeverEnds));
    function.write32(0, reset::FUNCTION_CONTROL, 1).unwrap();
    for _ in 0..10 {
        world.clock().pause(Duration::from_secs(1));
    }
    assert_eq!(function.read32(0, reset::FUNCTION_CONTROL).unwrap(), 1);
    world.with(|world| world.inject(0, Fault::FirmwareNeverReady));
    assert_ne!(
        function.read32(0, reset::FLASH_LOAD_DONE).unwrap(),
        FLASH_LOAD_DONE_RDMA
    );
    assert_eq!(function.read32(0, CPU_STATUS[1]).unwrap(), 0x80);
    world.with(|world| world.inject(0, Fault::ProtocolEngineStatus(0x41)));
    assert_eq!(function.read32(0, CPU_STATUS[1]).unwrap(), 0x41);
}

#[test]
fn core_reset_is_counted_and_announced() {
    let (world, function) = one();
    function
        .write32(
            0,
            reset::RESET_TRIGGER,
            ResetTrigger::ZERO.with_core(true).0,
        )
        .unwrap();
    let status = ResetStatus(function.read32(0, reset::RESET_STATUS).unwrap());
    assert_eq!(
        (
            status.device_state(),
            status.reset_type(),
            status.core_count()
        ),
        (1, 1, 1)
    );
    for _ in 0..10 {
        world.clock().pause(Duration::from_millis(1));
    }
    assert_eq!(
        ResetStatus(function.read32(0, reset::RESET_STATUS).unwrap()).device_state(),
        0
    );
    assert_eq!(
        function.read32(0, OTHER_CAUSES).unwrap(),
        1 << 20,
        "a reset happened"
    );
    assert_eq!(
        function.read32(0, OTHER_CAUSES).unwrap(),
        0,
        "reading clears"
    );
}

#[test]
fn snapshot_after_reset_is_that_before_anything() {
    let mut client = Client::claimed();
    client
        .function
        .unmap_dma(Iova(0x10_0000), 64 << 10)
        .unwrap();
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    let range = 0..64 << 10;
    client
        .function
        .map_dma(Iova(0x10_0000), &client.memory, range, DmaAccess::ReadWrite)
        .unwrap();
    client.start_rings();
    client.write(OTHER_CAUSES_ENABLE, 0xFFFF_FFFF);
    client.write(VECTOR_CONTROL.at(1), 1);
    let dirty = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(dirty.registers.len(), 2);
    assert_ne!(dirty, found);
    client
        .function
        .unmap_dma(Iova(0x10_0000), 64 << 10)
        .unwrap();
    client.function.reset().unwrap();
    client
        .function
        .config_write(4, &6u16.to_le_bytes())
        .unwrap();
    assert_eq!(client.world.with(|world| world.snapshot(0)).unwrap(), found);
    client.pass(Duration::from_millis(1));
    let mut bytes = [0; SNAPSHOT_BYTES];
    client.function.config_read(0, &mut bytes).unwrap();
    client = Client::claimed();
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn function_level_reset_through_configuration_space_switches_bus_mastering_off() {
    let client = Client::claimed();
    let control = 0xA0 + 8;
    let value = dword(&client.function, control) as u16 | 1 << 15;
    client
        .function
        .config_write(control, &value.to_le_bytes())
        .unwrap();
    assert_eq!(dword(&client.function, 4) as u16, 2, "memory space only");
    assert_eq!(
        dword(&client.function, control) & 1 << 15,
        0,
        "the bit reads as zero"
    );
}

#[test]
fn overlapping_mappings_are_refused_and_leave_the_first_alone() {
    let client = Client::claimed();
    let memory = Memory::allocate(8192, PageSize::FourKiB, None).unwrap();
    let map = |iova| {
        client
            .function
            .map_dma(Iova(iova), &memory, 0..8192, DmaAccess::Read)
    };
    assert!(map(0x10_F000).is_err());
    assert!(map(0x0F_F000).is_err());
    map(0x11_0000).unwrap();
    assert!(client.function.unmap_dma(Iova(0x20_0000), 4096).is_err());
    client.function.unmap_dma(Iova(0x11_0000), 8192).unwrap();
    assert_eq!(
        client
            .world
            .with(|world| world.snapshot(0))
            .unwrap()
            .mappings
            .len(),
        1
    );
}

#[test]
fn enabled_cause_fires_its_vector_once_and_masks_it() {
    let (world, function) = one();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    function.set_interrupts(2, &[Some(event.as_fd())]).unwrap();
    let count = || {
        let mut bytes = [0; 8];
        rustix::io::read(&event, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    };
    let control = CauseControl::ZERO.with_vector(2).with_enable(true);
    function
        .write32(0, OTHER_CAUSES_CONTROL, control.0)
        .unwrap();
    function.write32(0, OTHER_CAUSES_ENABLE, 1 << 25).unwrap();
    let enable = VectorControl::ZERO
        .with_enable(true)
        .with_clear_pending(true)
        .0;
    function.write32(0, VECTOR_CONTROL.at(2), enable).unwrap();
    function.write32(0, OTHER_CAUSES, 1 << 24).unwrap();
    assert_eq!(count(), 0, "a cause that is not enabled");
    function.write32(0, OTHER_CAUSES, 1 << 25).unwrap();
    function.write32(0, OTHER_CAUSES, 1 << 25).unwrap();
    assert_eq!(count(), 1, "the vector masked itself");
    function.write32(0, VECTOR_CONTROL.at(2), enable).unwrap();
    assert_eq!(count(), 1, "what was pending fires when it is armed again");
    let trigger = VectorControl::ZERO
        .with_software_trigger(true)
        .with_keep_enable(true)
        .0;
    function.write32(0, VECTOR_CONTROL.at(2), trigger).unwrap();
    assert_eq!(count(), 1);
    assert!(function.set_interrupts(1023, &[None, None]).is_err());
    assert_eq!(
        world.with(|world| world.function(0).unwrap().interrupts_fired(2)),
        3
    );
}

#[test]
fn a_software_trigger_is_a_cause_of_the_vector_of_other_causes_only() {
    let client = Client::ready();
    let control = CauseControl::ZERO.with_vector(3).with_enable(true);
    client.write(OTHER_CAUSES_CONTROL, control.0);
    let trigger = VectorControl::ZERO
        .with_software_trigger(true)
        .with_throttle_index(3)
        .with_keep_enable(true);
    client.write(VECTOR_CONTROL.at(2), trigger.0);
    assert_eq!(client.read(OTHER_CAUSES), 0);
    client.write(VECTOR_CONTROL.at(3), trigger.0);
    assert_eq!(client.read(OTHER_CAUSES), 1 << 31);
    assert_eq!(client.read(OTHER_CAUSES), 0, "cleared by the read");
    let fired = |vector| {
        let world = &client.world;
        world.with(|world| world.function(0).unwrap().interrupts_fired(vector))
    };
    assert_eq!((fired(2), fired(3)), (1, 1));
}

/// Source: ice `ice_main.c`, `ice_misc_intr` and `ice_do_reset`: after a reset of more than the
/// function a driver rebuilds when it gets this interrupt, whether it triggered the reset or not.
#[test]
fn a_reset_of_the_device_announces_itself_to_the_vector_that_the_driver_has_set_up() {
    for by_another in [true, false] {
        let client = Client::ready();
        let cause = OtherCauses::ZERO.with_global_reset(true).0;
        let control = CauseControl::ZERO.with_vector(3).with_enable(true);
        client.write(OTHER_CAUSES_CONTROL, control.0);
        client.write(OTHER_CAUSES_ENABLE, cause);
        client.write(
            VECTOR_CONTROL.at(3),
            VectorControl::ZERO.with_enable(true).0,
        );
        if by_another {
            client.inject(Fault::Reset(ResetKind::Core));
            client.pass(Duration::from_micros(10));
        } else {
            let trigger = ResetTrigger::ZERO.with_core(true).0;
            client.write(reset::RESET_TRIGGER, trigger);
        }
        let world = &client.world;
        let fired = world.with(|world| world.function(0).unwrap().interrupts_fired(3));
        assert_eq!(fired, 1);
        assert_eq!(client.read(OTHER_CAUSES) & cause, cause);
        let status = ResetStatus(client.read(reset::RESET_STATUS));
        assert_eq!(status.reset_type(), 1);
    }
}

#[test]
fn a_ring_that_linux_replaces_may_ring_at_the_status_of_the_port() {
    let client = Client::ready();
    let found = client.read(reset::PORT_STATUS);
    client.write(reset::PORT_STATUS, 504);
    assert_eq!(client.read(reset::PORT_STATUS), found);
    assert_eq!(client.breach_names(), [""; 0]);
}

/// Registers that other drivers write: DPDK, Intel's ice, FreeBSD.
#[test]
fn registers_of_other_drivers_are_known_and_hold_their_value() {
    let client = Client::ready();
    for offset in [
        0x0A_C330, 0x0A_C3B0, 0x43_0000, 0x43_0040, 0x08_80C8, 0x2D_2DC8, 0x2D_2D40, 0x2D_0000,
        0x2D_2D68, 0x09_E580, 0x09_E500, 0x22_A800, 0x22_BC00, 0x16_B800, 0x50_E000, 0x50_E004,
        0x05_2054,
    ] {
        client.write(offset, 0x12);
        assert_eq!(client.read(offset), 0x12, "{offset:#x}");
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn writes_where_no_register_is_are_named() {
    let (world, function) = one();
    function.write32(0, reset::FLASH_LOAD_DONE, 1).unwrap();
    function.write32(0, 0x1F_FFF0, 1).unwrap();
    function.write32(0, 0x38_0000, 1).unwrap();
    assert_eq!(
        breaches(&world),
        [
            "write to a read-only register",
            "write to an unknown register"
        ]
    );
    function.config_write(4, &[0, 0]).unwrap();
    assert_eq!(
        function.read32(0, reset::FLASH_LOAD_DONE).unwrap(),
        u32::MAX
    );
    assert!(breaches(&world).contains(&"register read while memory space is off"));
}

#[test]
fn random_accesses_never_panic() {
    let seed = 0x5EED;
    println!("seed {seed:#x}");
    let mut random = SmallRng::seed_from_u64(seed);
    let client = Client::ready();
    let known = [
        0x8_0000u64,
        0x50_0000,
        0x50_A000,
        0x7F_0000,
        0x16_0000,
        0x9_1000,
        0xB_8000,
    ];
    for _ in 0..20_000 {
        let base = known[random.random_range(0..known.len())];
        let spread = if random.random_bool(0.5) {
            0x600
        } else {
            1 << 20
        };
        let offset = (base + random.random_range(0..spread)) & !3;
        let value: u32 = if random.random_bool(0.5) {
            random.random_range(0..64)
        } else {
            random.random()
        };
        match random.random_range(0..8) {
            0 => drop(client.function.read32(0, offset)),
            1 => drop(client.function.read64(0, offset)),
            2 => {
                let at = random.random_range(0..4096);
                let _ = client.function.config_write(at, &value.to_le_bytes());
                // keep the device listening
                let _ = client.function.config_write(4, &[6, 0]);
            }
            3 => client.pass(Duration::from_micros(1)),
            _ => drop(client.function.write32(0, offset, value)),
        }
    }
}

#[test]
fn random_commands_never_panic_and_never_answer_more_than_asked() {
    let seed = 0xC0FF_EE11;
    println!("seed {seed:#x}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut client = Client::ready();
    let opcodes = ringside_spec::lan::admin::Opcode::NAMED;
    for _ in 0..5_000 {
        let mut parameters = [0u8; 16];
        random.fill(&mut parameters[..8]);
        if random.random_bool(0.7) {
            parameters[1..8].fill(0);
        }
        let length = random.random_range(0..600u16);
        let mut data = vec![0u8; length.into()];
        random.fill(&mut data[..]);
        if random.random_bool(0.5) {
            data.iter_mut().for_each(|byte| *byte &= 3);
        }
        let (opcode, _) = opcodes[random.random_range(0..opcodes.len())];
        let raw = ringside_spec::lan::admin::generic::NoParameters {
            reserved: parameters,
        };
        let _ = client.give(opcode, &raw, &data);
    }
}
