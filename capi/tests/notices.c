/* Random completion events and asynchronous events: queues on two channels, one of which a thread reads, armed for
 * any or for solicited completions, with late acknowledgements, queue pairs that fail, are reset or destroyed, and
 * completion queues that are resized or destroyed with events unread or not acknowledged. No event that was asked for
 * is missing, none comes that was not, and every completion is the right one.
 * Arguments: a seed, steps, threads. Says "ok" and ends with 0. */
#include "connect.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

enum { PAIRS = 3, SIDES = 2 * PAIRS, QUEUES = 4, CHANNELS = 2, DEPTH = 16, RECEIVES = 48, READ = 64 };
enum wish { NOTHING, SOLICITED, ANY };

struct channel {
    struct ibv_comp_channel *channel;
    int is_threaded;
    /* of a channel that a thread reads: what it has read, and a pipe with a byte for each */
    pthread_t reader;
    pthread_mutex_t lock;
    struct ibv_cq *found[READ];
    unsigned first, count;
    int told[2];
    atomic_int must_end;
};

struct queue {
    struct channel *channel;
    struct ibv_cq *cq;
    int index;
    enum wish wish;
    int is_armed_before;
    /* an event must come, events may come, and the most of them */
    int must, may, is_stale, has_hidden;
    unsigned slack, unacknowledged;
    /* completions that come or were not polled, and those of them that a solicited wish is for */
    int due, notable;
};

struct message {
    uint64_t number;
    int is_message, is_solicited, fails;
};

struct list {
    struct message all[2 * RECEIVES];
    unsigned first, count;
};

struct side {
    struct thread *thread;
    struct side *peer;
    int index;
    struct ibv_qp *qp;
    struct queue *sends, *receives;
    struct ibv_srq *srq;
    struct list sent, posted, expected;
    int is_in_error;
    /* asynchronous events: that of a failure, that of the last receive, each 0, 1 or, if it may come, -1 */
    int failure, last;
    /* failures from before a reset whose events may still come */
    int former;
};

struct thread {
    unsigned seed, steps, random, step;
    int vector;
    struct ibv_context *context;
    union ibv_gid gid;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct channel channels[CHANNELS];
    struct queue queues[QUEUES];
    struct side sides[SIDES];
    struct ibv_srq *srq;
    uint64_t next;
    int shared_free, limit;
    /* places for receives that none has */
    int places[RECEIVES * SIDES], places_count;
    /* marks the end of what was told before */
    struct ibv_comp_channel *fence_channel;
    struct ibv_cq *fence_cq;
    struct ibv_qp *fence[2];
    unsigned long completions, events, asynchronous;
    unsigned char memory[RECEIVES * SIDES + 64][8];
};

#include "random.h"

#define WANT(thread, what) WANT_AT(thread, -1, what)

static void put(struct list *list, struct message message)
{
    CHECK(list->count < 2 * RECEIVES);
    list->all[(list->first + list->count++) % (2 * RECEIVES)] = message;
}

static struct message pull(struct list *list)
{
    struct message message = list->all[list->first];
    list->first = (list->first + 1) % (2 * RECEIVES);
    list->count--;
    return message;
}

/* A completion is due, later than what was asked for so far. */
static void due(struct queue *queue, int is_notable)
{
    queue->due++;
    queue->notable += is_notable;
    if (queue->wish == ANY || (queue->wish == SOLICITED && is_notable))
        queue->must = queue->may = 1;
}

/* The library completes a request of a failed queue pair: the wish may be left at the device. */
static void flushed(struct queue *queue)
{
    due(queue, 1);
    queue->is_stale = 1;
}

/* Completions may be in the queue that no poll returns: receives that are given back, those of destroyed queue pairs. */
static void hide(struct queue *queue)
{
    queue->has_hidden = 1;
    if (queue->wish != NOTHING || queue->is_stale)
        queue->may = 1;
}

/* Completion events. */

static void *read_events(void *given)
{
    struct channel *channel = given;
    while (!channel->must_end) {
        struct ibv_cq *cq;
        void *context;
        CHECK(!ibv_get_cq_event(channel->channel, &cq, &context));
        CHECK(((struct queue *)context)->cq == cq || channel->must_end);
        pthread_mutex_lock(&channel->lock);
        CHECK(channel->count < READ);
        channel->found[(channel->first + channel->count++) % READ] = cq;
        pthread_mutex_unlock(&channel->lock);
        CHECK(write(channel->told[1], "", 1) == 1);
    }
    return NULL;
}

/* The next event, if there is one. */
static struct ibv_cq *event_of(struct thread *thread, struct channel *channel)
{
    struct ibv_cq *cq = NULL;
    void *context;
    if (!channel->is_threaded) {
        if (ibv_get_cq_event(channel->channel, &cq, &context)) {
            WANT(thread, errno == EAGAIN);
            return NULL;
        }
        WANT(thread, ((struct queue *)context)->cq == cq);
        return cq;
    }
    char byte;
    if (read(channel->told[0], &byte, 1) != 1)
        return NULL;
    pthread_mutex_lock(&channel->lock);
    cq = channel->found[channel->first];
    channel->first = (channel->first + 1) % READ;
    channel->count--;
    pthread_mutex_unlock(&channel->lock);
    return cq;
}

static void acknowledge(struct queue *queue, unsigned count)
{
    queue->unacknowledged -= count;
    ibv_ack_cq_events(queue->cq, count);
}

static struct queue *take_event(struct thread *thread, struct channel *channel)
{
    struct ibv_cq *cq = event_of(thread, channel);
    if (!cq)
        return NULL;
    struct queue *queue = cq->cq_context;
    WANT(thread, queue->channel == channel && queue->slack && (queue->may || queue->is_stale));
    queue->slack--;
    queue->must = 0;
    queue->wish = NOTHING;
    /* A wish from before this event may be left. */
    queue->is_stale |= queue->slack > 0;
    queue->unacknowledged++;
    thread->events++;
    if (draw(thread, 3) == 0)
        acknowledge(queue, 1 + draw(thread, queue->unacknowledged));
    return queue;
}

static void arm(struct thread *thread, struct queue *queue, enum wish wish)
{
    WANT(thread, !ibv_req_notify_cq(queue->cq, wish == SOLICITED));
    if (queue->has_hidden)
        queue->may = 1;
    /* One that comes during the call may be told of by the library: the wish is then left at the device. */
    if (wish == ANY && (queue->due || queue->has_hidden))
        queue->is_stale = 1;
    if (wish == ANY ? queue->due : (queue->notable || (!queue->is_armed_before && queue->due)))
        queue->may = 1;
    queue->is_armed_before = 1;
    queue->slack++;
    /* A wish for any completion stays one. */
    if (wish > queue->wish)
        queue->wish = wish;
}

/* Completions. */

static void received(struct side *side, struct ibv_wc *wc)
{
    struct thread *thread = side->thread;
    int is_notable = 1;
    if (wc->status == IBV_WC_SUCCESS) {
        WANT(thread, side->expected.count);
        struct message message = pull(&side->expected);
        is_notable = message.is_solicited;
        WANT(thread, wc->byte_len == 8 && !memcmp(thread->memory[wc->wr_id % (RECEIVES * SIDES)], &message.number, 8));
    } else {
        WANT(thread, wc->status == IBV_WC_WR_FLUSH_ERR && side->is_in_error);
    }
    thread->places[thread->places_count++] = wc->wr_id % (RECEIVES * SIDES);
    side->receives->due--;
    side->receives->notable -= is_notable;
    if (side->srq)
        thread->shared_free++;
    else
        WANT(thread, side->posted.count && pull(&side->posted).number == wc->wr_id);
}

static void completed(struct side *side, struct ibv_wc *wc)
{
    struct thread *thread = side->thread;
    WANT(thread, side->sent.count);
    struct message message = pull(&side->sent);
    WANT(thread, message.number == wc->wr_id);
    side->sends->due--;
    side->sends->notable -= side->is_in_error;
    if (wc->status == IBV_WC_SUCCESS)
        WANT(thread, !message.fails);
    else
        WANT(thread, side->is_in_error && (wc->status == IBV_WC_WR_FLUSH_ERR ||
            (message.fails && wc->status == IBV_WC_REM_ACCESS_ERR)));
}

static int take(struct thread *thread, struct queue *queue)
{
    struct ibv_wc all[5];
    int count = ibv_poll_cq(queue->cq, 1 + draw(thread, 5), all);
    WANT(thread, count >= 0);
    for (int i = 0; i < count; i++) {
        struct side *side = NULL;
        for (int s = 0; s < SIDES; s++)
            if (thread->sides[s].qp->qp_num == all[i].qp_num)
                side = &thread->sides[s];
        WANT(thread, side);
        thread->completions++;
        if (all[i].opcode & IBV_WC_RECV) {
            WANT(thread, side->receives == queue);
            received(side, &all[i]);
        } else {
            WANT(thread, side->sends == queue);
            completed(side, &all[i]);
        }
    }
    return count;
}

static int outstanding(struct thread *thread)
{
    int all = 0;
    for (int q = 0; q < QUEUES; q++)
        all += thread->queues[q].due;
    return all;
}

/* Posts. */

static void post_receives(struct side *side, unsigned count)
{
    struct thread *thread = side->thread;
    while (count--) {
        struct ibv_sge part = { 0, 8, thread->mr->lkey };
        struct ibv_recv_wr wr = { .sg_list = &part, .num_sge = 1 }, *bad;
        if (side->srq ? !thread->shared_free : side->posted.count >= RECEIVES)
            return;
        wr.wr_id = thread->next++ * RECEIVES * SIDES + thread->places[--thread->places_count];
        part.addr = (uintptr_t)thread->memory[wr.wr_id % (RECEIVES * SIDES)];
        if (side->srq) {
            thread->shared_free--;
            WANT(thread, !ibv_post_srq_recv(side->srq, &wr, &bad));
            continue;
        }
        put(&side->posted, (struct message) { .number = wr.wr_id });
        /* It completes with a message, whose sender knows, or with an error. */
        if (side->is_in_error)
            flushed(side->receives);
        WANT(thread, !ibv_post_recv(side->qp, &wr, &bad));
    }
}

static void post(struct side *side, int fails)
{
    struct thread *thread = side->thread;
    struct side *peer = side->peer;
    struct message message = { .number = thread->next++, .fails = fails, .is_message = !fails && draw(thread, 3) };
    if (side->sent.count >= DEPTH)
        return;
    if (message.is_message && !side->is_in_error) {
        if (peer->is_in_error || (peer->srq ? RECEIVES - thread->shared_free < 20 :
            peer->posted.count <= peer->expected.count) || peer->expected.count >= DEPTH)
            return;
        message.is_solicited = draw(thread, 3) == 0;
    }
    struct ibv_sge part = { (uintptr_t)&message.number, 8, 0 };
    struct ibv_send_wr wr = { .wr_id = message.number, .sg_list = &part, .num_sge = 1,
        .opcode = message.is_message ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_INLINE | (message.is_solicited ? IBV_SEND_SOLICITED : 0) }, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)thread->memory[RECEIVES * SIDES + side->index];
    wr.wr.rdma.rkey = fails ? thread->mr->rkey ^ 0xABCDE00 : thread->mr->rkey;
    put(&side->sent, message);
    if (message.is_message && !side->is_in_error) {
        put(&peer->expected, message);
        due(peer->receives, message.is_solicited);
    }
    if (side->is_in_error)
        flushed(side->sends);
    else
        due(side->sends, 0);
    WANT(thread, !ibv_post_send(side->qp, &wr, &bad));
}

/* What was told so far has arrived. */
static void fence(struct thread *thread)
{
    for (int i = 0; i < 2; i++) {
        struct pollfd ready = { .fd = thread->fence_channel->fd, .events = POLLIN };
        struct ibv_sge part = { (uintptr_t)&thread->next, 8, 0 };
        struct ibv_send_wr wr = { .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED }, *bad;
        struct ibv_cq *cq;
        void *context;
        wr.wr.rdma.remote_addr = (uintptr_t)thread->memory[RECEIVES * SIDES + SIDES];
        wr.wr.rdma.rkey = thread->mr->rkey;
        WANT(thread, !ibv_req_notify_cq(thread->fence_cq, 0) && !ibv_post_send(thread->fence[0], &wr, &bad));
        WANT(thread, poll(&ready, 1, SECONDS * 1000) == 1 && !ibv_get_cq_event(thread->fence_channel, &cq, &context));
        ibv_ack_cq_events(cq, 1);
        WANT(thread, next(thread->fence_cq).status == IBV_WC_SUCCESS);
    }
    /* The thread of a channel has handed over what it read. */
    for (int c = 0; c < CHANNELS; c++) {
        struct channel *channel = &thread->channels[c];
        struct pollfd ready = { .fd = channel->channel->fd, .events = POLLIN };
        for (int waited = 0; channel->is_threaded && poll(&ready, 1, 0) == 1; waited++) {
            WANT(thread, waited < SECONDS * 1000);
            poll(NULL, 0, 1);
        }
        if (channel->is_threaded)
            poll(NULL, 0, 2);
    }
}

/* Waits until something was told on one of the channels, and takes it. */
static void sleep_until_told(struct thread *thread)
{
    struct pollfd ready[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) {
        struct channel *channel = &thread->channels[c];
        ready[c] = (struct pollfd) { .fd = channel->is_threaded ? channel->told[0] : channel->channel->fd, .events = POLLIN };
    }
    if (poll(ready, CHANNELS, SECONDS * 1000) < 1) {
        for (int q = 0; q < QUEUES; q++) {
            struct queue *queue = &thread->queues[q];
            fprintf(stderr, "queue %d: wish %d, must %d, may %d, slack %u, due %d, notable %d\n", q, queue->wish,
                queue->must, queue->may, queue->slack, queue->due, queue->notable);
        }
        WANT(thread, !"an event in time");
    }
    for (int c = 0; c < CHANNELS; c++)
        if (ready[c].revents)
            take_event(thread, &thread->channels[c]);
}

/* Everything that is due completes; at random by sleeping only. */
static void settle(struct thread *thread, int sleeps)
{
    time_t end = time(NULL) + SECONDS;
    while (outstanding(thread)) {
        int taken = 0;
        for (int q = 0; q < QUEUES; q++) {
            if (sleeps)
                arm(thread, &thread->queues[q], ANY);
            while (take(thread, &thread->queues[q]))
                taken++;
        }
        if (sleeps && outstanding(thread)) {
            /* Each queue is armed and was empty then: what is due now gives an event. */
            sleep_until_told(thread);
        }
        WANT(thread, taken || time(NULL) < end);
    }
    for (int q = 0; q < QUEUES; q++)
        while (thread->queues[q].must)
            sleep_until_told(thread);
}

/* Afterwards it is known how many events each queue may have. */
static void be_exact(struct thread *thread)
{
    settle(thread, draw(thread, 2));
    fence(thread);
    for (int q = 0; q < QUEUES; q++) {
        WANT(thread, !take(thread, &thread->queues[q]));
        thread->queues[q].has_hidden = 0;
    }
    for (int c = 0; c < CHANNELS; c++)
        while (take_event(thread, &thread->channels[c]))
            ;
    for (int q = 0; q < QUEUES; q++) {
        struct queue *queue = &thread->queues[q];
        queue->may = 0;
        if (!queue->is_stale) {
            queue->slack = queue->wish != NOTHING;
            continue;
        }
        /* The wish that may be left and a further one are fulfilled together. */
        struct side *side = NULL;
        for (int s = 0; s < SIDES; s++)
            if (thread->sides[s].sends == queue && !thread->sides[s].is_in_error)
                side = &thread->sides[s];
        if (!side) {
            queue->may = 1;
            continue;
        }
        arm(thread, queue, ANY);
        post(side, 0);
        settle(thread, 0);
        fence(thread);
        while (take_event(thread, queue->channel))
            ;
        if (queue->wish == NOTHING)
            queue->slack = queue->may = queue->is_stale = 0;
    }
}

/* Asynchronous events. */

static void take_asynchronous(struct thread *thread)
{
    struct ibv_async_event event;
    while (!ibv_get_async_event(thread->context, &event)) {
        struct side *side = NULL;
        thread->asynchronous++;
        for (int s = 0; s < SIDES; s++)
            if (thread->sides[s].qp == event.element.qp)
                side = &thread->sides[s];
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_REQ_ERR:
            WANT(thread, side && (side->failure || side->former));
            side->former -= !side->failure;
            side->failure = 0;
            break;
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            WANT(thread, side && side->last);
            side->last = 0;
            break;
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            WANT(thread, event.element.srq == thread->srq && thread->limit);
            thread->limit = 0;
            break;
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_GID_CHANGE:
            break;
        default:
            fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
            WANT(thread, !"an event of this kind");
        }
        ibv_ack_async_event(&event);
    }
    WANT(thread, errno == EAGAIN);
}

static void expect_asynchronous(struct side *side)
{
    for (int waited = 0; side->failure > 0 || side->last > 0; waited++) {
        take_asynchronous(side->thread);
        if (waited == SECONDS * 1000)
            fprintf(stderr, "side %d: failure %d, last %d\n", side->index, side->failure, side->last);
        WANT(side->thread, waited < SECONDS * 1000);
        if (side->failure > 0 || side->last > 0)
            poll(NULL, 0, 1);
    }
}

/* Queue pairs. */

static void make_pair(struct side *side)
{
    struct thread *thread = side->thread;
    for (int i = 0; i < 2; i++, side = side->peer) {
        side->sends = &thread->queues[draw(thread, QUEUES)];
        side->receives = &thread->queues[draw(thread, QUEUES)];
        side->srq = draw(thread, 3) ? NULL : thread->srq;
        struct ibv_qp_init_attr init = { .send_cq = side->sends->cq, .recv_cq = side->receives->cq, .srq = side->srq,
            .cap = { .max_send_wr = DEPTH, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
                .max_inline_data = 8 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
        WANT(thread, side->qp = ibv_create_qp(thread->pd, &init));
        side->former = 0;
    }
    join(side->qp, side->peer->qp, &thread->gid);
}

/* Nothing of a side is due any more. */
static void forget(struct side *side)
{
    hide(side->sends);
    hide(side->receives);
    side->sends->must = side->receives->must = 0;
    side->sends->due -= side->sent.count;
    if (side->is_in_error)
        side->sends->notable -= side->sent.count;
    unsigned receives = side->is_in_error && !side->srq ? side->posted.count : side->expected.count;
    side->receives->due -= receives;
    if (side->is_in_error && !side->srq)
        side->receives->notable -= receives;
    else
        while (side->expected.count)
            side->receives->notable -= pull(&side->expected).is_solicited;
    while (side->posted.count)
        side->thread->places[side->thread->places_count++] = pull(&side->posted).number % (RECEIVES * SIDES);
    side->sent.count = side->expected.count = 0;
    side->former += side->failure < 0;
    side->is_in_error = side->failure = side->last = 0;
}

/* A side enters the error state: what it has posted completes, and messages to it do not come. */
static void enter_error(struct side *side)
{
    if (side->is_in_error)
        return;
    side->is_in_error = 1;
    /* Sends that wait count as failures from now on. They may have completed already. */
    side->sends->notable += side->sent.count;
    if (side->sent.count && side->sends->wish != NOTHING)
        side->sends->may = 1;
    while (side->expected.count) {
        side->receives->due--;
        side->receives->notable -= pull(&side->expected).is_solicited;
    }
    if (!side->srq) {
        for (unsigned i = 0; i < side->posted.count; i++)
            due(side->receives, 1);
    } else {
        side->last = 1;
        /* The device gives unused receives back, which gives an event and no completion. */
        hide(side->receives);
    }
}

static void break_pair(struct side *side)
{
    struct thread *thread = side->thread;
    struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
    /* Nothing is under way, so that it is known what completes and how. */
    settle(thread, draw(thread, 2));
    unsigned wishes = draw(thread, 3);
    for (int q = 0; q < QUEUES; q++)
        if (wishes)
            arm(thread, &thread->queues[q], wishes);
    int fails = draw(thread, 2);
    if (fails) {
        side->sent.count = 0;
        post(side, 1);
        side->peer->failure = 1;
        side->failure = -1;
        enter_error(side);
        enter_error(side->peer);
        /* The failure itself gives an event. */
        if (side->sends->wish != NOTHING)
            side->sends->must = side->sends->may = 1;
        expect_asynchronous(side->peer);
    }
    for (int i = 0; i < 2; i++, side = side->peer)
        if (!fails || draw(thread, 2)) {
            enter_error(side);
            WANT(thread, !ibv_modify_qp(side->qp, &error, IBV_QP_STATE));
        }
    /* What is posted now is flushed. */
    for (unsigned i = fails ? 0 : draw(thread, 6); i; i--) {
        post(side, 0);
        post_receives(side->peer, 1);
    }
    if (draw(thread, 2)) {
        settle(thread, draw(thread, 2));
        for (int i = 0; i < 2; i++, side = side->peer)
            expect_asynchronous(side);
    }
    int is_reset = draw(thread, 2);
    for (int i = 0; i < 2; i++, side = side->peer) {
        if (is_reset) {
            expect_asynchronous(side);
            WANT(thread, !ibv_modify_qp(side->qp, &reset, IBV_QP_STATE));
        } else {
            WANT(thread, !ibv_destroy_qp(side->qp));
        }
        forget(side);
    }
    if (is_reset)
        join(side->qp, side->peer->qp, &thread->gid);
    else
        make_pair(side);
}

/* Completion queues. */

static void make_queue(struct thread *thread, struct queue *queue)
{
    int index = queue - thread->queues;
    *queue = (struct queue) { .channel = &thread->channels[draw(thread, CHANNELS)], .index = index };
    WANT(thread, queue->cq = ibv_create_cq(thread->context, 2000, queue, queue->channel->channel, thread->vector));
}

struct late {
    struct ibv_cq *cq;
    unsigned count;
    atomic_int is_done;
};

static void *acknowledge_late(void *given)
{
    struct late *late = given;
    poll(NULL, 0, 3);
    late->is_done = 1;
    ibv_ack_cq_events(late->cq, late->count);
    return NULL;
}

/* Destroys a queue, with events unread or not acknowledged, and makes another one. */
static void renew(struct thread *thread, struct queue *queue)
{
    be_exact(thread);
    int has[SIDES] = { 0 };
    for (int s = 0; s < SIDES; s++)
        if (thread->sides[s].sends == queue || thread->sides[s].receives == queue)
            has[s / 2 * 2] = 1;
    if (draw(thread, 2))
        for (int s = 0; s < SIDES; s++)
            if (thread->sides[s].sends == queue) {
                arm(thread, queue, ANY);
                post(&thread->sides[s], 0);
            }
    if (draw(thread, 2))
        settle(thread, draw(thread, 2));
    for (int s = 0; s < SIDES; s += 2)
        if (has[s])
            for (int i = 0; i < 2; i++) {
                WANT(thread, !ibv_destroy_qp(thread->sides[s + i].qp));
                forget(&thread->sides[s + i]);
            }
    if (queue->channel->is_threaded) {
        /* Its thread takes what there is before the queue goes: the program acknowledges it. */
        fence(thread);
        while (take_event(thread, queue->channel))
            ;
    }
    struct late late = { queue->cq, queue->unacknowledged, 0 };
    pthread_t helper;
    /* A queue of which all events are acknowledged goes at once. */
    WANT(thread, !late.count || !pthread_create(&helper, NULL, acknowledge_late, &late));
    WANT(thread, !ibv_destroy_cq(queue->cq));
    WANT(thread, !late.count || (late.is_done && !pthread_join(helper, NULL)));
    make_queue(thread, queue);
    for (int s = 0; s < SIDES; s += 2)
        if (has[s])
            make_pair(&thread->sides[s]);
}

static void set_limit(struct thread *thread)
{
    struct ibv_srq_attr attr = { .srq_limit = 1 + draw(thread, RECEIVES) };
    be_exact(thread);
    take_asynchronous(thread);
    /* a limit from before is replaced */
    thread->limit = 1;
    WANT(thread, !ibv_modify_srq(thread->srq, &attr, IBV_SRQ_LIMIT));
    int left = RECEIVES - thread->shared_free;
    if (left < (int)attr.srq_limit) {
        for (int waited = 0; thread->limit; waited++) {
            take_asynchronous(thread);
            WANT(thread, waited < SECONDS);
        }
    } else {
        take_asynchronous(thread);
        WANT(thread, thread->limit);
    }
}

/* The library asks the device again for an event that is still to come, which may be under way: a wish is left. */
static void resize(struct thread *thread, struct queue *queue)
{
    queue->is_stale |= queue->wish != NOTHING;
    WANT(thread, !ibv_resize_cq(queue->cq, 1500 + draw(thread, 1000)));
}

static void step(struct thread *thread)
{
    struct side *side = &thread->sides[draw(thread, SIDES)];
    struct queue *queue = &thread->queues[draw(thread, QUEUES)];
    unsigned what = draw(thread, 400);
    if (what < 130)
        post(side, 0);
    else if (what < 190)
        post_receives(side, 1 + draw(thread, 4));
    else if (what < 260)
        take(thread, queue);
    else if (what < 330)
        arm(thread, queue, SOLICITED + draw(thread, 2));
    else if (what < 370)
        take_event(thread, &thread->channels[draw(thread, CHANNELS)]);
    else if (what < 376)
        resize(thread, queue);
    else if (what < 383)
        settle(thread, draw(thread, 2));
    else if (what < 389)
        be_exact(thread);
    else if (what < 394)
        break_pair(side);
    else if (what < 397)
        set_limit(thread);
    else
        renew(thread, queue);
    take_asynchronous(thread);
}

static void begin(struct thread *thread)
{
    struct ibv_context *context = thread->context = open_first(&thread->gid);
    WANT(thread, !fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
    thread->vector = thread->seed % context->num_comp_vectors;
    WANT(thread, thread->pd = ibv_alloc_pd(context));
    WANT(thread, thread->mr = ibv_reg_mr(thread->pd, thread->memory, sizeof thread->memory,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
    WANT(thread, thread->srq = ibv_create_srq(thread->pd, &shared));
    thread->shared_free = RECEIVES;
    for (int i = 0; i < RECEIVES * SIDES; i++)
        thread->places[thread->places_count++] = i;
    WANT(thread, thread->fence_channel = ibv_create_comp_channel(context));
    WANT(thread, thread->fence_cq = ibv_create_cq(context, 16, NULL, thread->fence_channel, thread->vector));
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = { .send_cq = thread->fence_cq, .recv_cq = thread->fence_cq,
            .cap = { 4, 1, 1, 1, 8 }, .qp_type = IBV_QPT_RC };
        WANT(thread, thread->fence[i] = ibv_create_qp(thread->pd, &init));
    }
    join(thread->fence[0], thread->fence[1], &thread->gid);
    for (int c = 0; c < CHANNELS; c++) {
        struct channel *channel = &thread->channels[c];
        WANT(thread, channel->channel = ibv_create_comp_channel(context));
        channel->is_threaded = c;
        pthread_mutex_init(&channel->lock, NULL);
        WANT(thread, !pipe(channel->told) && !fcntl(channel->told[0], F_SETFL, O_NONBLOCK));
        if (channel->is_threaded)
            WANT(thread, !pthread_create(&channel->reader, NULL, read_events, channel));
        else
            WANT(thread, !fcntl(channel->channel->fd, F_SETFL, O_NONBLOCK));
    }
    for (int q = 0; q < QUEUES; q++)
        make_queue(thread, &thread->queues[q]);
    for (int s = 0; s < SIDES; s++) {
        thread->sides[s].thread = thread;
        thread->sides[s].index = s;
        thread->sides[s].peer = &thread->sides[s ^ 1];
    }
    for (int s = 0; s < SIDES; s += 2)
        make_pair(&thread->sides[s]);
}

static void finish(struct thread *thread)
{
    be_exact(thread);
    for (int s = 0; s < SIDES; s++)
        WANT(thread, !ibv_destroy_qp(thread->sides[s].qp));
    for (int q = 0; q < QUEUES; q++) {
        acknowledge(&thread->queues[q], thread->queues[q].unacknowledged);
        WANT(thread, !ibv_destroy_cq(thread->queues[q].cq));
    }
    for (int c = 0; c < CHANNELS; c++) {
        struct channel *channel = &thread->channels[c];
        if (channel->is_threaded) {
            /* One more event ends the reader. */
            struct queue last = { 0 };
            last.cq = ibv_create_cq(thread->context, 4, &last, channel->channel, 0);
            struct ibv_qp_init_attr init = { .send_cq = last.cq, .recv_cq = last.cq, .cap = { 1, 1, 1, 1, 0 },
                .qp_type = IBV_QPT_RC };
            struct ibv_qp *qp = last.cq ? ibv_create_qp(thread->pd, &init) : NULL;
            struct ibv_qp_attr begun = { .qp_state = IBV_QPS_INIT, .port_num = 1 }, error = { .qp_state = IBV_QPS_ERR };
            struct ibv_recv_wr wr = { 0 }, *bad;
            int given = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            WANT(thread, qp && !ibv_modify_qp(qp, &begun, given) && !ibv_modify_qp(qp, &error, IBV_QP_STATE));
            WANT(thread, !ibv_req_notify_cq(last.cq, 0));
            channel->must_end = 1;
            WANT(thread, !ibv_post_recv(qp, &wr, &bad) && !pthread_join(channel->reader, NULL));
            ibv_ack_cq_events(last.cq, 1);
            WANT(thread, !ibv_destroy_qp(qp) && !ibv_destroy_cq(last.cq));
        }
        WANT(thread, !ibv_destroy_comp_channel(channel->channel));
        close(channel->told[0]);
        close(channel->told[1]);
    }
    WANT(thread, !ibv_destroy_qp(thread->fence[0]) && !ibv_destroy_qp(thread->fence[1]));
    WANT(thread, !ibv_destroy_cq(thread->fence_cq) && !ibv_destroy_comp_channel(thread->fence_channel));
    WANT(thread, !ibv_destroy_srq(thread->srq) && !ibv_dereg_mr(thread->mr) && !ibv_dealloc_pd(thread->pd));
    take_asynchronous(thread);
    WANT(thread, !ibv_close_device(thread->context));
}

static int has_done_enough(const struct thread *thread)
{
    return thread->completions > thread->steps / 8 && thread->events > thread->steps / 50;
}

static void *run(void *given)
{
    struct thread *thread = given;
    begin(thread);
    for (thread->step = 0; has_steps(thread, has_done_enough(thread)); thread->step++)
        step(thread);
    finish(thread);
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count == 4);
    int number = run_threads(words + 1, run);
    for (int i = 0; i < number; i++)
        CHECK(has_done_enough(&threads[i]));
    if (getenv("VERBOSE"))
        fprintf(stderr, "%lu completions, %lu events, %lu asynchronous\n", threads[0].completions, threads[0].events,
            threads[0].asynchronous);
    puts("ok");
    return 0;
}
