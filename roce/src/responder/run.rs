//! Request packets that come as one.

use super::request::{Placement, RequestOutcome};
use super::{Message, Responder, ResponderHost};
use crate::packet::{Psn, TransportHeaders};

impl<G: Copy> Responder<G> {
    /// Takes `packets` request packets that come as one, each with a payload of `packet_bytes`; see
    /// [`Requester::next_run`](crate::Requester::next_run). Returns the outcome, and the number of
    /// its packets: the caller passes the others one by one, with the headers that
    /// [`TransportHeaders::of_run`] gives.
    #[inline]
    pub fn on_run(
        &mut self,
        headers: &TransportHeaders,
        packets: u32,
        packet_bytes: u32,
        host: &mut impl ResponderHost<Grant = G>,
    ) -> (RequestOutcome<G>, u32) {
        let outcome = self.on_request(headers, packet_bytes, host);
        let further = packets.saturating_sub(1);
        if let RequestOutcome::Accepted {
            placement: Some(placement),
            received: None,
        } = outcome
            && self.take_further(further, packet_bytes)
        {
            let outcome = RequestOutcome::Accepted {
                placement: Some(placement.longer(further * packet_bytes)),
                received: None,
            };
            return (outcome, packets);
        }
        (outcome, 1)
    }

    /// Takes so many further packets of the open message, none of them its last; false, and takes
    /// none, if one of them would be refused.
    #[inline]
    fn take_further(&mut self, packets: u32, packet_bytes: u32) -> bool {
        let Some(bytes) = packets.checked_mul(packet_bytes) else {
            return false;
        };
        if packet_bytes != self.mtu.bytes() {
            return false;
        }
        let offset_bytes = match &mut self.message {
            Message::Write {
                offset_bytes,
                length_bytes,
                ..
            } if *length_bytes - *offset_bytes > bytes => offset_bytes,
            Message::Send {
                offset_bytes,
                capacity_bytes,
                ..
            } if *capacity_bytes - *offset_bytes >= bytes => offset_bytes,
            _ => return false,
        };
        *offset_bytes += bytes;
        self.expected = self.expected.plus(packets);
        self.behind = (self.behind + packets).min(Psn::MODULUS / 2);
        self.statistics.packets_accepted += u64::from(packets);
        true
    }
}

impl<G> Placement<G> {
    /// The same target with so many bytes more.
    #[inline]
    fn longer(self, bytes: u32) -> Self {
        match self {
            Self::Remote {
                grant,
                address,
                length_bytes,
            } => Self::Remote {
                grant,
                address,
                length_bytes: length_bytes + bytes,
            },
            Self::Receive {
                token,
                offset_bytes,
                length_bytes,
            } => Self::Receive {
                token,
                offset_bytes,
                length_bytes: length_bytes + bytes,
            },
        }
    }
}
