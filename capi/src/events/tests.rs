use crate::abi::{
    event, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid,
    ibv_gid_entry, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc, kind,
    mask, request, send_flags, state,
};
use crate::address::{ibv_create_ah, ibv_destroy_ah};
use crate::cm::abi::{rdma_cm_id, rdma_event_channel};
use crate::cm::{
    self, ringside_rdma_ack_cm_event, ringside_rdma_bind_addr, ringside_rdma_create_event_channel,
    ringside_rdma_create_id, ringside_rdma_destroy_event_channel, ringside_rdma_destroy_id,
    ringside_rdma_get_cm_event, ringside_rdma_listen,
};
use crate::completion::{CompletionObject, ibv_create_cq, ibv_destroy_cq, poll_cq};
use crate::completion_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::completion_events::{ibv_ack_cq_events, ibv_get_cq_event, req_notify_cq};
use crate::context::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_ack_async_event, ibv_get_async_event,
    ibv_query_gid,
};
use crate::gid::gid_of;
use crate::memory::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::modify::ibv_modify_qp;
use crate::open::{ibv_close_device, ibv_get_device_list, ibv_open_device, port};
use crate::post::{post_recv, post_send};
use crate::queue_pair::{ibv_create_qp, ibv_destroy_qp};
use ringside_bus::{Direction, Refusal};
use ringside_model::Fault;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// The tests share a device, which some of them fail.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    crate::device::lock(&ALONE)
}

/// A context of the model that the tests of this program share.
fn open_model() -> *mut ibv_context {
    static NAMED: Once = Once::new();
    // SAFETY: only here the environment is changed, before anything of the library reads it; the
    // list has a device.
    unsafe {
        NAMED.call_once(|| std::env::set_var("RINGSIDE_DEVICE", "model:0"));
        let list = ibv_get_device_list(null_mut());
        let context = ibv_open_device(*list);
        assert!(!context.is_null());
        libc::free(list.cast());
        context
    }
}

#[test]
fn a_completion_queue_reports_to_the_event_queue_of_its_vector() {
    let _alone = alone();
    let context = open_model();
    // SAFETY: every object is of the library and destroyed once.
    unsafe {
        let port = port().unwrap().unwrap();
        let device = port.device().unwrap();
        let last = (*context).num_comp_vectors - 1;
        let users = || {
            let queues = device.event_queues().unwrap();
            queues[last as usize].completion_queues
        };
        let before = users();
        let queue = ibv_create_cq(context, 4, null_mut(), null_mut(), last);
        assert!(!queue.is_null());
        assert_eq!(users(), before + 1);
        let channel = ibv_create_comp_channel(context);
        let sleeping = ibv_create_cq(context, 4, null_mut(), channel, last);
        assert!(!sleeping.is_null());
        assert_eq!(users(), before + 2);
        // A thread of the library sleeps on the vector now.
        assert!(device.interrupts_of(last as u16).is_err());
        for queue in [queue, sleeping] {
            assert_eq!(ibv_destroy_cq(queue), 0);
        }
        assert_eq!(ibv_destroy_comp_channel(channel), 0);
        ibv_close_device(context);
    }
}

/// Waits for an event of a descriptor, so many ms at most; true if there is one.
fn has_event(descriptor: i32, limit_ms: i32) -> bool {
    let mut ready = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, as the call is told.
    unsafe { libc::poll(&raw mut ready, 1, limit_ms) == 1 }
}

/// The device refuses every step of a queue pair.
const REFUSED_STEPS: Fault = Fault::ControlCommandFails {
    opcode: 1,
    major: 1,
    minor: 1,
};

/// A datagram queue pair in INIT.
///
/// # Safety
/// Context and queue are of the library.
unsafe fn initialised(context: *mut ibv_context, queue: *mut ibv_cq) -> *mut ibv_qp {
    // SAFETY: the caller's promise; zero is a value of all structures.
    unsafe {
        let mut init: ibv_qp_init_attr = zeroed();
        (init.send_cq, init.recv_cq, init.qp_type) = (queue, queue, kind::UD);
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (4, 1);
        let pair = ibv_create_qp(ibv_alloc_pd(context), &raw mut init);
        assert!(!pair.is_null());
        let initial = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY;
        assert_eq!(step(pair, state::INIT, initial), 0);
        pair
    }
}

/// Moves a datagram queue pair to a state.
///
/// # Safety
/// The queue pair is of the library.
unsafe fn step(pair: *mut ibv_qp, next: i32, given: i32) -> i32 {
    // SAFETY: the caller's promise; zero is a value of the structure.
    unsafe {
        let mut set: ibv_qp_attr = zeroed();
        (set.port_num, set.qkey, set.qp_state) = (1, 5, next);
        ibv_modify_qp(pair, &raw mut set, given)
    }
}

/// A datagram queue pair that sends.
///
/// # Safety
/// Context and queue are of the library.
unsafe fn sender(context: *mut ibv_context, queue: *mut ibv_cq) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    unsafe {
        let pair = initialised(context, queue);
        assert_eq!(step(pair, state::RTR, mask::STATE), 0);
        assert_eq!(step(pair, state::RTS, mask::STATE | mask::SQ_PSN), 0);
        pair
    }
}

/// Posts an empty receive.
///
/// # Safety
/// The queue pair is of the library.
unsafe fn post_receive(pair: *mut ibv_qp) {
    // SAFETY: the caller's promise; the places are of this function.
    unsafe {
        let mut receive: ibv_recv_wr = zeroed();
        let mut refused = null_mut();
        assert_eq!(post_recv(pair, &raw mut receive, &raw mut refused), 0);
    }
}

/// A channel, its completion queue, which is asked for an event, and a queue pair of that with one
/// receive outstanding.
///
/// # Safety
/// The context is of the library.
unsafe fn awaiting(context: *mut ibv_context) -> (*mut ibv_comp_channel, *mut ibv_cq, *mut ibv_qp) {
    // SAFETY: the caller's promise.
    unsafe {
        let channel = ibv_create_comp_channel(context);
        let queue = ibv_create_cq(context, 8, null_mut(), channel, 0);
        let pair = sender(context, queue);
        post_receive(pair);
        assert_eq!(req_notify_cq(queue, 0), 0);
        (channel, queue, pair)
    }
}

/// Destroys a queue pair with its protection domain, its completion queue and the channel of that,
/// and closes the context.
///
/// # Safety
/// The queue pair came from [`sender`]; nothing else is left of the context.
unsafe fn destroy(context: *mut ibv_context, pair: *mut ibv_qp, channel: *mut ibv_comp_channel) {
    // SAFETY: the caller's promise.
    unsafe {
        let (domain, queue) = ((*pair).pd, (*pair).send_cq);
        assert_eq!((ibv_destroy_qp(pair), ibv_destroy_cq(queue)), (0, 0));
        assert_eq!(ibv_destroy_comp_channel(channel), 0);
        assert_eq!((ibv_dealloc_pd(domain), ibv_close_device(context)), (0, 0));
    }
}

/// Sends an empty datagram to a queue pair that does not exist, by the address handle that it
/// returns.
///
/// # Safety
/// The queue pair came from [`sender`].
unsafe fn send_to_none(context: *mut ibv_context, pair: *mut ibv_qp) -> *mut ibv_ah {
    // SAFETY: the caller's promise; zero is a value of all structures.
    unsafe {
        let mut to: ibv_ah_attr = zeroed();
        (to.is_global, to.port_num) = (1, 1);
        assert_eq!(ibv_query_gid(context, 1, 1, &raw mut to.grh.dgid), 0);
        to.grh.sgid_index = 1;
        let handle = ibv_create_ah((*pair).pd, &raw mut to);
        assert!(!handle.is_null());
        let mut wanted: ibv_send_wr = zeroed();
        (wanted.opcode, wanted.send_flags) = (request::SEND, send_flags::SIGNALED);
        wanted.wr = [handle as u64, 0xFF_0000 | 5 << 32, 0, 0];
        let mut refused = null_mut();
        assert_eq!(post_send(pair, &raw mut wanted, &raw mut refused), 0);
        handle
    }
}

/// The host refuses the device its write of a completion: the completion queue fails, and its queue
/// pairs with it. The library completes what they had outstanding.
#[test]
fn a_program_that_sleeps_is_woken_when_its_completion_queue_fails() {
    let _alone = alone();
    let context = open_model();
    // SAFETY: every object is of the library and destroyed once; every place is of this test.
    unsafe {
        let channel: *mut ibv_comp_channel = ibv_create_comp_channel(context);
        let queue = ibv_create_cq(context, 8, null_mut(), channel, 0);
        let pair = sender(context, queue);
        assert_eq!(req_notify_cq(queue, 0), 0);
        let one_write = Fault::DmaRefused(Refusal {
            direction: Some(Direction::Write),
            accesses: Some(1),
            first: CompletionObject::of(queue).ring().unwrap(),
            bytes: 1,
        });
        let port = port().unwrap().unwrap();
        let model = port.model().unwrap();
        model.with(move |world| world.inject(0, one_write));
        let handle = send_to_none(context, pair);

        assert!(has_event((*channel).fd, 60_000), "it sleeps on");
        let (mut told, mut program) = (null_mut(), null_mut());
        assert_eq!(
            ibv_get_cq_event(channel, &raw mut told, &raw mut program),
            0
        );
        assert_eq!(told, queue);
        ibv_ack_cq_events(queue, 1);
        let mut done: ibv_wc = zeroed();
        assert_eq!(poll_cq(queue, 1, &raw mut done), 1);
        assert_eq!(done.status, crate::abi::status::WR_FLUSH_ERR);
        let mut event: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(context, &raw mut event), 0);
        assert_eq!(event.event_type, event::CQ_ERR);
        ibv_ack_async_event(&raw mut event);

        model.with(|world| world.clear_faults(0));
        assert_eq!(ibv_destroy_ah(handle), 0);
        destroy(context, pair, channel);
    }
}

/// A step that the device refuses leaves the queue pair as it was, with its receives, as on Linux.
#[test]
fn a_queue_pair_whose_step_to_rtr_the_device_refuses_stays_in_init() {
    let _alone = alone();
    let context = open_model();
    // SAFETY: every object is of the library and destroyed once; every place is of this test.
    unsafe {
        let channel: *mut ibv_comp_channel = ibv_create_comp_channel(context);
        let queue = ibv_create_cq(context, 8, null_mut(), channel, 0);
        let pair = initialised(context, queue);
        post_receive(pair);
        let port = port().unwrap().unwrap();
        let model = port.model().unwrap();
        model.with(|world| world.inject(0, REFUSED_STEPS));
        assert_ne!(step(pair, state::RTR, mask::STATE), 0);
        assert_eq!((*pair).state, state::INIT);
        model.with(|world| world.clear_faults(0));
        assert_eq!(step(pair, state::RTR, mask::STATE), 0);
        assert_eq!(step(pair, state::RTS, mask::STATE | mask::SQ_PSN), 0);
        assert_eq!(step(pair, state::ERR, mask::STATE), 0);
        let mut done: ibv_wc = zeroed();
        let begun = Instant::now();
        while poll_cq(queue, 1, &raw mut done) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "no completion");
        }
        assert_eq!(done.status, crate::abi::status::WR_FLUSH_ERR);
        destroy(context, pair, channel);
    }
}

/// The device refuses the step to the error state: the library completes what was outstanding.
#[test]
fn a_program_that_sleeps_is_woken_when_the_device_does_not_flush() {
    let _alone = alone();
    let context = open_model();
    // SAFETY: every object is of the library and destroyed once; every place is of this test.
    unsafe {
        let (channel, queue, pair) = awaiting(context);
        let port = port().unwrap().unwrap();
        let model = port.model().unwrap();
        model.with(|world| world.inject(0, REFUSED_STEPS));
        assert_ne!(step(pair, state::ERR, mask::STATE), 0);
        model.with(|world| world.clear_faults(0));

        assert!(has_event((*channel).fd, 60_000), "it sleeps on");
        let mut done: ibv_wc = zeroed();
        assert_eq!(poll_cq(queue, 1, &raw mut done), 1);
        assert_eq!(done.status, crate::abi::status::WR_FLUSH_ERR);
        destroy(context, pair, channel);
    }
}

/// The device fails because it does not answer. It may still write, so its requests complete later,
/// once it answers: the program is woken a second time.
#[test]
fn a_program_that_sleeps_is_woken_when_a_device_that_did_not_answer_does() {
    let _alone = alone();
    let context = open_model();
    // SAFETY: every object is of the library and destroyed once; every place is of this test.
    unsafe {
        let (channel, queue, pair) = awaiting(context);
        let port = port().unwrap().unwrap();
        let model = port.model().unwrap();
        let (goes_on, held) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // It does nothing until the test lets it go on.
            scope
                .spawn(|| model.with(move |_| held.recv_timeout(Duration::from_secs(120)).is_ok()));
            let mut told: ibv_async_event = zeroed();
            assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
            assert_eq!(told.event_type, event::DEVICE_FATAL);
            let (mut named, mut of) = (null_mut(), null_mut());
            assert_eq!(ibv_get_cq_event(channel, &raw mut named, &raw mut of), 0);
            ibv_ack_cq_events(queue, 1);
            assert_eq!(req_notify_cq(queue, 0), 0);
            let mut done: ibv_wc = zeroed();
            assert_eq!(poll_cq(queue, 1, &raw mut done), 0, "it may still write");
            // This one waits behind the first. The post gives an event, and the next request none.
            post_receive(pair);
            assert!(has_event((*channel).fd, 60_000), "of the post");
            assert_eq!(ibv_get_cq_event(channel, &raw mut named, &raw mut of), 0);
            ibv_ack_cq_events(queue, 1);
            assert_eq!(req_notify_cq(queue, 0), 0);
            assert_eq!(poll_cq(queue, 1, &raw mut done), 0);
            let is_woken = has_event((*channel).fd, 300);
            assert!(!is_woken, "there is nothing to poll");
            goes_on.send(()).unwrap();
            assert!(has_event((*channel).fd, 60_000), "it sleeps on");
            for _ in 0..2 {
                assert_eq!(poll_cq(queue, 1, &raw mut done), 1);
                assert_eq!(done.status, crate::abi::status::WR_FLUSH_ERR);
            }
        });
        destroy(context, pair, channel);
        assert_eq!(ibv_close_device(open_model()), 0, "it is recovered");
    }
}

/// An address comes and goes while a program has the device open.
#[test]
fn a_program_is_told_of_changes_of_the_gid_table_and_of_the_link() {
    let _alone = alone();
    let added: IpAddr = "192.0.2.77".parse().unwrap();
    let context = open_model();
    // SAFETY: every pointer is of the library, every place is of this test.
    unsafe {
        let port = port().unwrap().unwrap();
        let device = port.device().unwrap();
        let before = port.gids().len();
        let mut gid: ibv_gid = zeroed();
        assert_eq!(ibv_query_gid(context, 1, before as i32, &raw mut gid), 0);
        assert_eq!(gid.raw, [0; 16], "an entry without an address");

        device
            .add_address("192.0.2.77/24".parse().unwrap())
            .unwrap();
        let mut told: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
        assert_eq!(told.event_type, event::GID_CHANGE);
        assert_eq!(told.element as usize, 1, "the port's number");
        assert_eq!(ibv_query_gid(context, 1, before as i32, &raw mut gid), 0);
        assert_eq!(gid.raw, gid_of(added).raw);

        // The index of an address that is gone stays, without an address.
        device.remove_address(added, None).unwrap();
        assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
        assert_eq!(told.event_type, event::GID_CHANGE);
        assert_eq!(ibv_query_gid(context, 1, before as i32, &raw mut gid), 0);
        assert_eq!(gid.raw, [0; 16]);
        let mut entries: [ibv_gid_entry; 8] = zeroed();
        let (entry, size) = (entries.as_mut_ptr(), size_of::<ibv_gid_entry>());
        let index = before as u32;
        assert_eq!(
            _ibv_query_gid_ex(context, 1, index, entry, 0, size),
            libc::ENODATA
        );
        let count = _ibv_query_gid_table(context, entry, before, 0, size);
        assert_eq!(count, before as isize, "empty entries are not listed");

        // The link goes and comes.
        drop(device);
        let model = port.model().unwrap();
        for (change, kind) in [(true, event::PORT_ERR), (false, event::PORT_ACTIVE)] {
            let done = model.with(move |world| match change {
                true => world.inject(0, Fault::LinkDown),
                false => world.clear_faults(0),
            });
            assert!(done.is_some());
            assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
            assert_eq!(told.event_type, kind);
            assert_eq!(told.element as usize, 1, "the port's number");
        }
        the_device_fails(context);
        ibv_close_device(context);
    }
}

/// The host asks until it gets the device, every ten seconds.
#[test]
fn a_program_is_told_once_that_the_host_wants_the_device_back() {
    let _alone = alone();
    let context = open_model();
    // SAFETY: every pointer is of the library, every place is of this test.
    unsafe {
        let port = port().unwrap().unwrap();
        let model = port.model().unwrap();
        let mut told: ibv_async_event = zeroed();
        assert_eq!(
            model.with(|world| world.request_release(0)),
            Some(true),
            "the model has no such request"
        );
        assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
        assert_eq!(told.event_type, event::DEVICE_FATAL);
        for _ in 0..3 {
            model.with(|world| world.request_release(0));
            assert!(!has_event((*context).async_fd, 300), "told again");
        }
        // The recovered device is one that the host has not asked for.
        let critical = Fault::CriticalError { code: 1 };
        model.with(move |world| world.inject(0, critical));
        assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
        assert_eq!(told.event_type, event::DEVICE_FATAL);
        assert_eq!(ibv_close_device(context), 0);
        assert_eq!(ibv_close_device(open_model()), 0);
    }
}

/// A failure of the device is reported to the context, and to an id that listens on its address. An
/// id that listens on all addresses goes on. Once the device is recovered, it can be opened again.
///
/// # Safety
/// `context` is open.
unsafe fn the_device_fails(context: *mut ibv_context) {
    // SAFETY: every pointer is of the library, every place is of this function.
    unsafe {
        let channel = ringside_rdma_create_event_channel();
        let own = port().unwrap().unwrap().addresses().into_iter();
        let own = own.map(|own| own.address).find(IpAddr::is_ipv4).unwrap();
        let bound = listening(channel, own);
        let everywhere = listening(channel, "0.0.0.0".parse().unwrap());
        let critical = Fault::CriticalError { code: 1 };
        let failing = port().unwrap().unwrap();
        let model = failing.model().unwrap();
        // The recovered device has no queues for packets at first: ENOMEM.
        let no_queues = Fault::AdminCommandFails {
            opcode: 0x0C30,
            code: 9,
        };
        model.with(move |world| world.inject(0, no_queues));
        assert!(model.with(move |world| world.inject(0, critical)).is_some());

        let mut told: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(context, &raw mut told), 0);
        assert_eq!(told.event_type, event::DEVICE_FATAL);
        // Objects of a context that has failed cannot be made, also after the recovery.
        assert!(ibv_alloc_pd(context).is_null());
        let again = open_model();
        assert!(ibv_alloc_pd(context).is_null());
        let domain = ibv_alloc_pd(again);
        assert!(
            !domain.is_null(),
            "the context of the recovered device works"
        );

        let mut ready = libc::pollfd {
            fd: (*channel).fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(libc::poll(&raw mut ready, 1, 5000), 1, "the id is not told");
        let mut read = null_mut();
        assert_eq!(ringside_rdma_get_cm_event(channel, &raw mut read), 0);
        assert_eq!((*read).event, cm::abi::event::DEVICE_REMOVAL);
        assert_eq!((*read).id, bound);
        ringside_rdma_ack_cm_event(read);
        assert_eq!(libc::poll(&raw mut ready, 1, 0), 0, "only that id was told");
        for id in [bound, everywhere] {
            assert_eq!(ringside_rdma_destroy_id(id), 0);
        }
        ringside_rdma_destroy_event_channel(channel);
        assert_eq!(ibv_dealloc_pd(domain), 0);
        assert_eq!(ibv_close_device(again), 0);
        let recovered = port().unwrap().unwrap();
        assert!(recovered.network().is_none(), "an IP stack without queues");
        model.with(|world| world.clear_faults(0));
        let limit = Instant::now() + Duration::from_secs(20);
        while recovered.network().is_none() {
            assert!(Instant::now() < limit, "no IP stack any more");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An id that listens on an address.
///
/// # Safety
/// `channel` is one of the library.
unsafe fn listening(channel: *mut rdma_event_channel, on: IpAddr) -> *mut rdma_cm_id {
    // SAFETY: the caller's promise; every place is of this function.
    unsafe {
        let mut id = null_mut();
        let made = ringside_rdma_create_id(channel, &raw mut id, null_mut(), cm::space::TCP);
        let mut address: libc::sockaddr_storage = zeroed();
        cm::socket_address::write(&mut address, SocketAddr::new(on, 0));
        let bound = ringside_rdma_bind_addr(id, (&raw mut address).cast());
        assert_eq!((made, bound, ringside_rdma_listen(id, 1)), (0, 0, 0));
        id
    }
}
