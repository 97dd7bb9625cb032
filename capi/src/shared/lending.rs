//! Shared receive queues: the library receives, and copies each message.
//!
//! The card has no shared receive queue, and a receive that a queue pair was given cannot be taken
//! back. Receives given to queue pairs that get no more messages would be missing elsewhere, and a
//! program that posts as many receives as messages come would wait for ever. So each queue pair has
//! places in memory of the library, and a receive of the program is used when a message is there.
//!
//! A sole queue pair has no more places than receives are posted: a peer that sends more finds no
//! receive, as on a card with shared receive queues. With several, one may get more messages than
//! receives are posted for all; they wait in its places. A queue pair that stays behind alone keeps
//! the places that it had beside others until they are used.

use super::places::{Places, Wanted, limits};
use crate::cancel::Uncancelled;
use crate::device::Port;
use crate::errno;
use ringside_pmd::rdma::{
    Completion, CompletionQueue, Fragment, Operation, Place, ProtectionDomain, QueuePair,
    RdmaError, ResetError, Resettable, SharedReceiveQueue,
};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::verbs::status::FlushCode;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;

/// A message in a place, for which no receive was posted yet.
pub(crate) struct Message {
    completion: Completion,
    /// that of the places
    generation: u64,
}

struct Member {
    is_datagram: bool,
    places: Option<Places>,
}

/// The receives of a shared receive queue, and the places of its queue pairs.
pub(crate) struct Receives {
    pub(crate) queue: SharedReceiveQueue,
    /// receives that can be posted
    receives: u32,
    domain: ProtectionDomain,
    members: BTreeMap<u32, Member>,
    /// bytes of the longest receive posted so far; `None` before the first
    longest: Option<usize>,
    generation: u64,
    /// completion queues with messages for which no receive was posted yet, by address
    waiting: Vec<usize>,
}

/// The result of delivering a message.
enum Delivered {
    Done(Completion),
    /// no receive is posted: it stays in its place
    Waits,
    /// its queue pair was reset or destroyed, or it is a datagram that the receive has no room for
    Gone,
}

impl Receives {
    pub(crate) fn new(queue: SharedReceiveQueue, receives: u32, domain: ProtectionDomain) -> Self {
        Self {
            queue,
            receives,
            domain,
            members: BTreeMap::new(),
            longest: None,
            generation: 0,
            waiting: Vec::new(),
        }
    }

    /// Notes the length of a receive that the program is about to post. With the first one, the
    /// queue pairs that there are by then get places: their size is known only now.
    ///
    /// Errors: an errno value; the receive is not to be posted.
    #[inline]
    pub(crate) fn note_length(&mut self, port: &Port, fragments: &[Fragment]) -> Result<(), c_int> {
        let bytes = fragments
            .iter()
            .map(|piece| piece.length_bytes as usize)
            .sum();
        if self.longest.is_some_and(|longest| bytes <= longest) {
            return Ok(());
        }
        self.note_longer(port, bytes)
    }

    #[cold]
    fn note_longer(&mut self, port: &Port, bytes: usize) -> Result<(), c_int> {
        // It registers memory, in a call of the data path.
        let _call = Uncancelled::new();
        let is_first = self.longest.is_none();
        self.longest = Some(bytes);
        if is_first {
            if let Err(error) = self.begin_if_due(port) {
                // The receive is not posted: the next one is the first.
                self.longest = None;
                return Err(error);
            }
            self.lend_all();
        } else if bytes > limits(port).place_bytes(self.receives) && self.queue.is_lending() {
            tracing::warn!(
                bytes,
                "receives of a shared receive queue became longer: messages longer than the first \
                 receives and {} bytes will fail. Post one of the longest receives first",
                limits(port).place_bytes(self.receives)
            );
        }
        Ok(())
    }

    /// Gives all queue pairs places, unless receives are too long to be copied.
    fn begin_if_due(&mut self, port: &Port) -> Result<(), c_int> {
        let is_due = self
            .longest
            .is_some_and(|longest| longest <= limits(port).longest);
        if !is_due && !self.queue.is_lending() {
            return Ok(());
        }
        for number in self.members.keys().copied().collect::<Vec<_>>() {
            self.give_places(port, number)?;
        }
        self.queue.begin_lending();
        Ok(())
    }

    /// Gives the queue pair places, if it has none.
    fn give_places(&mut self, port: &Port, number: u32) -> Result<(), c_int> {
        self.generation += 1;
        let Some(member) = self.members.get(&number) else {
            return Ok(());
        };
        if member.places.is_some() {
            return Ok(());
        }
        let wanted = Wanted {
            receives: self.receives,
            longest: self.longest.unwrap_or_default(),
            is_datagram: member.is_datagram,
        };
        let places = Places::make(port, &self.domain, wanted, self.generation)?;
        if let Some(member) = self.members.get_mut(&number) {
            member.places = Some(places);
        }
        Ok(())
    }

    /// Attaches a queue pair.
    pub(crate) fn attach<S>(
        &mut self,
        pair: &mut QueuePair<S>,
        port: &Port,
        is_datagram: bool,
    ) -> Result<(), c_int> {
        let number = pair.number();
        let places = None;
        self.members.insert(
            number,
            Member {
                is_datagram,
                places,
            },
        );
        let attached = self.attach_member(pair, port);
        if attached.is_err() {
            self.members.remove(&number);
        }
        attached
    }

    fn attach_member<S>(&mut self, pair: &mut QueuePair<S>, port: &Port) -> Result<(), c_int> {
        self.begin_if_due(port)?;
        self.queue.attach(pair).map_err(|error| errno::of(&error))?;
        self.lend_all();
        Ok(())
    }

    fn lend_all(&mut self) {
        for number in self.members.keys().copied().collect::<Vec<_>>() {
            self.lend(number);
        }
    }

    fn lend(&mut self, number: u32) {
        let most = self.most_places();
        if let Some(member) = self.members.get_mut(&number)
            && let Some(places) = &mut member.places
        {
            places.lend(number, &mut self.queue, most);
        }
    }

    /// The places that a queue pair may have.
    fn most_places(&self) -> usize {
        match self.members.len() {
            1 => self.queue.left() as usize,
            _ => usize::MAX,
        }
    }

    /// Lends a sole queue pair a place for each receive that was posted.
    pub(crate) fn lend_to_sole(&mut self) {
        if self.queue.is_lending()
            && self.members.len() == 1
            && let Some(number) = self.members.keys().next().copied()
        {
            self.lend(number);
        }
    }

    /// Destroys a queue pair; its places are freed.
    pub(crate) fn destroy<S>(&mut self, pair: QueuePair<S>) -> Result<usize, RdmaError> {
        let number = pair.number();
        let gone = self.queue.destroy(pair);
        // After the queue pair: the device may write there as long as that exists.
        self.members.remove(&number);
        gone
    }

    /// Takes a queue pair back to its first state. Messages that no receive was posted for are
    /// lost with its connection.
    pub(crate) fn reset<S: Resettable>(
        &mut self,
        pair: QueuePair<S>,
    ) -> Result<QueuePair<S::After>, ResetError<S>> {
        let number = pair.number();
        let made = self.queue.reset(pair);
        match &made {
            Ok(_) => {
                self.generation += 1;
                if let Some(member) = self.members.get_mut(&number)
                    && let Some(places) = &mut member.places
                {
                    places.idle = (0..places.count as u64).rev().collect();
                    places.generation = self.generation;
                }
                self.lend(number);
            }
            Err(refused) if !refused.still_exists() => drop(self.members.remove(&number)),
            Err(_) => {}
        }
        made
    }

    /// Polls a completion queue; returns the number of completions. Messages for which no receive
    /// is posted go to `held`.
    pub(crate) fn poll(
        &mut self,
        port: &Port,
        queue: &mut CompletionQueue,
        held: &mut VecDeque<Message>,
        batch: &mut [Completion],
    ) -> usize {
        if !self.queue.is_lending() {
            return self.queue.poll(queue, batch).len();
        }
        let mut count = 0;
        while let Some(room) = batch.get_mut(count) {
            match self.next(port, queue, held) {
                Some(done) => *room = done,
                None => break,
            }
            count += 1;
        }
        count
    }

    fn next(
        &mut self,
        port: &Port,
        queue: &mut CompletionQueue,
        held: &mut VecDeque<Message>,
    ) -> Option<Completion> {
        if let Some(done) = self.take_held(port, held) {
            return Some(done);
        }
        let mut done = Completion::EMPTY;
        while queue.poll_one(&mut done) {
            if let Some(done) = self.accept(port, queue, done, held) {
                return Some(done);
            }
        }
        self.queue.take_flushed()
    }

    /// The oldest message that waited, if there is a receive for it now.
    pub(crate) fn take_held(
        &mut self,
        port: &Port,
        held: &mut VecDeque<Message>,
    ) -> Option<Completion> {
        while let Some(message) = held.front() {
            match self.deliver(port, message) {
                Delivered::Waits => break,
                Delivered::Gone => drop(held.pop_front()),
                Delivered::Done(done) => {
                    held.pop_front();
                    return Some(done);
                }
            }
        }
        None
    }

    /// Takes a completion of a queue pair that it feeds, which was polled from `queue`; returns the
    /// one for the program. A message for which no receive is posted goes to `held`.
    pub(crate) fn accept(
        &mut self,
        port: &Port,
        queue: &CompletionQueue,
        done: Completion,
        held: &mut VecDeque<Message>,
    ) -> Option<Completion> {
        let (completion, place) = self.queue.accept(queue, done)?;
        if place == Place::Posted {
            if !completion.is_send() {
                self.lend(completion.queue_pair());
            }
            return Some(completion);
        }
        let member = self.members.get(&completion.queue_pair());
        let generation = member.and_then(|member| member.places.as_ref())?.generation;
        let message = Message {
            completion,
            generation,
        };
        // Messages are held only while no receive is left, so this one overtakes none.
        match self.deliver(port, &message) {
            Delivered::Done(done) => return Some(done),
            Delivered::Waits => held.push_back(message),
            Delivered::Gone => {}
        }
        None
    }

    /// Copies a message to where the oldest receive wants it, and lends its place again.
    fn deliver(&mut self, port: &Port, message: &Message) -> Delivered {
        let number = message.completion.queue_pair();
        let Some(member) = self.members.get_mut(&number) else {
            return Delivered::Gone;
        };
        let places = member.places.as_mut();
        let Some(places) = places.filter(|places| places.generation == message.generation) else {
            return Delivered::Gone;
        };
        let bytes = message.completion.byte_length();
        // A card drops such a datagram and keeps the receive: its sender is not to stop the queue
        // pair.
        let is_dropped = member.is_datagram
            && message.completion.is_success()
            && self.queue.room().is_some_and(|room| room < bytes.into());
        if is_dropped {
            places.free(message.completion.id, bytes as usize);
            self.lend(number);
            return Delivered::Gone;
        }
        let domain = self.domain.number();
        let mut failure = None;
        let taken = self.queue.take_for(|id, fragments| {
            let copied = copy(port, domain, places, &message.completion, fragments);
            match copied {
                Ok(()) => {
                    let mut done = message.completion;
                    done.id = id;
                    done
                }
                Err((reason, code)) => {
                    failure = Some(code);
                    Completion::failed_receive(number, id, reason)
                }
            }
        });
        let Some(done) = taken else {
            return Delivered::Waits;
        };
        if let Some(code) = failure {
            // It waits for the device, in a call of the data path.
            let _call = Uncancelled::new();
            if let Err(error) = self.queue.fail(number, code) {
                tracing::warn!(number, %error, "a queue pair whose message did not fit is not stopped");
            }
        }
        places.free(message.completion.id, bytes as usize);
        self.lend(number);
        Delivered::Done(done)
    }

    /// A completion queue was polled. While it has messages for which no receive was posted, it is
    /// to be told of posts.
    #[inline]
    pub(crate) fn set_waiting(&mut self, queue: usize, had_waited: bool, waits: bool) {
        match waits {
            true if !self.waiting.contains(&queue) => self.waiting.push(queue),
            false if had_waited => self.forget(queue),
            _ => {}
        }
    }

    /// A completion queue has no queue pairs of this shared receive queue any more.
    pub(crate) fn forget(&mut self, queue: usize) {
        self.waiting.retain(|waiting| *waiting != queue);
    }

    /// Takes the list of completion queues that wait for receives.
    pub(crate) fn take_waiting(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.waiting)
    }
}

/// Copies a message into the program's memory.
///
/// Errors: the reason with which the receive fails, and the card's code for it.
fn copy(
    port: &Port,
    domain: u32,
    places: &Places,
    message: &Completion,
    fragments: &[Fragment],
) -> Result<(), (FlushCode, AeCode)> {
    // Data of a write lies where the peer wrote it; a failed message has none.
    if !message.is_success() || message.operation() != Operation::Receive {
        return Ok(());
    }
    let mut rest = message.byte_length() as usize;
    let mut from = message.id as usize * places.bytes;
    let room: usize = fragments
        .iter()
        .map(|piece| piece.length_bytes as usize)
        .sum();
    if rest > room {
        return Err((FlushCode::LocalLength, AeCode::MessageTooLong));
    }
    for piece in fragments {
        let bytes = rest.min(piece.length_bytes as usize);
        if bytes == 0 {
            continue;
        }
        let copied = port.reaches.write(domain, piece, bytes, |into| {
            // SAFETY: the program registered this memory for writing, and promised with the receive
            // that it leaves it alone until the completion. It stays registered meanwhile.
            let into = unsafe { std::slice::from_raw_parts_mut(into as *mut u8, bytes) };
            places.region.read(from, into)
        });
        match copied {
            Some(true) => {}
            Some(false) => {
                return Err((FlushCode::LocalOperation, AeCode::QueuePairCatastrophic));
            }
            None => return Err((FlushCode::LocalProtection, AeCode::BoundsViolation)),
        }
        (from, rest) = (from + bytes, rest - bytes);
    }
    Ok(())
}
