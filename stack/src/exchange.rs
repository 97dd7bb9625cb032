//! The exchange of messages with DHCP servers: an answer counts while the stack waits for it.

use crate::bootp::{self, Way};
use smoltcp::wire::{DhcpMessageType, DhcpRepr, EthernetAddress};
use std::net::Ipv4Addr;

/// Seconds of a lease that names no time, as smoltcp has it.
const DEFAULT_SECONDS: u32 = 120;

/// The answer that the stack waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Awaited {
    #[default]
    Nothing,
    /// offers of any server
    Offers,
    /// a grant or a refusal
    Decision {
        /// by this server, or by any one
        of: Option<Ipv4Addr>,
        /// of this address; of that of the lease if there is none
        address: Option<Ipv4Addr>,
    },
}

/// The last message of the stack, and the answers to it that count. Source: RFC 2131, figure 5: a
/// client that has a lease discards offers, grants and refusals.
///
/// smoltcp compares neither the servers of messages nor the time: a second server that had seen the
/// same broadcast ended a lease by its refusal.
#[derive(Debug)]
pub(crate) struct Exchange {
    awaited: Awaited,
    transaction: u32,
    client: EthernetAddress,
    /// seconds of the last grant, until they are taken
    granted: Option<u32>,
    /// the address whose offer was refused after all, until it is taken
    refused: Option<Ipv4Addr>,
    /// the server whose offer was taken last: it renews the lease
    chosen: Option<Ipv4Addr>,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            awaited: Awaited::Nothing,
            transaction: 0,
            client: EthernetAddress::BROADCAST,
            granted: None,
            refused: None,
            chosen: None,
        }
    }
}

impl Exchange {
    /// Notes a frame that leaves.
    pub(crate) fn note(&mut self, frame: &[u8]) {
        bootp::with_message(frame, Way::ToServer, |sent, destination| {
            self.note_message(sent, destination);
        });
    }

    fn note_message(&mut self, sent: &DhcpRepr<'_>, destination: Ipv4Addr) {
        self.awaited = match sent.message_type {
            DhcpMessageType::Discover => Awaited::Offers,
            DhcpMessageType::Request => {
                // The one that takes an offer names its server.
                self.chosen = sent.server_identifier.or(self.chosen);
                let is_rebinding = sent.server_identifier.is_none() && destination.is_broadcast();
                Awaited::Decision {
                    of: self.chosen.filter(|_| !is_rebinding),
                    address: sent.requested_ip,
                }
            }
            _ => return,
        };
        (self.transaction, self.client) = (sent.transaction_id, sent.client_hardware_address);
    }

    /// True for a frame that is no message of a DHCP server, and for an answer that the stack waits
    /// for. A decision is the last answer of its exchange.
    pub(crate) fn admits(&mut self, frame: &[u8]) -> bool {
        if bootp::is_part_of_answer(frame) {
            return false;
        }
        if !bootp::is_answer(frame) {
            return true;
        }
        let admitted = bootp::with_message(frame, Way::ToClient, |answer, _| {
            self.admits_message(answer)
        });
        admitted.unwrap_or(false)
    }

    /// Takes the time of a lease that was granted since the last call, seconds.
    pub(crate) const fn take_granted(&mut self) -> Option<u32> {
        self.granted.take()
    }

    /// Takes the address that a server has offered and then refused since the last call.
    pub(crate) const fn take_refused(&mut self) -> Option<Ipv4Addr> {
        self.refused.take()
    }

    fn admits_message(&mut self, answer: &DhcpRepr<'_>) -> bool {
        let is_same = answer.transaction_id == self.transaction
            && answer.client_hardware_address == self.client;
        let Some(server) = answer.server_identifier.filter(|_| is_same) else {
            return false;
        };
        match (self.awaited, answer.message_type) {
            (Awaited::Offers, DhcpMessageType::Offer) => true,
            (Awaited::Decision { of, address }, DhcpMessageType::Ack | DhcpMessageType::Nak)
                if of.is_none_or(|of| of == server) =>
            {
                self.awaited = Awaited::Nothing;
                if answer.message_type == DhcpMessageType::Nak {
                    self.refused = address;
                }
                if answer.message_type == DhcpMessageType::Ack {
                    // After a rebinding the lease is this server's.
                    self.chosen = Some(server);
                    self.granted = Some(answer.lease_duration.unwrap_or(DEFAULT_SECONDS));
                }
                true
            }
            _ => false,
        }
    }
}
