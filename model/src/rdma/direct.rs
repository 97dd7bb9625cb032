//! Short writes and their acknowledgements from one function's queue pair to another's, without a
//! packet in between.
//!
//! Everything that a packet would change is changed: sequence numbers, statistics, timers, memory.
//! All checks come before the first change. Where one of them fails, nothing has happened, and the
//! way of all packets finds the reason again and deals with it.

use super::objects::Objects;
use super::objects::queue_pair::{QueuePair, Work};
use super::queues::ActiveQueuePair;
use super::queues::{LOCAL_READ, REMOTE_WRITE};
use super::stall::Stall;
use super::way::Way;
use super::{MULTICAST_QP, RdmaEngine};
use crate::chip::Context;
use crate::frame::{MAX_INLINE_BYTES, wire_length};
use crate::packet::{ExtensionKind, Network, Path, QpNumber};
use crate::roce::{Requester, Responder, ShortWrite};
use ringside_bus::{DmaSpace, Instant, Iova};
use ringside_spec::rdma::commands::AccessRights;
use ringside_spec::verbs::SendElement;

/// Packets that were delivered.
pub(crate) struct Delivered {
    /// Their number, at least 1.
    pub(crate) packets: u32,
    /// The length of each on the wire, with frame check sequence.
    pub(crate) wire_bytes: usize,
}

/// A payload on its way. Aligned, so that the words of a payload move whole.
#[repr(align(8))]
struct Buffer([u8; MAX_INLINE_BYTES]);

// Payloads of this length are moved at once.
const _: () = assert!(MAX_INLINE_BYTES <= DmaSpace::MAX_PLAIN_COPY);

/// A queue pair with what it needs to move a payload.
struct End<'a> {
    qp: &'a mut QueuePair,
    objects: &'a mut Objects,
    memory: &'a DmaSpace,
    stamp: (u64, u64),
}

impl End<'_> {
    /// Returns the place of an access in the host's memory, if a kept grant allows it.
    #[inline(always)]
    fn granted(&self, key: u32, (at, length): (u64, u32), rights: AccessRights) -> Option<Iova> {
        let asked = (rights, self.qp.context.protection_domain);
        let bytes = (at, u64::from(length));
        let offset = self.objects.regions.quick(key, bytes, asked, self.stamp)?;
        Some(Iova(offset.wrapping_add(at)))
    }

    /// Moves the payload of a write to `target` of another function's memory; false, and nothing
    /// has happened, if that is not simple.
    #[inline]
    fn move_payload(&self, write: &ShortWrite, to: &DmaSpace, target: Iova) -> bool {
        let work = self.qp.work_at(write.token);
        let Some(piece) = &work.single else {
            return self.move_gathered(work, write, to, target);
        };
        let bytes = (piece.address, piece.length_bytes);
        let Some(at) = self.granted(piece.steering_tag, bytes, LOCAL_READ) else {
            return false;
        };
        let length = write.length_bytes as usize;
        DmaSpace::copy_plainly(self.memory, at, to, target, length)
            || self.move_through(write, at, to, target)
    }

    /// The same by way of a buffer, for memory of another process.
    #[cold]
    fn move_through(&self, write: &ShortWrite, at: Iova, to: &DmaSpace, target: Iova) -> bool {
        put(write, to, target, |bytes| {
            self.memory.read_plainly(at, bytes)
        })
    }

    /// The same for data that are in the element itself.
    #[inline(never)]
    fn move_gathered(&self, work: &Work, write: &ShortWrite, to: &DmaSpace, target: Iova) -> bool {
        let words = self.qp.send.read(work.index.into(), work.quanta.into());
        put(write, to, target, |bytes| {
            SendElement::new(words.as_slice()).is_ok_and(|element| {
                element.header().inline()
                    && element.header().inline_length_bytes() == u64::from(write.length_bytes)
                    && element.copy_inline(bytes) == bytes.len()
            })
        })
    }
}

/// Writes the payload that `fill` gives; false, and nothing has happened, if it gives none.
fn put(
    write: &ShortWrite,
    to: &DmaSpace,
    target: Iova,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> bool {
    let mut buffer = Buffer([0; MAX_INLINE_BYTES]);
    let bytes = buffer.0.get_mut(..write.length_bytes as usize);
    bytes.is_some_and(|bytes| fill(bytes) && to.write_plainly(target, bytes))
}

/// True if the engine moves. A host that refuses accesses is found at the access.
#[inline]
fn moves(engine: &RdmaEngine, memory: &DmaSpace) -> bool {
    engine.stall != Stall::Yes && memory.is_bus_master()
}

impl RdmaEngine {
    /// The way of the packet that leaves next as it was last found, if it may be delivered
    /// directly; see [`deliver`].
    #[inline]
    pub(crate) fn direct_way(&mut self, memory: &DmaSpace) -> Option<Way> {
        if !moves(self, memory) || !self.objects.notifications.is_empty() {
            return None;
        }
        let stamp = (memory.generation(), self.objects.hmc.generation());
        if self.schedule.has_several() {
            self.pass_quiet(stamp);
        }
        let qp = self.front()?;
        let leaves = match &qp.responder {
            Some(responder) if responder.has_packet() => responder.acknowledges(),
            _ => qp.requester.as_ref()?.is_at_short_write(),
        };
        (leaves && qp.is_resolved(stamp)).then_some(qp.way)
    }

    /// The lower layers of the packet that leaves next; `None` if its destination has no MAC
    /// address, or its packets carry the mark of congestion.
    pub(crate) fn direct_path(&self) -> Option<Path> {
        let qp = self.front()?;
        let path = qp.path(self.objects.arp.get(qp.context.arp_index)?);
        (!path.network.is_marked()).then_some(path)
    }

    /// Keeps the way of the packet that leaves next.
    pub(crate) fn keep_way(&mut self, way: Way) {
        let front = self.schedule.front();
        let found = front.and_then(|number| self.queue_pairs.get_mut(number as usize));
        if let Some(Some(qp)) = found {
            qp.way = way;
        }
    }

    /// Grows with every change of an address that packets are sent to, the settings of queue pairs
    /// aside: those make it forget its way.
    #[inline]
    pub(crate) fn address_changes(&self) -> u64 {
        self.objects.arp.changes()
    }

    /// The queue pair whose packet leaves next.
    #[inline]
    fn front(&self) -> Option<&QueuePair> {
        let number = self.schedule.front()?;
        self.queue_pairs.get(number as usize)?.as_deref()
    }
}

/// Delivers the next packets of `sender`, `most` at most, to the engine at the end of their way:
/// short writes of one length, or an acknowledgement. `None` if nothing was delivered.
pub(crate) fn deliver(
    (sender, sending): (&mut RdmaEngine, &mut Context<'_>),
    (receiver, receiving): (&mut RdmaEngine, &mut Context<'_>),
    most: u32,
) -> Option<Delivered> {
    if !moves(receiver, receiving.memory) || !receiver.receive_enabled {
        return None;
    }
    let number = sender.schedule.front()?;
    let qp = sender
        .queue_pairs
        .get_mut(number as usize)?
        .as_deref_mut()?;
    let answers = qp.responder.as_ref().is_some_and(Responder::has_packet);
    let target = match &qp.responder {
        Some(responder) if answers => responder.peer(),
        _ => qp.requester.as_ref()?.peer().0,
    };
    // Of several queue pairs each has its turn.
    let several = sender.schedule.has_several();
    let stamp = (
        receiving.memory.generation(),
        receiver.objects.hmc.generation(),
    );
    let peer = connected(&mut receiver.queue_pairs, target, qp.network(), stamp)?;
    let (packets, kind, payload_bytes) = if answers {
        let mut active = ActiveQueuePair {
            qp: &mut *peer,
            objects: &mut receiver.objects,
            context: receiving,
        };
        acknowledge(qp, &mut active)?;
        (1, ExtensionKind::Acknowledge, 0)
    } else {
        let from = End {
            stamp: (sending.memory.generation(), sender.objects.hmc.generation()),
            qp: &mut *qp,
            objects: &mut sender.objects,
            memory: sending.memory,
        };
        let to = End {
            stamp,
            qp: &mut *peer,
            objects: &mut receiver.objects,
            memory: receiving.memory,
        };
        let in_turn = if several { 1 } else { most };
        let (packets, length) = write(from, to, sending.now, in_turn)?;
        (packets, ExtensionKind::Remote, length)
    };
    let wire_bytes = wire_length(qp.lower_layers(), kind, payload_bytes as usize);
    let bytes = u64::from(packets) * wire_bytes as u64;
    let (sent, received) = (&mut sender.objects.counters, &mut receiver.objects.counters);
    sent.count_sent_many(qp.network(), packets.into(), bytes);
    received.count_received_many(qp.network(), packets.into(), bytes);
    if several {
        sender.schedule.end_turn();
    } else if packets < most {
        sender.schedule.rest_if_quiet(qp, sender.page.is_some());
    }
    receiver.schedule.wake(peer);
    Some(Delivered {
        packets,
        wire_bytes,
    })
}

/// The queue pair `number`, if it is connected to the sender of packets with the header `network`
/// and its memory is known.
fn connected<'a>(
    queue_pairs: &'a mut [Option<Box<QueuePair>>],
    number: QpNumber,
    network: &Network,
    stamp: (u64, u64),
) -> Option<&'a mut QueuePair> {
    let number = number.value();
    let qp = queue_pairs.get_mut(number as usize)?.as_deref_mut()?;
    let usable = number != MULTICAST_QP && qp.is_resolved(stamp) && qp.is_from_peer(network);
    usable.then_some(qp)
}

/// Moves writes of one length between the memories, and returns their number and length.
fn write(from: End<'_>, to: End<'_>, now: Instant, most: u32) -> Option<(u32, u32)> {
    if !to.qp.receives() || !to.qp.context.write_and_read_response_ok {
        return None;
    }
    let (_, partition_key) = from.qp.requester.as_ref().map(Requester::peer)?;
    let (mut packets, mut length) = (0, 0);
    while packets < most {
        let Some(write) = from.qp.requester.as_ref().and_then(Requester::short_write) else {
            break;
        };
        if write.length_bytes as usize > MAX_INLINE_BYTES {
            break;
        }
        let is_taken = to.qp.responder.as_ref().is_some_and(|responder| {
            responder.takes_short_write(partition_key, write.psn, write.length_bytes)
        });
        let place = (write.address, write.length_bytes);
        let target = to.granted(write.key, place, REMOTE_WRITE);
        let (true, Some(target)) = (is_taken, target) else {
            break;
        };
        let same = packets == 0 || write.length_bytes == length;
        if !same || !from.move_payload(&write, to.memory, target) {
            break;
        }
        if let Some(requester) = &mut from.qp.requester {
            requester.sent_short_write(now);
        }
        if let Some(responder) = &mut to.qp.responder {
            responder.took_short_write();
        }
        length = write.length_bytes;
        packets += 1;
    }
    to.objects.counters.writes_received += u64::from(packets);
    (packets > 0).then_some((packets, length))
}

/// Hands the acknowledgement of `qp` to the requester that waits for it.
fn acknowledge(qp: &mut QueuePair, peer: &mut ActiveQueuePair<'_, '_>) -> Option<()> {
    if peer.qp.stopped || peer.qp.requester.is_none() {
        return None;
    }
    let (psn, partition_key) = qp.responder.as_mut()?.take_acknowledgement()?;
    peer.acknowledged(psn, partition_key);
    Some(())
}
