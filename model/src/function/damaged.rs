//! Datagrams to RoCEv2's port that damage, or another sender than RoCEv2, made useless for the RDMA
//! engine.

use super::FunctionModel;
use crate::packet::MacAddress;

impl FunctionModel {
    /// Drops a datagram to a destination, and with a tag, that is no sound RoCEv2 packet, and
    /// counts it, if the RDMA engine is its receiver: it alone looks for an invariant CRC. False:
    /// it is a datagram as any other, for the host's network stack.
    pub(crate) fn drops_damaged(
        &mut self,
        (destination, tag): (MacAddress, Option<u16>),
        is_ipv4: bool,
    ) -> bool {
        self.filter.is_for_rdma(destination, tag) && self.rdma.discard_damaged(is_ipv4)
    }

    /// Lets RoCEv2 packets to an address in, as a driver's rule does.
    #[cfg(test)]
    pub(crate) fn open_for_rdma(&mut self, address: MacAddress) {
        self.filter.add_address(crate::chip::FilteredAddress {
            address,
            rdma: true,
            loopback: false,
        });
        self.rdma.set_receive_enabled(true);
        self.changes += 1;
    }
}
