//! Congestion on the path: notifying the sender, and handling notifications.
//!
//! The rate of a queue pair does not follow: the model's wire has no queue that could grow.

use super::ActiveQueuePair;
use crate::frame::{Frame, Payload};
use crate::packet::{Extension, Opcode, Packet, Psn, QpNumber, TransportHeaders};
use std::time::Duration;

/// The interval at which a queue pair notifies its peer at most. Source: the 50 us of N in
/// "Congestion Control for Large-Scale RDMA Deployments" (DCQCN), section 3.
const NOTIFICATION_INTERVAL: Duration = Duration::from_micros(50);

impl ActiveQueuePair<'_, '_> {
    /// Sends the peer a congestion notification packet, unless one was sent just before. Source:
    /// InfiniBand Architecture Specification, annex A17.9.3.
    #[cold]
    pub(super) fn notify_peer(&mut self) {
        let Some(destination) = self.objects.arp.get(self.qp.context.arp_index) else {
            return;
        };
        if self.context.now < self.qp.next_notification {
            return;
        }
        self.qp.next_notification = self.context.now.plus(NOTIFICATION_INTERVAL);
        let context = &self.qp.context;
        let transport = TransportHeaders {
            opcode: Opcode::CONGESTION_NOTIFICATION,
            solicited: false,
            migrated: true,
            partition_key: context.p_key,
            forward_congestion: false,
            backward_congestion: true,
            destination_qp: QpNumber::new(context.destination_qp),
            acknowledge_request: false,
            psn: Psn::new(0),
            extension: Extension::CongestionNotification([0; 16]),
        };
        let path = self.qp.path(destination);
        let frame = Frame {
            packet: Packet { path, transport },
            payload: Payload::empty(),
            packets: 1,
        };
        self.objects.counters.notifications_sent += 1;
        self.objects.counters.count_sent(&frame);
        self.objects.notifications.push_back(frame);
    }

    /// Counts the peer's notification that packets of this queue pair met congestion. Without
    /// congestion control it has no other effect.
    #[cold]
    pub(super) fn on_notification(&mut self) {
        let counters = &mut self.objects.counters;
        if self.qp.context.dcqcn_enable {
            counters.notifications_handled += 1;
        } else {
            counters.notifications_ignored += 1;
        }
    }
}
