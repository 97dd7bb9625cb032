//! `ibv_modify_qp`: the transitions of a queue pair.

use crate::abi::{event, ibv_ah_attr, ibv_qp, ibv_qp_attr, mask, state};
use crate::address::destination;
use crate::cancel::Uncancelled;
use crate::completion::CompletionObject;
use crate::context_object::{ContextObject, Reported};
use crate::errno;
use crate::gid::address_of;
use crate::live::{self, Kind};
use crate::pair::Pair;
use crate::queue_pair::{Inner, QueuePairObject};
use crate::shared_posts::wake;
use crate::transitions::{check, keep, no_attributes, remote_access};
use ringside_pmd::rdma::{ConnectionChange, RdmaError, ReceiveAttributes, SendAttributes};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// RDMA reads of a direction that may be outstanding.
const MAX_READS: u32 = ringside_spec::rdma::limits::MAX_INBOUND_READS;

/// # Safety
/// `pair` came from [`ibv_create_qp`]; `attributes` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    given: c_int,
) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(pair, &[Kind::QueuePair]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let (object, wanted) = unsafe { (QueuePairObject::of(pair), &*attributes) };
    // SAFETY: a context outlives its objects.
    let context = unsafe { ContextObject::of(object.plain().context) };
    let mut inner = object.inner();
    let from = inner.shown_state();
    let to = if given & mask::STATE != 0 {
        wanted.qp_state
    } else {
        from
    };
    let named = wanted.cur_qp_state;
    if given & mask::CUR_STATE != 0 && !(state::RESET..=state::ERR).contains(&named) {
        return errno::failed(libc::EINVAL);
    }
    let result = check(object.plain().qp_type, from, to, given).and_then(|()| match (from, to) {
        (state::RTS, state::SQD) => {
            drop(inner);
            object.stop_sending(context, wanted, given)
        }
        _ => inner.change(context, wanted, given, from, to),
    });
    let now = object.inner().state;
    if result.is_ok() && given & mask::STATE != 0 {
        // SAFETY: the public field belongs to the library, and follows its calls.
        unsafe { (*pair).state = now };
    }
    match now {
        state::ERR => object.note_failure(),
        state::RESET => {
            object.told_of_last_receive.store(false, Ordering::Release);
            for queue in [object.plain().send_cq, object.plain().recv_cq] {
                // SAFETY: completion queues outlive the queue pairs that report to them.
                unsafe { CompletionObject::of(queue) }.forget(object.plain().qp_num);
            }
        }
        _ => {}
    }
    if to == state::ERR && result.is_err() && object.inner().has_failed() {
        // The device did not flush it, so the library did.
        object.note_failure();
        object.notify_queues();
    }
    errno::returned(result)
}

impl QueuePairObject {
    /// Stops sending, and waits until what was sent is answered, 5 s at most. The queue pair is
    /// free meanwhile: other threads may post, and their requests wait until it sends again.
    ///
    /// Errors: `EBUSY` if the peer does not answer in time, and it sends on.
    fn stop_sending(
        &self,
        context: &ContextObject,
        wanted: &ibv_qp_attr,
        given: c_int,
    ) -> Result<(), c_int> {
        let switch = self.inner().pair.send_switch().ok_or(libc::EINVAL)?;
        switch.stop().map_err(|error| errno::of(&error))?;
        let mut inner = self.inner();
        // Another thread may have changed it meanwhile.
        if inner.shown_state() != state::RTS {
            return Err(libc::EINVAL);
        }
        keep(&mut inner.attributes, wanted, given);
        inner.state = state::SQD;
        drop(inner);
        if given & mask::EN_SQD_ASYNC_NOTIFY != 0 && wanted.en_sqd_async_notify != 0 {
            context.events.push(Reported {
                element: self.plain() as *const ibv_qp as usize,
                kind: event::SQ_DRAINED,
            });
        }
        Ok(())
    }
}

impl Inner {
    fn has_failed(&self) -> bool {
        self.pair.has_failed()
    }

    /// The state in the form of verbs.
    pub(crate) fn shown_state(&self) -> c_int {
        match self.has_failed() {
            true if self.state != state::RESET => state::ERR,
            _ => self.state,
        }
    }

    fn change(
        &mut self,
        context: &ContextObject,
        wanted: &ibv_qp_attr,
        given: c_int,
        from: c_int,
        to: c_int,
    ) -> Result<(), c_int> {
        if given & mask::PORT != 0 && wanted.port_num != 1 {
            return Err(libc::EINVAL);
        }
        if given & mask::PKEY_INDEX != 0 && wanted.pkey_index != 0 {
            return Err(libc::EINVAL);
        }
        let reads = [
            (mask::MAX_QP_RD_ATOMIC, wanted.max_rd_atomic),
            (mask::MAX_DEST_RD_ATOMIC, wanted.max_dest_rd_atomic),
        ];
        let too_many = |(bit, count): (c_int, u8)| given & bit != 0 && u32::from(count) > MAX_READS;
        if reads.into_iter().any(too_many) {
            return Err(libc::EINVAL);
        }
        let mut next = self.attributes;
        keep(&mut next, wanted, given);
        match (from, to) {
            (state::INIT, state::RTR) => self.receive(context, &next)?,
            (state::RTR, state::RTS) => self.send(&next)?,
            (state::RTS | state::SQD, state::RTS | state::SQD) => {
                self.change_ready(&next, given)?;
                if to == state::RTS {
                    self.resume()?;
                }
            }
            (_, state::ERR) => self.fail()?,
            (state::RESET, state::RESET) => {}
            (_, state::RESET) => {
                self.reset()?;
                next = no_attributes(next.cap);
            }
            _ => {}
        }
        self.attributes = next;
        self.state = to;
        Ok(())
    }

    fn receive(&mut self, context: &ContextObject, next: &ibv_qp_attr) -> Result<(), c_int> {
        let refuse = |error: &RdmaError| errno::of(error);
        match std::mem::replace(&mut self.pair, Pair::Gone) {
            Pair::Initialised(mut pair) => {
                pair.set_remote_access(remote_access(next.qp_access_flags as c_int, false));
                let wanted = match receive_attributes(context, next) {
                    Ok(wanted) => wanted,
                    Err(error) => {
                        self.pair = Pair::Initialised(pair);
                        return Err(error);
                    }
                };
                match pair.receive_from(&wanted) {
                    Ok(pair) => self.pair = Pair::Receiving(pair),
                    Err(refused) => {
                        let error = refuse(&refused.error);
                        if let Some(pair) = refused.into_queue_pair() {
                            self.pair = Pair::Initialised(pair);
                        }
                        return Err(error);
                    }
                }
            }
            Pair::DatagramInitialised(pair) => match pair.ready(next.qkey) {
                Ok(pair) => self.pair = Pair::DatagramReady(pair),
                Err(refused) => {
                    let error = refuse(&refused.error);
                    if let Some(pair) = refused.into_queue_pair() {
                        self.pair = Pair::DatagramInitialised(pair);
                    }
                    return Err(error);
                }
            },
            other => self.pair = other,
        }
        Ok(())
    }

    fn send(&mut self, next: &ibv_qp_attr) -> Result<(), c_int> {
        match std::mem::replace(&mut self.pair, Pair::Gone) {
            Pair::Receiving(mut pair) => {
                let reads = next.max_rd_atomic > 0;
                pair.set_remote_access(remote_access(next.qp_access_flags as c_int, reads));
                let wanted = SendAttributes {
                    psn: next.sq_psn & 0xFF_FFFF,
                    retries: next.retry_cnt.min(7),
                    acknowledge_timeout: next.timeout & 31,
                    receiver_not_ready_retries: next.rnr_retry.min(7),
                    outbound_reads: next.max_rd_atomic.min(127),
                };
                match pair.send_from(&wanted) {
                    Ok(pair) => self.pair = Pair::Connected(pair),
                    Err(refused) => {
                        let error = errno::of(&refused.error);
                        if let Some(pair) = refused.into_queue_pair() {
                            self.pair = Pair::Receiving(pair);
                        }
                        return Err(error);
                    }
                }
            }
            // The step may bring another queue key than INIT.
            Pair::DatagramReady(mut pair) => {
                let set = match next.qkey == self.attributes.qkey {
                    true => Ok(()),
                    false => pair.set_queue_key(next.qkey),
                };
                self.pair = Pair::DatagramReady(pair);
                set.map_err(|error| errno::of(&error))?;
            }
            other => self.pair = other,
        }
        Ok(())
    }

    /// Changes a queue pair that sends, or has sent. While it is stopped, the new values reach the
    /// device when it resumes.
    ///
    /// Errors: `EOPNOTSUPP` for another path or other numbers of reads, which are final from the
    /// step to RTR or RTS on.
    fn change_ready(&mut self, next: &ibv_qp_attr, given: c_int) -> Result<(), c_int> {
        let has = |bit| given & bit != 0;
        let old = &self.attributes;
        let is_final = !same_path(&old.ah_attr, &next.ah_attr)
            || old.max_rd_atomic != next.max_rd_atomic
            || old.max_dest_rd_atomic != next.max_dest_rd_atomic;
        if is_final {
            tracing::warn!("refused: path and numbers of reads of a connection stay as they are");
            return Err(libc::EOPNOTSUPP);
        }
        let changes = mask::ACCESS_FLAGS | mask::RETRY_CNT | mask::TIMEOUT | mask::RNR_RETRY;
        let changed = match &mut self.pair {
            Pair::Connected(pair) if has(changes) => {
                let (flags, reads) = (next.qp_access_flags as c_int, next.max_rd_atomic > 0);
                pair.change(&ConnectionChange {
                    remote_access: has(mask::ACCESS_FLAGS).then(|| remote_access(flags, reads)),
                    retries: has(mask::RETRY_CNT).then_some(next.retry_cnt.min(7)),
                    acknowledge_timeout: has(mask::TIMEOUT).then_some(next.timeout & 31),
                    receiver_not_ready_retries: has(mask::RNR_RETRY)
                        .then_some(next.rnr_retry.min(7)),
                })
            }
            Pair::DatagramReady(pair) if has(mask::QKEY) => pair.set_queue_key(next.qkey),
            _ => Ok(()),
        };
        changed.map_err(|error| errno::of(&error))
    }

    /// Sends again, if it was stopped.
    fn resume(&mut self) -> Result<(), c_int> {
        let switch = self.pair.send_switch().ok_or(libc::EINVAL)?;
        switch.resume().map_err(|error| errno::of(&error))
    }

    /// Makes it anew under its number. What was outstanding is dropped; receives of a shared
    /// receive queue that it had not used serve the others.
    fn reset(&mut self) -> Result<(), c_int> {
        // SAFETY: a shared receive queue outlives the queue pairs that it feeds.
        let shared = unsafe { self.shared.as_ref() };
        let mut shared = shared.map(|shared| shared.queue.hold());
        macro_rules! reset {
            ($pair:ident, $before:ident, $after:ident) => {
                match match &mut shared {
                    Some(shared) => shared.reset($pair),
                    None => $pair.reset(),
                } {
                    Ok(pair) => (Pair::$after(pair), Ok(())),
                    Err(refused) => {
                        let error = errno::of(&refused.error);
                        let left = refused.into_queue_pair().map_or(Pair::Gone, Pair::$before);
                        (left, Err(error))
                    }
                }
            };
        }
        let (pair, result) = match std::mem::replace(&mut self.pair, Pair::Gone) {
            Pair::Initialised(pair) => reset!(pair, Initialised, Initialised),
            Pair::Receiving(pair) => reset!(pair, Receiving, Initialised),
            Pair::Connected(pair) => reset!(pair, Connected, Initialised),
            Pair::DatagramInitialised(pair) => {
                reset!(pair, DatagramInitialised, DatagramInitialised)
            }
            Pair::DatagramReady(pair) => reset!(pair, DatagramReady, DatagramInitialised),
            Pair::Gone => (Pair::Gone, Err(libc::EIO)),
        };
        self.pair = pair;
        let result = result.and_then(|()| self.join_again());
        if let Some(receives) = &mut shared {
            wake(receives);
        }
        if let Some(bounce) = &mut self.bounce {
            bounce.begin_again();
        }
        result
    }

    /// Joins its groups after a reset, which keeps them.
    fn join_again(&self) -> Result<(), c_int> {
        if !matches!(self.pair, Pair::DatagramInitialised(_)) {
            return Ok(());
        }
        for group in &self.groups {
            self.pair.join(*group)?;
        }
        Ok(())
    }

    fn fail(&mut self) -> Result<(), c_int> {
        let failed = match &mut self.pair {
            Pair::Receiving(pair) => pair.fail(),
            Pair::Initialised(pair) => pair.fail(),
            Pair::DatagramInitialised(pair) => pair.fail(),
            Pair::Connected(pair) => pair.fail(),
            Pair::DatagramReady(pair) => pair.fail(),
            Pair::Gone => Ok(()),
        };
        failed.map_err(|error| errno::of(&error))
    }
}

fn same_path(one: &ibv_ah_attr, other: &ibv_ah_attr) -> bool {
    let numbers = |path: &ibv_ah_attr| {
        let route = &path.grh;
        let of_route = (route.flow_label, route.hop_limit, route.traffic_class);
        (of_route, route.sgid_index, path.sl, path.port_num)
    };
    one.grh.dgid.raw == other.grh.dgid.raw && numbers(one) == numbers(other)
}

fn receive_attributes(
    context: &ContextObject,
    next: &ibv_qp_attr,
) -> Result<ReceiveAttributes, c_int> {
    let code = u32::try_from(next.path_mtu).unwrap_or(0);
    if !(1..=5).contains(&code) {
        return Err(libc::EINVAL);
    }
    tracing::debug!(peer = %address_of(&next.ah_attr.grh.dgid), "connecting");
    Ok(ReceiveAttributes {
        path: destination(&context.port, &next.ah_attr)?,
        queue_pair: next.dest_qp_num & 0xFF_FFFF,
        psn: next.rq_psn & 0xFF_FFFF,
        path_mtu: 128 << code,
        inbound_reads: next.max_dest_rd_atomic.min(127),
    })
}
