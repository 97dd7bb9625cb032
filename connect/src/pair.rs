//! Settings of a connection, and the queue pair that gets them.

use crate::error::ConnectError;
use ringside_cm::{Accept, Parameters, gsi};
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{
    Connected, Destination, QueuePair, RdmaError, ReceiveAttributes, SendAttributes,
};
use std::net::IpAddr;

/// The parameters that one side requests of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the peer's program: at most 56 bytes of a request, 196 of an answer. The peer reads it
    /// padded with zeros.
    pub private_data: Vec<u8>,
    /// RDMA reads of the peer that may be under way; cut to what the device answers.
    pub inbound_reads: u8,
    /// RDMA reads that may be under way; cut to what the device and the peer have.
    pub outbound_reads: u8,
    /// Retries without an answer, 0..=7.
    pub retries: u8,
    /// Retries while no receive is posted, 0..=7; 7 retries without end.
    pub receiver_not_ready_retries: u8,
    /// Type of service of the packets.
    pub traffic_class: u8,
    /// Largest payload of a packet, bytes, instead of the port's: 256, 512, 1024, 2048 or 4096. The
    /// side that asks decides it.
    pub path_mtu: Option<u32>,
    /// Least time without an answer before a request is repeated, instead of what the connection
    /// manager computes: 4.096 us times 2 to the power of this, 0..=31. The side that asks decides
    /// it.
    pub acknowledge_timeout: Option<u8>,
    /// Own address to connect from, instead of the one in the network of the peer or of the router
    /// to it. The side that accepts answers from the address that was asked.
    pub local_address: Option<IpAddr>,
}

impl Default for Settings {
    /// Everything that the device has, and no private data.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            inbound_reads: u8::MAX,
            outbound_reads: u8::MAX,
            retries: 7,
            receiver_not_ready_retries: 7,
            traffic_class: 0,
            path_mtu: None,
            acknowledge_timeout: None,
            local_address: None,
        }
    }
}

impl Settings {
    /// Cuts the reads that a peer names to those of the settings and of the device, which answers
    /// and has under way `reads`.
    pub(crate) fn limit(&self, (inbound, outbound): (u8, u8), agreed: &mut Parameters) {
        let responder_resources = agreed.responder_resources.min(self.inbound_reads);
        agreed.responder_resources = responder_resources.min(inbound);
        let initiator_depth = agreed.initiator_depth.min(self.outbound_reads);
        agreed.initiator_depth = initiator_depth.min(outbound);
    }

    /// The answer to a request for queue pair `pair`: as many reads as both sides and the device
    /// have; `reads` are those that the device answers, and that it has under way.
    pub(crate) fn answer(&self, reads: (u8, u8), pair: u32, agreed: &mut Parameters) -> Accept {
        self.limit(reads, agreed);
        Accept {
            queue_pair: pair,
            shared_receive_queue: false,
            responder_resources: agreed.responder_resources,
            initiator_depth: agreed.initiator_depth,
            flow_control: true,
            rnr_retry_count: self.receiver_not_ready_retries,
            private_data: self.private_data.clone(),
        }
    }

    /// Settings with private data.
    #[must_use]
    pub fn with_data(private_data: &[u8]) -> Self {
        Self {
            private_data: private_data.to_vec(),
            ..Self::default()
        }
    }

    /// Refuses values that a connection cannot have.
    pub(crate) fn check(&self) -> Result<(), RdmaError> {
        within("the retry count", self.retries, 7)?;
        let not_ready = self.receiver_not_ready_retries;
        within("the receiver-not-ready retry count", not_ready, 7)?;
        let timeout = self.acknowledge_timeout.unwrap_or(0);
        within("the acknowledge timeout", timeout, 31)?;
        match self.path_mtu {
            None | Some(256 | 512 | 1024 | 2048 | 4096) => Ok(()),
            Some(given) => Err(RdmaError::Mtu { given }),
        }
    }
}

/// Errors: `given` is more than `most`.
fn within(what: &'static str, given: u8, most: u8) -> Result<(), RdmaError> {
    if given <= most {
        return Ok(());
    }
    Err(RdmaError::OutOfRange {
        what,
        given: given.into(),
        least: 0,
        most: most.into(),
    })
}

/// The tag of a queue pair that sends from an address on `vlan`, with the priority of the tag that
/// it was made with. Without a VLAN a tag stays only if it carries nothing but a priority.
fn tag(own: Option<u16>, vlan: Option<u16>) -> Option<u16> {
    const NUMBER: u16 = 0xFFF;
    let own = own.unwrap_or(0);
    match vlan {
        Some(vlan) => Some(own & !NUMBER | vlan & NUMBER),
        None => Some(own).filter(|own| own & NUMBER == 0 && *own != 0),
    }
}

/// The code of a path MTU.
pub(crate) fn mtu_code(bytes: u32) -> u8 {
    u8::try_from(bytes.clamp(256, 4096).ilog2() - 7).unwrap_or(1)
}

/// The attributes of a queue pair to what both sides agreed on.
fn attributes(
    agreed: &Parameters,
    mac: MacAddress,
    vlan_tag: Option<u16>,
) -> (ReceiveAttributes, SendAttributes) {
    let path = Destination {
        local_address: Some(agreed.local.address()),
        vlan_tag,
        traffic_class: agreed.traffic_class,
        flow_label: agreed.flow_label,
        hop_limit: gsi::HOP_LIMIT,
        ..Destination::new(agreed.remote.address(), mac)
    };
    let receiving = ReceiveAttributes {
        path,
        queue_pair: agreed.queue_pair,
        psn: agreed.receive_psn,
        path_mtu: 128 << agreed.path_mtu.min(5),
        inbound_reads: agreed.responder_resources,
    };
    let sending = SendAttributes {
        psn: agreed.send_psn,
        retries: agreed.retry_count,
        acknowledge_timeout: agreed.ack_timeout,
        receiver_not_ready_retries: agreed.rnr_retry_count,
        outbound_reads: agreed.initiator_depth,
    };
    (receiving, sending)
}

/// Brings a queue pair from its making to sending, with what both sides agreed on.
pub(crate) fn set(
    pair: QueuePair,
    agreed: &Parameters,
    mac: MacAddress,
) -> Result<QueuePair<Connected>, ConnectError> {
    let (receiving, sending) = attributes(agreed, mac, tag(pair.vlan_tag(), agreed.vlan));
    let pair = pair.receive_from(&receiving);
    let pair = pair.map_err(|refused| refused.error)?.send_from(&sending);
    pair.map_err(|refused| refused.error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_takes_the_vlan_of_its_address_and_keeps_its_priority() {
        let cases = [
            (None, None, None),
            (None, Some(5), Some(5)),
            (Some(0x6007), Some(5), Some(0x6005)),
            (Some(0x6000), Some(5), Some(0x6005)),
            (Some(0x6000), None, Some(0x6000)),
            (Some(0x6007), None, None),
            (Some(0), None, None),
        ];
        for (own, vlan, expected) in cases {
            assert_eq!(tag(own, vlan), expected, "{own:x?} on {vlan:?}");
        }
    }

    #[test]
    fn a_queue_pair_has_each_value_that_was_agreed() {
        let addresses = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let agreed = Parameters {
            queue_pair: 1,
            send_psn: 2,
            receive_psn: 3,
            responder_resources: 4,
            initiator_depth: 5,
            retry_count: 6,
            rnr_retry_count: 7,
            flow_control: true,
            shared_receive_queue: false,
            path_mtu: mtu_code(1024),
            ack_timeout: 9,
            flow_label: 10,
            traffic_class: 11,
            local: addresses[0].into(),
            vlan: Some(13),
            remote: addresses[1].into(),
        };
        let mac = [2, 0, 0, 0, 0, 12];
        let (receiving, sending) = attributes(&agreed, mac, Some(13));
        let path = receiving.path;
        assert_eq!(
            (path.local_address, path.address),
            (Some(addresses[0]), addresses[1])
        );
        assert_eq!((path.mac, path.vlan_tag), (mac, Some(13)));
        assert_eq!((path.flow_label, path.traffic_class), (10, 11));
        assert_eq!(path.hop_limit, gsi::HOP_LIMIT);
        assert_eq!((receiving.queue_pair, receiving.psn), (1, 3));
        assert_eq!((receiving.path_mtu, receiving.inbound_reads), (1024, 4));
        assert_eq!((sending.psn, sending.outbound_reads), (2, 5));
        assert_eq!(
            (sending.retries, sending.receiver_not_ready_retries),
            (6, 7)
        );
        assert_eq!(sending.acknowledge_timeout, 9);
    }
}
