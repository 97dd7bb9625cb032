//! The queue pair of a datagram socket with its memory: posts, completions, address handles.
//!
//! A datagram is one message, all of it the program's bytes. Its immediate data has the sender's
//! port and its mark; the sender's address is in the network header that comes with it.

use crate::abi::{
    ibv_ah, ibv_comp_channel, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
    ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, kind, mask, request, send_flags, state, status,
    wc_flags,
};
use crate::address::{RouteBytes, ibv_destroy_ah, route_of};
use crate::channel::last_error;
use crate::cm::datagrams::{self, Service};
use crate::completion::{ibv_create_cq, ibv_destroy_cq, poll_cq};
use crate::completion_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::completion_events::{ibv_ack_cq_events, ibv_get_cq_event, req_notify_cq};
use crate::modify::ibv_modify_qp;
use crate::post::{post_recv, post_send};
use crate::queue_pair::{ibv_create_qp, ibv_destroy_qp};
use crate::rsocket::link::Sizes;
use crate::rsocket::memory::Buffer;
use ringside_pmd::rdma::address::MacAddress;
use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

/// Bytes of the network header before a datagram.
const ROUTE_BYTES: u32 = 40;
/// Bytes of memory for each datagram that is received: the longest packet of any peer, whose path
/// MTU may be another one.
const SLOT_BYTES: u32 = ROUTE_BYTES + 4096;
/// Requests of a receive have this bit in their number.
const RECEIVE: u64 = 1 << 63;
/// Completions that are taken at a time.
const BATCH: usize = 16;
/// Address handles of one socket: a device has a few hundred.
const MAX_HANDLES: usize = 64;
/// The upper half of the Q_Keys of sockets; the lower one is the mark of the socket. The highest
/// bit is for privileged queue pairs.
const KEY: u32 = 0x5253_0000;

/// A datagram that has arrived and was not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    slot: u32,
    pub(super) length: u32,
    pub(super) from: SocketAddr,
    /// the sender's queue pair
    pub(super) service: Service,
}

/// A queue pair for datagrams. Only used under the socket's lock.
pub(super) struct Pair {
    channel: *mut ibv_comp_channel,
    queue: *mut ibv_cq,
    pair: *mut ibv_qp,
    handles: HashMap<IpAddr, (MacAddress, *mut ibv_ah)>,
    /// handles to MAC addresses that peers had before: requests under way may name them
    former: Vec<*mut ibv_ah>,
    send_buffer: Buffer,
    receive_buffer: Buffer,
    /// bytes of the longest datagram that may be sent
    pub(super) longest: u32,
    inline_bytes: u32,
    mark: u16,
    /// parts of the send buffer that no request uses
    free: Vec<u32>,
    sends: usize,
    is_armed: bool,
}

/// A mark that other sockets have by chance only: a datagram for a queue pair number that was used
/// before by another socket carries another Q_Key, and the device drops it.
fn new_mark() -> u16 {
    let mut bytes = [0; 2];
    // SAFETY: two bytes are written to a live value.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u16::from_ne_bytes(bytes)
}

fn key_of(mark: u16) -> u32 {
    KEY | u32::from(mark)
}

impl Pair {
    /// Makes a queue pair that receives. Errors: an errno value.
    pub(super) fn make(sizes: &Sizes) -> Result<Self, c_int> {
        let (context, domain) = datagrams::shared()?;
        let longest = datagrams::longest()?;
        let (sends, receives) = (u32::from(sizes.send_requests), u32::from(sizes.receives));
        // SAFETY: the context and the domain stay until the process ends.
        let mut made = unsafe {
            let send_buffer = Buffer::make(domain, (sends * longest) as usize, false)?;
            let receive_buffer = Buffer::make(domain, (receives * SLOT_BYTES) as usize, false)?;
            let channel = ibv_create_comp_channel(context);
            if channel.is_null() {
                return Err(last_error());
            }
            libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
            Self {
                channel,
                queue: std::ptr::null_mut(),
                pair: std::ptr::null_mut(),
                handles: HashMap::new(),
                former: Vec::new(),
                send_buffer,
                receive_buffer,
                longest,
                inline_bytes: 0,
                mark: new_mark(),
                free: (0..sends).rev().collect(),
                sends: sends as usize,
                is_armed: false,
            }
        };
        let entries = (sends + receives) as c_int;
        let nothing = std::ptr::null_mut();
        // SAFETY: the context is open; the channel was just made.
        made.queue = unsafe { ibv_create_cq(context, entries, nothing, made.channel, 0) };
        if made.queue.is_null() {
            return Err(last_error());
        }
        let mut init = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: made.queue,
            recv_cq: made.queue,
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: sizes.inline_bytes,
            },
            qp_type: kind::UD,
            sq_sig_all: 1,
        };
        // SAFETY: the domain; live attributes.
        made.pair = unsafe { ibv_create_qp(domain, &raw mut init) };
        if made.pair.is_null() {
            return Err(last_error());
        }
        made.inline_bytes = init.cap.max_inline_data.min(sizes.inline_bytes);
        made.start()?;
        for slot in 0..receives {
            made.post_receive(slot)?;
        }
        Ok(made)
    }

    /// Brings the new queue pair to the state in which it sends and receives.
    fn start(&self) -> Result<(), c_int> {
        // SAFETY: numbers: all zero is a value.
        let mut wanted: ibv_qp_attr = unsafe { std::mem::zeroed() };
        wanted.port_num = 1;
        wanted.qkey = key_of(self.mark);
        let first = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY;
        let steps = [
            (state::INIT, first),
            (state::RTR, mask::STATE),
            (state::RTS, mask::STATE | mask::SQ_PSN),
        ];
        for (step, given) in steps {
            wanted.qp_state = step;
            // SAFETY: the queue pair that was just made; live attributes.
            match unsafe { ibv_modify_qp(self.pair, &raw mut wanted, given) } {
                0 => {}
                error => return Err(error),
            }
        }
        Ok(())
    }

    /// The service that peers are told of.
    pub(super) fn service(&self) -> Service {
        Service {
            // SAFETY: the queue pair lives as long as this.
            queue_pair: unsafe { (*self.pair).qp_num },
            queue_key: key_of(self.mark),
        }
    }

    fn post_receive(&self, slot: u32) -> Result<(), c_int> {
        let mut part = ibv_sge {
            addr: self.receive_buffer.address() + u64::from(slot * SLOT_BYTES),
            length: SLOT_BYTES,
            lkey: self.receive_buffer.local_key(),
        };
        let mut wanted = ibv_recv_wr {
            wr_id: RECEIVE | u64::from(slot),
            next: std::ptr::null_mut(),
            sg_list: &raw mut part,
            num_sge: 1,
            padding: 0,
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: the own queue pair; a live request of registered memory.
        match unsafe { post_recv(self.pair, &raw mut wanted, &raw mut refused) } {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// True if a datagram may be posted.
    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// True if nothing is on its way out.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.sends
    }

    /// The address handle to a peer. Nothing while it cannot be made: its MAC address is being
    /// asked for, or all handles are in use. Errors: an errno value.
    pub(super) fn handle(
        &mut self,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<Option<*mut ibv_ah>, c_int> {
        if let Some((_, known)) = self.handles.get(&remote) {
            return Ok(Some(*known));
        }
        if self.handles.len() + self.former.len() >= MAX_HANDLES {
            // A handle is destroyed once the requests that name it are complete.
            if !self.is_idle() {
                return Ok(None);
            }
            self.forget_handles();
        }
        let Some((mac, made)) = datagrams::handle_to(local, remote)? else {
            return Ok(None);
        };
        self.handles.insert(remote, (mac, made));
        Ok(Some(made))
    }

    /// A peer has this MAC address now. If it had another one before, the next datagram gets a new
    /// handle.
    pub(super) fn follow(&mut self, remote: IpAddr, present: MacAddress) {
        if let Some((known, handle)) = self.handles.get(&remote)
            && *known != present
        {
            self.former.push(*handle);
            self.handles.remove(&remote);
        }
    }

    fn forget_handles(&mut self) {
        let known = self.handles.drain().map(|(_, (_, handle))| handle);
        for handle in known.chain(self.former.drain(..)) {
            // SAFETY: made for this socket; no request names it any more.
            unsafe { ibv_destroy_ah(handle) };
        }
    }

    /// Sends pieces as one datagram of `length` bytes, at most the longest. One may be posted.
    ///
    /// # Safety
    /// The pieces are memory of the program, `length` bytes altogether; `handle` is of this pair.
    pub(super) unsafe fn send(
        &mut self,
        pieces: &[(*mut u8, usize)],
        length: u32,
        (handle, to): (*mut ibv_ah, Service),
        own_port: u16,
    ) -> Result<(), c_int> {
        let slot = *self.free.last().ok_or(libc::EAGAIN)?;
        let mut place = slot * self.longest;
        let mut part = ibv_sge {
            addr: self.send_buffer.address() + u64::from(place),
            length,
            lkey: self.send_buffer.local_key(),
        };
        for (start, bytes) in pieces.iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: the caller's promise.
            unsafe { self.send_buffer.fill(place, *start, *bytes) };
            place += *bytes as u32;
        }
        let is_inline = length > 0 && length <= self.inline_bytes;
        let immediate = u32::from(own_port) << 16 | u32::from(self.mark);
        let mut wanted = ibv_send_wr {
            wr_id: slot.into(),
            next: std::ptr::null_mut(),
            sg_list: &raw mut part,
            num_sge: c_int::from(length > 0),
            opcode: request::SEND_WITH_IMM,
            send_flags: if is_inline { send_flags::INLINE } else { 0 },
            imm_data: immediate.to_be(),
            wr: [
                handle as u64,
                u64::from(to.queue_key) << 32 | u64::from(to.queue_pair),
                0,
                0,
            ],
            qp_type: 0,
            padding: 0,
            rest: [0; 6],
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: the own queue pair; a live request of registered memory.
        match unsafe { post_send(self.pair, &raw mut wanted, &raw mut refused) } {
            0 => {
                self.free.pop();
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Takes completions: adds what has arrived. Errors: an errno value, if the queue pair failed.
    pub(super) fn poll(&mut self, into: &mut impl Extend<Arrived>) -> Result<(), c_int> {
        loop {
            // SAFETY: numbers: all zero is a value.
            let mut done: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: the own queue; room for a batch.
            let count = unsafe { poll_cq(self.queue, BATCH as c_int, done.as_mut_ptr()) };
            let taken = done.get(..usize::try_from(count).unwrap_or(0));
            for completion in taken.unwrap_or_default() {
                let slot = completion.wr_id as u32;
                if completion.wr_id & RECEIVE == 0 {
                    self.free.push(slot);
                }
                if completion.status != status::SUCCESS {
                    return Err(libc::EIO);
                }
                if completion.wr_id & RECEIVE != 0 {
                    match self.arrived(completion, slot) {
                        Some(arrived) => into.extend([arrived]),
                        None => self.post_receive(slot)?,
                    }
                }
            }
            if count < BATCH as c_int {
                return Ok(());
            }
        }
    }

    /// A datagram of a socket; nothing for messages of others.
    fn arrived(&self, completion: &ibv_wc, slot: u32) -> Option<Arrived> {
        let wanted = wc_flags::GRH | wc_flags::WITH_IMM;
        if completion.wc_flags & wanted != wanted {
            return None;
        }
        let length = completion.byte_len.checked_sub(ROUTE_BYTES)?;
        let mut header: RouteBytes = [0; ROUTE_BYTES as usize];
        let place = slot * SLOT_BYTES;
        // SAFETY: live room for that many bytes.
        unsafe {
            self.receive_buffer
                .read(place, header.as_mut_ptr(), header.len());
        }
        let immediate = u32::from_be(completion.imm_data);
        let port = (immediate >> 16) as u16;
        let source = route_of(&header)?.source;
        Some(Arrived {
            slot,
            length,
            from: SocketAddr::new(source, port),
            service: Service {
                queue_pair: completion.src_qp,
                queue_key: key_of(immediate as u16),
            },
        })
    }

    /// Copies the beginning of a datagram into the pieces, as much as they take. Returns how many
    /// bytes.
    ///
    /// # Safety
    /// The pieces are memory of the program.
    pub(super) unsafe fn copy(&self, from: &Arrived, pieces: &[(*mut u8, usize)]) -> usize {
        let mut place = from.slot * SLOT_BYTES + ROUTE_BYTES;
        let mut left = from.length as usize;
        for (start, room) in pieces {
            let bytes = left.min(*room);
            if bytes > 0 {
                // SAFETY: the caller's promise.
                unsafe { self.receive_buffer.read(place, *start, bytes) };
                place += bytes as u32;
                left -= bytes;
            }
        }
        from.length as usize - left
    }

    /// The datagram is read, or dropped: its memory receives another one.
    pub(super) fn give_back(&self, read: &Arrived) -> Result<(), c_int> {
        self.post_receive(read.slot)
    }

    /// The descriptor that is readable after a completion, once armed.
    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: the channel lives as long as this.
        unsafe { (*self.channel).fd }
    }

    /// Asks for an event. True if that is new: completions have to be looked for once more.
    pub(super) fn arm(&mut self) -> bool {
        if self.is_armed {
            return false;
        }
        self.is_armed = true;
        // SAFETY: the own queue.
        unsafe { req_notify_cq(self.queue, 0) };
        true
    }

    /// Takes the event. True if there was one.
    pub(super) fn take_event(&mut self) -> bool {
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut is_taken = false;
        // SAFETY: the own channel, which does not wait; live places.
        unsafe {
            while ibv_get_cq_event(self.channel, &raw mut queue, &raw mut context) == 0 {
                ibv_ack_cq_events(queue, 1);
                self.is_armed = false;
                is_taken = true;
            }
        }
        is_taken
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: made here; the queue pair goes before its handles and its queue, that before its
        // channel, and all before the memory.
        unsafe {
            if !self.pair.is_null() {
                ibv_destroy_qp(self.pair);
            }
            self.forget_handles();
            if !self.queue.is_null() {
                ibv_destroy_cq(self.queue);
            }
            ibv_destroy_comp_channel(self.channel);
        }
    }
}
