//! The handling of a packet by one end.

use super::*;

pub(super) const WRITABLE_KEY: u32 = 0x1100;
pub(super) const READABLE_KEY: u32 = 0x2200;
pub(super) const BASE: u64 = 0x7F00_0000_0000;

impl Peer {
    pub(super) fn take_request(&mut self, headers: &TransportHeaders, payload: &[u8]) {
        let length = payload.len() as u32;
        match self
            .responder
            .on_request(headers, length, &mut self.adapter)
        {
            RequestOutcome::Accepted {
                placement,
                received,
            } => {
                match placement {
                    Some(Placement::Remote {
                        grant,
                        address,
                        length_bytes,
                    }) => {
                        assert_eq!((grant, length_bytes), (WRITABLE_KEY, length));
                        let start = (address - BASE) as usize;
                        let place = &mut self.adapter.writable[start..start + payload.len()];
                        assert!(place.iter().all(|byte| *byte == 0), "written twice");
                        place.copy_from_slice(payload);
                    }
                    Some(Placement::Receive {
                        token,
                        offset_bytes,
                        length_bytes,
                    }) => {
                        assert_eq!(length_bytes, length);
                        let buffer = &mut self.receive_buffers[token as usize];
                        buffer[offset_bytes as usize..][..payload.len()].copy_from_slice(payload);
                    }
                    None => assert!(payload.is_empty()),
                }
                if received.is_some_and(|received| received.invalidated.is_some()) {
                    self.adapter.valid_key = None;
                }
                self.received.extend(received);
            }
            RequestOutcome::Fault(fault) => panic!("{fault}"),
            _ => {}
        }
    }

    pub(super) fn take_response(
        &mut self,
        now: Instant,
        headers: &TransportHeaders,
        payload: &[u8],
    ) {
        match self
            .requester
            .on_response(now, headers, payload.len() as u32)
        {
            ResponseOutcome::Place(MessageBytes {
                token,
                offset_bytes,
                length_bytes,
            }) => {
                assert_eq!(length_bytes as usize, payload.len());
                let sink = &mut self.messages[token as usize];
                sink[offset_bytes as usize..][..payload.len()].copy_from_slice(payload);
            }
            ResponseOutcome::Fault(fault) => panic!("{fault}"),
            _ => {}
        }
    }
}

pub(super) fn through_a_frame(
    headers: TransportHeaders,
    payload: &[u8],
) -> (TransportHeaders, Vec<u8>) {
    let network = Network::V4(Ipv4 {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        type_of_service: 0,
        time_to_live: 64,
        identification: 0,
        do_not_fragment: true,
    });
    let path = Path {
        destination: MacAddress([2, 0, 0, 0, 0, 1]),
        source: MacAddress([2, 0, 0, 0, 0, 2]),
        vlan: None,
        network,
        source_port: 0xC000,
        udp_checksum: UdpChecksum::Absent,
    };
    let mut frame = Vec::new();
    packet::emit(
        &Packet {
            path,
            transport: headers,
        },
        payload,
        &mut frame,
    )
    .expect("fits a frame");
    let (packet, range) = packet::parse(&frame).expect("our own frame");
    assert_eq!(packet.transport, headers);
    (packet.transport, frame[range].to_vec())
}
