//! Short writes and their acknowledgements from one function's queue pair to another's, without a
//! packet in between.
//!
//! Everything that a packet would change is changed: sequence numbers, statistics, timers, memory.
//! All checks come before the first change. Where one of them fails, nothing has happened, and the
//! way of all packets finds the reason again and deals with it.

use super::objects::Objects;
use super::objects::queue_pair::QueuePair;
use super::queues::ActiveQueuePair;
use super::queues::{LOCAL_READ, REMOTE_WRITE};
use super::stall::Stall;
use super::{MULTICAST_QP, RdmaEngine};
use crate::chip::Context;
use crate::frame::{MAX_INLINE_BYTES, wire_length};
use crate::packet::{ExtensionKind, Path, QpNumber};
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

    /// Copies the payload of a write to `into`; false if that is not simple.
    #[inline]
    fn gather(&self, write: &ShortWrite, into: &mut [u8]) -> bool {
        let work = self.qp.work_at(write.token);
        if let Some(piece) = &work.single {
            let bytes = (piece.address, piece.length_bytes);
            let at = self.granted(piece.steering_tag, bytes, LOCAL_READ);
            return at.is_some_and(|at| self.memory.read_plainly(at, into));
        }
        let words = self.qp.send.read(work.index.into(), work.quanta.into());
        SendElement::new(words.as_slice()).is_ok_and(|element| {
            element.header().inline()
                && element.header().inline_length_bytes() == u64::from(write.length_bytes)
                && element.copy_inline(into) == into.len()
        })
    }
}

/// True if the engine moves. A host that refuses accesses is found at the access.
#[inline]
fn moves(engine: &RdmaEngine, memory: &DmaSpace) -> bool {
    engine.stall != Stall::Yes && memory.is_bus_master()
}

impl RdmaEngine {
    /// The lower layers of the packet that leaves next, if it may be delivered directly; see
    /// [`deliver`].
    #[inline]
    pub(crate) fn direct_path(&mut self, memory: &DmaSpace) -> Option<Path> {
        if !moves(self, memory) || !self.objects.notifications.is_empty() {
            return None;
        }
        let stamp = (memory.generation(), self.objects.hmc.generation());
        if self.schedule.has_several() {
            self.pass_quiet(stamp);
        }
        let number = self.schedule.front()?;
        let qp = self.queue_pairs.get(number as usize)?.as_deref()?;
        let leaves = match &qp.responder {
            Some(responder) if responder.has_packet() => responder.acknowledges(),
            _ => qp.requester.as_ref()?.short_write().is_some(),
        };
        if !leaves || !qp.is_resolved(stamp) {
            return None;
        }
        let arp = self.objects.arp.get(usize::from(qp.context.arp_index));
        let path = qp.path(arp.copied().flatten()?);
        (!path.network.is_marked()).then_some(path)
    }
}

/// Delivers the next packets of `sender`, `most` at most, which go along `path`: short writes of
/// one length, or an acknowledgement. `None` if nothing was delivered.
pub(crate) fn deliver(
    (sender, sending): (&mut RdmaEngine, &mut Context<'_>),
    (receiver, receiving): (&mut RdmaEngine, &mut Context<'_>),
    path: &Path,
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
    let stamp = (
        receiving.memory.generation(),
        receiver.objects.hmc.generation(),
    );
    let peer = connected(&mut receiver.queue_pairs, target, path, stamp)?;
    let (packets, kind, payload_bytes) = if answers {
        let mut active = ActiveQueuePair {
            qp: peer,
            objects: &mut receiver.objects,
            context: receiving,
        };
        acknowledge(qp, &mut active)?;
        (1, ExtensionKind::Acknowledge, 0)
    } else {
        let from = End {
            stamp: (sending.memory.generation(), sender.objects.hmc.generation()),
            qp,
            objects: &mut sender.objects,
            memory: sending.memory,
        };
        let to = End {
            stamp,
            qp: peer,
            objects: &mut receiver.objects,
            memory: receiving.memory,
        };
        // Of several queue pairs each has its turn.
        let in_turn = if sender.schedule.has_several() {
            1
        } else {
            most
        };
        let (packets, length) = write(from, to, sending.now, in_turn)?;
        (packets, ExtensionKind::Remote, length)
    };
    let wire_bytes = wire_length(path, kind, payload_bytes as usize);
    let bytes = u64::from(packets) * wire_bytes as u64;
    let (sent, received) = (&mut sender.objects.counters, &mut receiver.objects.counters);
    sent.count_sent_many(&path.network, packets.into(), bytes);
    received.count_received_many(&path.network, packets.into(), bytes);
    if packets < most {
        sender.rest_if_quiet();
    }
    sender.schedule.end_turn();
    receiver.wake(target.value());
    Some(Delivered {
        packets,
        wire_bytes,
    })
}

/// The queue pair `number`, if it is connected to the sender of `path` and its memory is known.
fn connected<'a>(
    queue_pairs: &'a mut [Option<Box<QueuePair>>],
    number: QpNumber,
    path: &Path,
    stamp: (u64, u64),
) -> Option<&'a mut QueuePair> {
    let number = number.value();
    let qp = queue_pairs.get_mut(number as usize)?.as_deref_mut()?;
    let usable = number != MULTICAST_QP && qp.is_resolved(stamp) && qp.is_from_peer(&path.network);
    usable.then_some(qp)
}

/// Moves writes of one length between the memories, and returns their number and length.
fn write(from: End<'_>, to: End<'_>, now: Instant, most: u32) -> Option<(u32, u32)> {
    if !to.qp.receives() || !to.qp.context.write_and_read_response_ok {
        return None;
    }
    let (_, partition_key) = from.qp.requester.as_ref().map(Requester::peer)?;
    let mut buffer = Buffer([0; MAX_INLINE_BYTES]);
    let (mut packets, mut length) = (0, 0);
    while packets < most {
        let Some(write) = from.qp.requester.as_ref().and_then(Requester::short_write) else {
            break;
        };
        let Some(bytes) = buffer.0.get_mut(..write.length_bytes as usize) else {
            break;
        };
        let is_taken = to.qp.responder.as_ref().is_some_and(|responder| {
            responder.takes_short_write(partition_key, write.psn, write.length_bytes)
        });
        let place = (write.address, write.length_bytes);
        let target = to.granted(write.key, place, REMOTE_WRITE);
        let (true, Some(target)) = (is_taken, target) else {
            break;
        };
        let same = packets == 0 || write.length_bytes == length;
        if !same || !from.gather(&write, bytes) || !to.memory.write_plainly(target, bytes) {
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
    let responder = qp.responder.as_mut().filter(|one| one.acknowledges())?;
    let packet = responder.next_packet()?;
    peer.acknowledged(&packet.headers);
    Some(())
}
