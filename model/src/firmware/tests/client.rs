//! A driver's side of the admin queue, as small as can be: every field is written by hand, so that
//! a test can also write what no driver should.

use crate::faults::Fault;
use crate::strict::Breach;
use crate::{Stepped, WorldSettings};
use ringside_bus::function::DmaAccess;
use ringside_bus::{Function, Iova, Memory, PageSize};
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::generic::NeighbourDeviceRequest;
use ringside_spec::lan::admin::neighbour::NeighbourAnswer;
use ringside_spec::lan::admin::{Descriptor, Direction, Opcode, ReturnCode};
use ringside_spec::lan::registers::control_queues::{
    ADMIN_RECEIVE, ADMIN_SEND, RingLength, RingRegisters,
};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const BASE: u64 = 0x10_0000;
const BYTES: usize = 64 << 10;
const SEND_RING: usize = 0;
const RECEIVE_RING: usize = 0x1000;
const BUFFER: usize = 0x4000;
const EVENT_BUFFERS: usize = 0x8000;
pub(crate) const ENTRIES: u32 = 8;

pub(crate) struct Client {
    pub(crate) world: Stepped,
    pub(crate) function: Arc<dyn Function>,
    pub(crate) memory: Memory,
    tail: u32,
    event: u32,
}

/// An answer: descriptor and as much of the buffer as it says.
pub(crate) struct Answered {
    pub(crate) descriptor: Descriptor,
    pub(crate) bytes: Vec<u8>,
}

impl Answered {
    pub(crate) fn ok(self) -> Self {
        assert_eq!(
            self.descriptor.return_code(),
            ReturnCode::Ok,
            "{:?}",
            self.descriptor.opcode()
        );
        self
    }

    pub(crate) fn item<T>(&self, at: usize) -> T
    where
        T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
    {
        T::read_from_prefix(&self.bytes[at..]).unwrap().0
    }
}

impl Client {
    /// A message to the PHY by the sideband queue, and the value in its answer.
    pub(crate) fn ask_neighbour(&mut self, message: &[u8]) -> Result<u32, ReturnCode> {
        let parameters = NeighbourDeviceRequest {
            length_bytes: (message.len() as u16).into(),
            ..NeighbourDeviceRequest::zeroed()
        };
        let answer = self.give(Opcode::NeighbourDeviceRequest, &parameters, message);
        match answer.descriptor.return_code() {
            ReturnCode::Ok => Ok(answer.item::<NeighbourAnswer>(0).value.get()),
            code => Err(code),
        }
    }

    /// A world of one function with its rings set up and the version asked for.
    pub(crate) fn ready() -> Self {
        let mut client = Self::with_rings();
        client.direct(Opcode::GetVersion, &none()).ok();
        client
    }

    pub(crate) fn with_rings() -> Self {
        let client = Self::claimed();
        client.start_rings();
        client
    }

    /// A function with bus mastering on and memory mapped.
    pub(crate) fn claimed() -> Self {
        let world = Stepped::new(&WorldSettings::with_functions(1));
        let function = world.function(0).unwrap();
        let memory = Memory::allocate(BYTES, PageSize::FourKiB, None).unwrap();
        function.config_write(4, &6u16.to_le_bytes()).unwrap();
        function
            .map_dma(Iova(BASE), &memory, 0..BYTES, DmaAccess::ReadWrite)
            .unwrap();
        Self {
            world,
            function,
            memory,
            tail: 0,
            event: 0,
        }
    }

    fn start(&self, ring: &RingRegisters, at: usize) {
        let length = RingLength::ZERO.with_entries(ENTRIES).with_enable(true);
        let base = BASE + at as u64;
        self.write(ring.head, 0);
        self.write(ring.tail, 0);
        self.write(ring.length, length.0);
        self.write(ring.base_low, base as u32);
        self.write(ring.base_high, (base >> 32) as u32);
        assert_eq!(self.read(ring.base_low), base as u32);
    }

    pub(crate) fn start_rings(&self) {
        self.start(&ADMIN_SEND, SEND_RING);
        self.start(&ADMIN_RECEIVE, RECEIVE_RING);
        for index in 0..ENTRIES as usize {
            let buffer = BASE + (EVENT_BUFFERS + index * 0x1000) as u64;
            let free = Descriptor::free_for_event(buffer, 4096);
            assert!(
                self.memory
                    .write(RECEIVE_RING + index * 32, free.as_bytes())
            );
        }
        self.write(ADMIN_RECEIVE.tail, ENTRIES - 1);
    }

    /// Sets up the rings anew.
    pub(crate) fn restart_rings(&mut self) {
        self.start_rings();
        self.tail = 0;
        self.event = 0;
    }

    pub(crate) fn stop_rings(&mut self) {
        self.direct(Opcode::QueueShutdown, &none()).ok();
        for ring in [ADMIN_SEND, ADMIN_RECEIVE] {
            for register in [
                ring.head,
                ring.tail,
                ring.length,
                ring.base_low,
                ring.base_high,
            ] {
                self.write(register, 0);
            }
        }
    }

    pub(crate) fn read(&self, offset: u64) -> u32 {
        self.function.read32(0, offset).unwrap()
    }

    pub(crate) fn write(&self, offset: u64, value: u32) {
        self.function.write32(0, offset, value).unwrap();
    }

    pub(crate) fn pass(&self, time: Duration) {
        let clock = self.world.clock();
        let end = clock.now().plus(time);
        while clock.now() < end {
            clock.pause(end.since(clock.now()));
        }
    }

    pub(crate) fn breaches(&self) -> Vec<Breach> {
        self.world.with(|world| world.breaches(0))
    }

    pub(crate) fn breach_names(&self) -> Vec<&'static str> {
        self.breaches().iter().map(|breach| breach.kind).collect()
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.world.with(|world| world.inject(0, fault));
    }

    pub(crate) fn end(&self, fault: Fault) {
        self.world.with(|world| world.clear_fault(0, fault));
    }

    /// Sends a descriptor as it is; `None` if it is not answered within a second.
    pub(crate) fn send(&mut self, descriptor: &Descriptor, data: &[u8]) -> Option<Answered> {
        let place = SEND_RING + self.tail as usize * 32;
        assert!(self.memory.write(BUFFER, data));
        assert!(self.memory.write(place, descriptor.as_bytes()));
        self.tail = (self.tail + 1) % ENTRIES;
        self.write(ADMIN_SEND.tail, self.tail);
        let clock = self.world.clock();
        let end = clock.now().plus(Duration::from_secs(1));
        while self.read(ADMIN_SEND.head) != self.tail {
            if clock.now() >= end {
                return None;
            }
            clock.pause(Duration::from_micros(20));
        }
        let mut bytes = [0; 32];
        assert!(self.memory.read(place, &mut bytes));
        let answer = Descriptor::read_from_bytes(&bytes).unwrap();
        assert!(answer.flags().done() && answer.flags().complete());
        assert!(
            answer.data_length.get() <= descriptor.data_length.get(),
            "more than was supplied"
        );
        let mut bytes = vec![0; answer.data_length.get().into()];
        assert!(self.memory.read(BUFFER, &mut bytes));
        Some(Answered {
            descriptor: answer,
            bytes,
        })
    }

    pub(crate) fn direct<P: Parameters>(&mut self, opcode: Opcode, parameters: &P) -> Answered {
        let descriptor = Descriptor::direct(opcode, parameters);
        self.send(&descriptor, &[]).expect("an answer")
    }

    /// A command whose buffer the firmware reads.
    pub(crate) fn give<P: Parameters>(
        &mut self,
        opcode: Opcode,
        parameters: &P,
        data: &[u8],
    ) -> Answered {
        let address = BASE + BUFFER as u64;
        let length = data.len() as u16;
        let descriptor =
            Descriptor::indirect(opcode, parameters, address, length, Direction::DeviceReads);
        self.send(&descriptor, data).expect("an answer")
    }

    /// A command whose buffer the firmware fills.
    pub(crate) fn ask<P: Parameters>(
        &mut self,
        opcode: Opcode,
        parameters: &P,
        length: u16,
    ) -> Answered {
        let address = BASE + BUFFER as u64;
        let descriptor =
            Descriptor::indirect(opcode, parameters, address, length, Direction::DeviceWrites);
        self.send(&descriptor, &[]).expect("an answer")
    }

    /// The next event, if there is one.
    pub(crate) fn event(&mut self) -> Option<(Opcode, Vec<u8>)> {
        self.pass(Duration::from_micros(10));
        if self.read(ADMIN_RECEIVE.head) == self.event {
            return None;
        }
        let place = RECEIVE_RING + self.event as usize * 32;
        let mut bytes = [0; 32];
        assert!(self.memory.read(place, &mut bytes));
        let descriptor = Descriptor::read_from_bytes(&bytes).unwrap();
        let mut body = vec![0; descriptor.data_length.get().into()];
        let buffer = EVENT_BUFFERS + self.event as usize * 0x1000;
        assert!(self.memory.read(buffer, &mut body));
        let free = Descriptor::free_for_event(BASE + buffer as u64, 4096);
        assert!(self.memory.write(place, free.as_bytes()));
        self.write(ADMIN_RECEIVE.tail, self.event);
        self.event = (self.event + 1) % ENTRIES;
        Some((descriptor.opcode(), body))
    }
}

/// No parameters.
pub(crate) fn none() -> ringside_spec::lan::admin::generic::NoParameters {
    ringside_spec::lan::admin::generic::NoParameters { reserved: [0; 16] }
}
