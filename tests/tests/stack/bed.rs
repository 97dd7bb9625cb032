//! Two devices with a port each, on one switch, and the stacks on their queues.

use ringside_config::{Config, LocalAddress};
use ringside_lan::{Burst, Packet};
use ringside_model::Stepped;
use ringside_pmd::Device;
use ringside_pmd::lan::{OpenPort, Port, PortSettings};
use ringside_stack::{QueueDevice, ResolveSettings, Stack, StackSettings};
use ringside_testkit::{bring_up, config_without_package, world_settings};
use std::time::Duration;

pub(crate) const MTU: u16 = 1500;

pub(crate) fn config(addresses: &[&str]) -> Config {
    let mut config = config_without_package();
    let parsed = addresses.iter().map(|text| text.parse().expect("address"));
    config.network.addresses = parsed.collect::<Vec<LocalAddress>>();
    config
}

pub(crate) fn settings() -> PortSettings {
    PortSettings {
        receive_descriptors: 128,
        transmit_descriptors: 128,
        mtu: MTU,
        pool: ringside_lan::PoolSettings {
            buffers: 1024,
            ..Default::default()
        },
        ..PortSettings::default()
    }
}

/// Settings with short timers, because virtual time is expensive.
pub(crate) fn stack_settings(config: &Config, mac: [u8; 6]) -> StackSettings {
    StackSettings {
        resolve: ResolveSettings {
            probes: 3,
            interval: Duration::from_millis(2),
            lifetime: Duration::from_secs(30),
        },
        seed: 7,
        ..StackSettings::of(config, mac, MTU)
    }
}

pub(crate) struct Bed {
    pub(crate) world: Stepped,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self {
            world: Stepped::new(&world_settings(2)),
        }
    }

    pub(crate) fn device(&self, index: u16, config: &Config) -> Device {
        bring_up(&self.world, index, config)
    }

    /// The rules of the switch that function 0 has.
    pub(crate) fn switch_rules(&self) -> usize {
        let snapshot = self.world.with(|world| world.snapshot(0));
        snapshot.expect("the function").firmware.rules.len()
    }

    /// A device whose port's only queues belong to a stack.
    pub(crate) fn stack(&self, index: u16, config: &Config) -> (Device, Stack) {
        let device = self.device(index, config);
        let (port, device_queues) = open(&device, &settings());
        let settings = stack_settings(config, port.mac());
        let now = self.world.clock().now();
        let stack = Stack::new(port, device_queues, &settings, now).expect("a stack");
        (device, stack)
    }

    /// A device with a port of `count` queues, of which `number` is the stack's; and the others.
    pub(crate) fn stack_beside(
        &self,
        index: u16,
        config: &Config,
        (count, number): (usize, u16),
    ) -> (Device, Stack, Vec<ringside_lan::ReceiveQueue>) {
        let device = self.device(index, config);
        let settings = PortSettings {
            receive_queues: count,
            ..settings()
        };
        let opened = device.open_port(&settings);
        let mut open = opened.unwrap_or_else(|error| panic!("{error}"));
        let pair = (open.receive.remove(number.into()), open.transmit.remove(0));
        let settings = StackSettings {
            queue: Some(number),
            ..stack_settings(config, open.port.mac())
        };
        let now = self.world.clock().now();
        let stack = Stack::new(open.port, pair, &settings, now).expect("a stack");
        (device, stack, open.receive)
    }

    /// A device whose port's only queues belong to smoltcp.
    pub(crate) fn smoltcp(&self, index: u16) -> (Device, Port, QueueDevice) {
        let device = self.device(index, &config(&[]));
        let (port, (receive, transmit)) = open(&device, &settings());
        (device, port, QueueDevice::new(receive, transmit, MTU))
    }

    pub(crate) fn now(&self) -> smoltcp::time::Instant {
        let micros = self.world.clock().now().0 / 1000;
        smoltcp::time::Instant::from_micros(micros as i64)
    }

    pub(crate) fn pass(&self) {
        self.world.clock().pause(Duration::from_micros(20));
    }

    /// No breach of the interface by any of the two drivers, and each handle back.
    pub(crate) fn finish(self, devices: impl IntoIterator<Item = Device>) {
        for device in devices {
            let report = device.shutdown();
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            assert_eq!(report.leaked_bytes, 0);
        }
        for index in [0, 1] {
            let breaches = self.world.with(|world| world.breaches(index));
            assert!(breaches.is_empty(), "{breaches:#?}");
        }
    }
}

type Pair = (ringside_lan::ReceiveQueue, ringside_lan::TransmitQueue);

pub(crate) fn open(device: &Device, settings: &PortSettings) -> (Port, Pair) {
    let opened = device.open_port(settings);
    let OpenPort {
        port,
        mut receive,
        mut transmit,
        ..
    } = opened.unwrap_or_else(|error| panic!("{error}"));
    (port, (receive.remove(0), transmit.remove(0)))
}

/// An end without a stack: frames made by hand.
pub(crate) struct Raw {
    pub(crate) device: Device,
    pub(crate) port: Port,
    receive: ringside_lan::ReceiveQueue,
    transmit: ringside_lan::TransmitQueue,
}

impl Raw {
    pub(crate) fn new(bed: &Bed, index: u16, settings: &PortSettings) -> Self {
        let device = bed.device(index, &config(&[]));
        let (port, (receive, transmit)) = open(&device, settings);
        Self {
            device,
            port,
            receive,
            transmit,
        }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        let packet = self.transmit.pool().packet_with(frame).expect("buffers");
        let mut burst = Burst::default();
        burst.push(packet).expect("room");
        assert_eq!(self.transmit.send(&mut burst), 1);
    }

    pub(crate) fn poll(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::default();
        self.receive.receive(&mut burst);
        burst
            .drain()
            .map(|packet: Packet| packet.to_vec())
            .collect()
    }

    pub(crate) fn into_device(self) -> Device {
        self.device
    }
}
