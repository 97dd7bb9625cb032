/* Random batches of requests that are built call by call, beside chains of ordinary posts on the same queue pairs:
 * aborted, refused, too long for the ring, failing in the middle, with inline data in pieces, memory windows that are
 * bound, written through and invalidated from either side, and completions that are read by their fields. Of a batch
 * all is posted or nothing, of a chain what is before the refused request.
 * Arguments: a seed, steps, threads. Says "ok" and ends with 0. */
#include "connect.h"
#include <pthread.h>
#include <stdint.h>

#define RECEIVE (1ULL << 63) /* in the numbers of receives */

enum { PAIRS = 3, SIDES = 2 * PAIRS, DEPTH = 24, SLOT = 2048, QUEUES = 3, ASKED_INLINE = 200, LONGEST = 40, ACCESS =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND };

/* Parts of a side's memory, DEPTH slots each: what it sends or writes, what it reads, what it receives, what its peer
 * writes, what its peer reads. */
enum part { OUT, READ, IN, WRITTEN, SHOWN, PARTS };
enum window_state { CLOSED, BINDING, BOUND, CLOSING };
enum flaw { NONE, ATOMIC, SEGMENTS, NO_REQUEST, NO_REGION, ZERO_BASED, INLINE_TOO_LONG, FRAGMENTS, TOO_MANY, FLAWS };

struct request {
    uint64_t number;
    int opcode, is_signalled, must_fail, uses_window;
    uint32_t length, immediate, rkey;
    unsigned key;
    /* pieces of the data; inline or not */
    struct ibv_sge parts[3];
    int count, is_inline, flags;
    uint64_t remote;
};

struct side {
    struct thread *thread;
    struct side *peer;
    int index;
    struct ibv_qp *qp;
    struct ibv_qp_ex *ex;
    int send_queue, receive_queue;
    struct ibv_mr *mr;
    unsigned char *memory;
    uint32_t inline_bytes;
    uint64_t next_request, next_receive;
    struct request sent[DEPTH + LONGEST], expected[DEPTH + LONGEST];
    unsigned sent_first, sent_count, unsignalled, expected_first, expected_count, posted_count;
    int has_failed;
    struct ibv_mw *window;
    enum window_state window_state;
    uint32_t window_key;
    unsigned window_users;
};

struct thread {
    unsigned seed, steps, random, step;
    struct ibv_context *context;
    struct ibv_pd *plain_pd, *pd;
    struct ibv_td *td;
    struct ibv_cq *queues[QUEUES];
    struct ibv_cq_ex *extended[QUEUES];
    struct side sides[SIDES];
    unsigned long completions, batches, refused;
};

static union ibv_gid gid;

#define RING (DEPTH + LONGEST)
#include "random.h"

#define WANT(side, what) WANT_AT((side)->thread, (side)->index, what)

static unsigned char *slot(struct side *side, enum part part, unsigned at)
{
    return side->memory + ((size_t)part * RING + at % RING) * SLOT;
}

static int is_message(int opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
        opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static int has_immediate(int opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Completions. */

static void received(struct side *side, struct ibv_wc *wc)
{
    WANT(side, side->posted_count && wc->wr_id == (RECEIVE | (side->next_receive - side->posted_count)));
    const unsigned char *data = slot(side, IN, side->next_receive - side->posted_count);
    side->posted_count--;
    if (wc->status == IBV_WC_WR_FLUSH_ERR)
        return;
    WANT(side, wc->status == IBV_WC_SUCCESS && side->expected_count);
    struct request message = side->expected[side->expected_first];
    side->expected_first = (side->expected_first + 1) % RING;
    side->expected_count--;
    WANT(side, wc->byte_len == message.length);
    WANT(side, (wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == (has_immediate(message.opcode) ? IBV_WC_WITH_IMM :
        message.opcode == IBV_WR_SEND_WITH_INV ? IBV_WC_WITH_INV : 0u));
    if (has_immediate(message.opcode))
        WANT(side, wc->imm_data == message.immediate);
    if (message.opcode == IBV_WR_SEND_WITH_INV) {
        WANT(side, wc->invalidated_rkey == message.immediate && message.immediate == side->window_key);
        side->window_state = CLOSED;
    }
    if (message.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        WANT(side, wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
        WANT(side, is_filled(slot(side, WRITTEN, message.number), message.key, message.length));
    } else {
        WANT(side, wc->opcode == IBV_WC_RECV && is_filled(data, message.key, message.length));
    }
}

static void is_done(struct side *side, struct request *request)
{
    side->peer->window_users -= request->uses_window;
    if (request->opcode == IBV_WR_RDMA_READ)
        WANT(side, is_filled(slot(side, READ, request->number), request->key, request->length));
    if (request->opcode == IBV_WR_RDMA_WRITE)
        WANT(side, is_filled(slot(side->peer, WRITTEN, request->number), request->key, request->length));
    if (request->opcode == IBV_WR_BIND_MW)
        side->window_state = BOUND;
    if (request->opcode == IBV_WR_LOCAL_INV)
        side->window_state = CLOSED;
}

static void sent(struct side *side, struct ibv_wc *wc)
{
    for (;;) {
        WANT(side, side->sent_count);
        struct request oldest = side->sent[side->sent_first];
        side->sent_first = (side->sent_first + 1) % RING;
        side->sent_count--;
        if (wc->wr_id != oldest.number) {
            /* Only a success that was not asked for is not reported. */
            WANT(side, !side->has_failed && !oldest.is_signalled && !oldest.must_fail);
            is_done(side, &oldest);
            continue;
        }
        if (wc->status == IBV_WC_SUCCESS) {
            static const int opcodes[] = { [IBV_WR_SEND] = IBV_WC_SEND, [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                [IBV_WR_SEND_WITH_INV] = IBV_WC_SEND, [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
                [IBV_WR_BIND_MW] = IBV_WC_BIND_MW, [IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV };
            WANT(side, !side->has_failed && oldest.is_signalled && !oldest.must_fail);
            WANT(side, (int)wc->opcode == opcodes[oldest.opcode]);
            is_done(side, &oldest);
            return;
        }
        if (!side->has_failed && oldest.must_fail)
            WANT(side, wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_WR_FLUSH_ERR);
        else
            WANT(side, wc->status == IBV_WC_WR_FLUSH_ERR);
        side->has_failed = 1;
        return;
    }
}

static void take_one(struct thread *thread, int queue, struct ibv_wc *wc)
{
    struct side *side = NULL;
    for (int s = 0; s < SIDES && !side; s++)
        if (thread->sides[s].qp->qp_num == wc->qp_num)
            side = &thread->sides[s];
    CHECK(side);
    thread->completions++;
    int is_receive = wc->wr_id >= RECEIVE;
    WANT(side, queue == (is_receive ? side->receive_queue : side->send_queue));
    if (is_receive)
        received(side, wc);
    else
        sent(side, wc);
}

static void post(struct side *side, unsigned count, int fails);

/* Reads completions field by field; requests are posted meanwhile. */
static void take_by_fields(struct thread *thread, int queue)
{
    struct ibv_cq_ex *cq = thread->extended[queue];
    struct ibv_poll_cq_attr attr = { 0 };
    int error = ibv_start_poll(cq, &attr);
    if (error) {
        CHECK(error == ENOENT);
        return;
    }
    for (unsigned left = draw(thread, 8);; left--) {
        struct ibv_wc wc = { .wr_id = cq->wr_id, .status = cq->status, .qp_num = ibv_wc_read_qp_num(cq) };
        if (wc.status == IBV_WC_SUCCESS) {
            wc.opcode = ibv_wc_read_opcode(cq);
            wc.byte_len = ibv_wc_read_byte_len(cq);
            wc.wc_flags = ibv_wc_read_wc_flags(cq);
            if (wc.wc_flags & IBV_WC_WITH_IMM)
                wc.imm_data = ibv_wc_read_imm_data(cq);
            if (wc.wc_flags & IBV_WC_WITH_INV)
                wc.invalidated_rkey = ibv_wc_read_invalidated_rkey(cq);
        }
        take_one(thread, queue, &wc);
        if (draw(thread, 8) == 0)
            post(&thread->sides[draw(thread, SIDES)], 1 + draw(thread, 3), 0);
        if (!left || (error = ibv_next_poll(cq)))
            break;
    }
    CHECK(!error || error == ENOENT);
    ibv_end_poll(cq);
}

static void take(struct thread *thread)
{
    for (int q = 0; q < QUEUES; q++) {
        if (thread->extended[q] && draw(thread, 4)) {
            take_by_fields(thread, q);
            continue;
        }
        struct ibv_wc done[7];
        int count = ibv_poll_cq(thread->queues[q], 1 + draw(thread, 7), done);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++)
            take_one(thread, q, &done[i]);
    }
}

/* Posts. */

static void post_receives(struct side *side, unsigned count)
{
    while (count-- && side->posted_count < DEPTH) {
        struct ibv_sge part = { (uintptr_t)slot(side, IN, side->next_receive), SLOT, side->mr->lkey };
        struct ibv_recv_wr wr = { .sg_list = &part, .num_sge = 1, .wr_id = RECEIVE | side->next_receive }, *bad;
        WANT(side, !ibv_post_recv(side->qp, &wr, &bad));
        side->next_receive++;
        side->posted_count++;
    }
}

/* Cuts a request's data into pieces. */
static void cut(struct side *side, struct request *request)
{
    unsigned char *local = slot(side, request->opcode == IBV_WR_RDMA_READ ? READ : OUT, request->number);
    if (request->opcode == IBV_WR_RDMA_READ) {
        fill(slot(side->peer, SHOWN, request->number), request->key, request->length);
        memset(local, 0xEE, request->length);
    } else {
        fill(local, request->key, request->length);
    }
    uint32_t left = request->length, done = 0;
    request->count = 0;
    while (left && request->count < 3) {
        uint32_t bytes = request->count == 2 ? left : 1 + draw(side->thread, left);
        request->parts[request->count++] = (struct ibv_sge) { (uintptr_t)local + done, bytes, side->mr->lkey };
        done += bytes;
        left -= bytes;
    }
}

/* A random request. What it changes in the state of the windows it changes at once: a caller that does not post it
 * puts that back. */
static struct request make(struct side *side, uint64_t number, int fails)
{
    static const int opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV };
    struct thread *thread = side->thread;
    struct side *peer = side->peer;
    struct request request = { .number = number, .opcode = opcodes[draw(thread, 8)], .key = draw(thread, 256),
        .immediate = draw(thread, 1 << 30), .must_fail = fails };
    if (fails)
        request.opcode = draw(thread, 2) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    if ((request.opcode == IBV_WR_SEND_WITH_INV && peer->window_state != BOUND) ||
        (request.opcode == IBV_WR_BIND_MW && side->window_state != CLOSED) ||
        (request.opcode == IBV_WR_LOCAL_INV && (side->window_state != BOUND || side->window_users)))
        request.opcode = IBV_WR_RDMA_WRITE;
    request.length = draw(thread, 3) ? draw(thread, 250) : draw(thread, SLOT);
    request.is_inline = request.opcode != IBV_WR_RDMA_READ && request.length <= side->inline_bytes && draw(thread, 2);
    request.rkey = peer->mr->rkey;
    request.remote = (uintptr_t)slot(peer, request.opcode == IBV_WR_RDMA_READ ? SHOWN : WRITTEN, number);
    if (fails) {
        request.length++;
        request.rkey = side->mr->rkey ^ 0xABCDE00;
        request.is_inline = 0;
    }
    switch (request.opcode) {
    case IBV_WR_SEND_WITH_INV:
        request.immediate = peer->window_key;
        peer->window_state = CLOSING;
        break;
    case IBV_WR_BIND_MW:
        side->window_key = ibv_inc_rkey(side->window_key);
        side->window_state = BINDING;
        request.length = request.is_inline = 0;
        break;
    case IBV_WR_LOCAL_INV:
        request.immediate = side->window_key;
        side->window_state = CLOSING;
        request.length = request.is_inline = 0;
        break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        if (!fails && peer->window_state == BOUND && draw(thread, 2)) {
            request.uses_window = 1;
            request.rkey = peer->window_key;
            peer->window_users++;
        }
        break;
    }
    request.is_signalled = draw(thread, 2) || side->unsignalled >= 6;
    side->unsignalled = request.is_signalled ? 0 : side->unsignalled + 1;
    request.flags = (request.is_signalled ? IBV_SEND_SIGNALED : 0) | (draw(thread, 6) ? 0 : IBV_SEND_FENCE) |
        (draw(thread, 8) ? 0 : IBV_SEND_SOLICITED);
    cut(side, &request);
    return request;
}

/* Adds a request to the batch. */
static void build(struct side *side, struct request *request)
{
    struct ibv_qp_ex *ex = side->ex;
    struct ibv_mw_bind_info bind = { side->mr, (uintptr_t)slot(side, WRITTEN, 0), (uint64_t)RING * SLOT, IBV_ACCESS_REMOTE_WRITE };
    ex->wr_id = request->number;
    ex->wr_flags = request->flags;
    switch (request->opcode) {
    case IBV_WR_SEND: ibv_wr_send(ex); break;
    case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, request->immediate); break;
    case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(ex, request->immediate); break;
    case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, request->rkey, request->remote); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(ex, request->rkey, request->remote, request->immediate); break;
    case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, request->rkey, request->remote); break;
    case IBV_WR_LOCAL_INV: ibv_wr_local_inv(ex, request->immediate); return;
    default: ibv_wr_bind_mw(ex, side->window, side->window_key, &bind); return;
    }
    if (request->is_inline) {
        struct ibv_data_buf pieces[3];
        for (int i = 0; i < request->count; i++)
            pieces[i] = (struct ibv_data_buf) { (void *)(uintptr_t)request->parts[i].addr, request->parts[i].length };
        if (request->count == 1 && draw(side->thread, 2))
            ibv_wr_set_inline_data(ex, pieces[0].addr, pieces[0].length);
        else
            ibv_wr_set_inline_data_list(ex, request->count, pieces);
        for (int i = 0; i < request->count; i++)
            memset(pieces[i].addr, 0xDD, pieces[i].length);
    } else if (request->count == 1 && draw(side->thread, 2)) {
        ibv_wr_set_sge(ex, request->parts[0].lkey, request->parts[0].addr, request->parts[0].length);
    } else if (request->count || draw(side->thread, 2)) {
        ibv_wr_set_sge_list(ex, request->count, request->parts);
    }
}

/* Adds what makes a batch one that is refused; returns the error. */
static int spoil(struct side *side, enum flaw flaw)
{
    static char bytes[4096];
    struct ibv_qp_ex *ex = side->ex;
    struct ibv_mw_bind_info bind = { NULL, (uintptr_t)side->memory, SLOT, IBV_ACCESS_REMOTE_WRITE };
    struct ibv_sge many[14] = { { 0 } };
    ex->wr_id = RECEIVE - 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    switch (flaw) {
    case ATOMIC: ibv_wr_atomic_fetch_add(ex, side->peer->mr->rkey, (uintptr_t)side->peer->memory, 1); return EOPNOTSUPP;
    case SEGMENTS: ibv_wr_send_tso(ex, bytes, 64, 1000); return EOPNOTSUPP;
    case NO_REGION: ibv_wr_bind_mw(ex, side->window, ibv_inc_rkey(side->window_key), &bind); return EINVAL;
    case ZERO_BASED:
        bind.mr = side->mr;
        bind.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
        ibv_wr_bind_mw(ex, side->window, ibv_inc_rkey(side->window_key), &bind);
        return EINVAL;
    case INLINE_TOO_LONG:
        ibv_wr_send(ex);
        ibv_wr_set_inline_data(ex, bytes, side->inline_bytes + 1 + draw(side->thread, 2) * draw(side->thread, 800));
        return EINVAL;
    case FRAGMENTS:
        ibv_wr_send(ex);
        ibv_wr_set_sge_list(ex, draw(side->thread, 2) ? 14 : 4, many);
        return EINVAL;
    default:
        for (int i = 0; i < 5000; i++) {
            ibv_wr_rdma_write(ex, side->peer->mr->rkey, (uintptr_t)side->peer->memory);
            ibv_wr_set_sge(ex, side->mr->lkey, (uintptr_t)side->memory, 1);
        }
        return ENOMEM;
    }
}

/* False if so many more requests would take places in memory that earlier ones still need: they are under way, or the
 * peer's program has not looked at them yet. */
static int have_places(const struct side *side, unsigned count)
{
    const struct side *peer = side->peer;
    return side->sent_count + count <= RING && peer->expected_count + count <= RING && (!peer->expected_count ||
        side->next_request + count - peer->expected[peer->expected_first].number <= RING);
}

static void note(struct side *side, struct request *request)
{
    struct side *peer = side->peer;
    side->sent[(side->sent_first + side->sent_count++) % RING] = *request;
    if (is_message(request->opcode))
        peer->expected[(peer->expected_first + peer->expected_count++) % RING] = *request;
    side->next_request++;
}

/* A batch that is not posted: whatever it was, nothing of it is seen. */
static void post_nothing(struct side *side, unsigned count)
{
    struct thread *thread = side->thread;
    struct side before = *side, peer_before = *side->peer;
    enum flaw flaw = draw(thread, FLAWS);
    unsigned at = draw(thread, count + 1);
    int error = 0;
    if (!have_places(side, count))
        return;
    ibv_wr_start(side->ex);
    if (flaw == NO_REQUEST) {
        ibv_wr_set_sge(side->ex, side->mr->lkey, (uintptr_t)side->memory, 1);
        error = EINVAL;
    }
    for (unsigned i = 0; i <= count; i++) {
        if (i == at && flaw != NONE && !error)
            error = spoil(side, flaw);
        if (i == count)
            break;
        struct request request = make(side, side->next_request + i, 0);
        build(side, &request);
        /* Memory that it would have written is not as it would be. */
        fill(slot(side->peer, WRITTEN, request.number), request.key + 1, request.length);
    }
    if (flaw == NONE || draw(thread, 4) == 0) {
        ibv_wr_abort(side->ex);
    } else {
        int found = ibv_wr_complete(side->ex);
        WANT(side, found == error || (found == ENOMEM && before.sent_count + count >= DEPTH));
    }
    thread->refused++;
    side->window_state = before.window_state;
    side->window_key = before.window_key;
    side->unsignalled = before.unsignalled;
    side->peer->window_state = peer_before.window_state;
    side->peer->window_users = peer_before.window_users;
}

/* A chain of ordinary posts; with a refused request in it, what is before that is posted. */
static unsigned chain(struct side *side, struct request *all, unsigned count)
{
    struct ibv_send_wr wrs[LONGEST] = { 0 }, *bad = NULL;
    struct thread *thread = side->thread;
    unsigned refused = draw(thread, 4) ? count : draw(thread, count);
    for (unsigned i = 0; i < count; i++) {
        struct request *request = &all[i];
        wrs[i] = (struct ibv_send_wr) { .wr_id = request->number, .next = i + 1 < count ? &wrs[i + 1] : NULL,
            .sg_list = request->parts, .num_sge = request->count, .opcode = request->opcode,
            .send_flags = request->flags | (request->is_inline ? IBV_SEND_INLINE : 0), .imm_data = request->immediate };
        wrs[i].wr.rdma.remote_addr = request->remote;
        wrs[i].wr.rdma.rkey = request->rkey;
        if (request->opcode == IBV_WR_BIND_MW) {
            wrs[i].bind_mw.mw = side->window;
            wrs[i].bind_mw.rkey = side->window_key;
            wrs[i].bind_mw.bind_info = (struct ibv_mw_bind_info) { side->mr, (uintptr_t)slot(side, WRITTEN, 0),
                (uint64_t)RING * SLOT, IBV_ACCESS_REMOTE_WRITE };
        }
    }
    if (refused < count && all[refused].opcode != IBV_WR_BIND_MW && all[refused].opcode != IBV_WR_LOCAL_INV)
        wrs[refused].num_sge = draw(side->thread, 2) ? 14 : 4;
    else
        refused = count;
    int error = ibv_post_send(side->qp, wrs, &bad);
    unsigned posted = error ? (unsigned)(bad - wrs) : count;
    WANT(side, !error == !bad && (!error || posted < count));
    WANT(side, error != EINVAL || posted == refused);
    WANT(side, !error || error == EINVAL || error == ENOMEM);
    WANT(side, !error || error == EINVAL || side->sent_count + posted >= DEPTH);
    WANT(side, refused == count || error);
    for (unsigned i = 0; i < posted; i++)
        for (int n = 0; all[i].is_inline && n < all[i].count; n++)
            memset((void *)(uintptr_t)all[i].parts[n].addr, 0xDD, all[i].parts[n].length);
    return posted;
}

/* Posts requests in one batch or one chain; one that must fail is the last of it. */
static void post(struct side *side, unsigned count, int fails)
{
    struct thread *thread = side->thread;
    struct side *peer = side->peer;
    struct request all[LONGEST];
    struct side before = *side, peer_before = *peer;
    if (!have_places(side, count))
        return;
    unsigned posted;
    int is_batch = draw(thread, 2);
    if (is_batch)
        ibv_wr_start(side->ex);
    for (unsigned i = 0; i < count; i++) {
        all[i] = make(side, side->next_request + i, fails && i + 1 == count);
        if (is_batch)
            build(side, &all[i]);
    }
    if (is_batch) {
        int error = ibv_wr_complete(side->ex);
        WANT(side, !error || (error == ENOMEM && side->sent_count + count > DEPTH));
        posted = error ? 0 : count;
        thread->batches += !error;
    } else {
        posted = chain(side, all, count);
    }
    for (unsigned i = 0; i < posted; i++)
        note(side, &all[i]);
    if (posted == count)
        return;
    /* Requests that were not posted change no window. */
    side->window_state = before.window_state;
    side->window_key = before.window_key;
    peer->window_state = peer_before.window_state;
    peer->window_users = peer_before.window_users;
    side->unsignalled = DEPTH;
    for (unsigned i = 0; i < posted; i++) {
        if (all[i].opcode == IBV_WR_BIND_MW) {
            side->window_key = ibv_inc_rkey(side->window_key);
            side->window_state = BINDING;
        }
        if (all[i].opcode == IBV_WR_LOCAL_INV)
            side->window_state = CLOSING;
        if (all[i].opcode == IBV_WR_SEND_WITH_INV)
            peer->window_state = CLOSING;
        peer->window_users += all[i].uses_window;
    }
}

static void settle(struct side *side)
{
    struct thread *thread = side->thread;
    time_t end = time(NULL) + SECONDS;
    for (int i = 0; i < 2; i++, side = side->peer)
        /* The last request is signalled, so that all are known to be done. */
        while (side->sent_count && !side->sent[(side->sent_first + side->sent_count - 1) % RING].is_signalled) {
            side->unsignalled = DEPTH;
            if (side->sent_count < DEPTH)
                post(side, 1, 0);
            post_receives(side->peer, 4);
            take(thread);
            WANT(side, time(NULL) < end);
        }
    while (side->sent_count || side->peer->sent_count || side->expected_count || side->peer->expected_count) {
        post_receives(side, 4);
        post_receives(side->peer, 4);
        take(thread);
        /* take() posts, too. */
        for (int i = 0; i < 2; i++, side = side->peer)
            if (side->sent_count && !side->sent[(side->sent_first + side->sent_count - 1) % RING].is_signalled) {
                side->unsignalled = DEPTH;
                post(side, 1, 0);
            }
        WANT(side, time(NULL) < end);
    }
}

static void make_pair(struct side *side)
{
    struct thread *thread = side->thread;
    for (int i = 0; i < 2; i++, side = side->peer) {
        side->send_queue = draw(thread, QUEUES);
        side->receive_queue = draw(thread, QUEUES);
        struct ibv_qp_init_attr_ex init = { .send_cq = thread->queues[side->send_queue],
            .recv_cq = thread->queues[side->receive_queue], .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
                .max_send_sge = 3, .max_recv_sge = 1, .max_inline_data = draw(thread, 3) ? ASKED_INLINE : 64 },
            .qp_type = IBV_QPT_RC, .pd = thread->pd, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
                IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV };
        WANT(side, side->qp = ibv_create_qp_ex(thread->context, &init));
        WANT(side, side->ex = ibv_qp_to_qp_ex(side->qp));
        side->inline_bytes = init.cap.max_inline_data;
    }
    join(side->qp, side->peer->qp, &gid);
}

static void make_window(struct side *side)
{
    if (side->window)
        WANT(side, !ibv_dealloc_mw(side->window));
    WANT(side, side->window = ibv_alloc_mw(side->thread->pd, IBV_MW_TYPE_2));
    side->window_state = CLOSED;
    side->window_key = side->window->rkey;
    side->window_users = 0;
}

/* Breaks a pair, takes what completes, and connects it again or makes another one. */
static void break_pair(struct side *side)
{
    struct thread *thread = side->thread;
    struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
    settle(side);
    if (draw(thread, 2)) {
        post(side, 1 + draw(thread, 3), 1);
        if (draw(thread, 2))
            post(side, 1 + draw(thread, 3), 0);
    } else {
        post(side, 1 + draw(thread, 3), 0);
    }
    int is_reset = draw(thread, 2);
    WANT(side, !ibv_modify_qp(side->qp, &error, IBV_QP_STATE));
    WANT(side, !ibv_modify_qp(side->peer->qp, &error, IBV_QP_STATE));
    time_t end = time(NULL) + SECONDS;
    for (int i = 0; i < 2; i++, side = side->peer) {
        /* One more, which is flushed as the last: all before it are over then. */
        struct ibv_send_wr wr = { .wr_id = side->next_request, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
        struct request last = { .number = side->next_request, .opcode = IBV_WR_RDMA_WRITE, .is_signalled = 1, .must_fail = 1 };
        WANT(side, !ibv_post_send(side->qp, &wr, &bad));
        note(side, &last);
    }
    while (side->sent_count || side->posted_count || side->peer->sent_count || side->peer->posted_count) {
        for (int q = 0; q < QUEUES; q++) {
            struct ibv_wc wc;
            if (ibv_poll_cq(thread->queues[q], 1, &wc) == 1)
                take_one(thread, q, &wc);
        }
        WANT(side, time(NULL) < end);
    }
    for (int i = 0; i < 2; i++, side = side->peer) {
        if (is_reset)
            WANT(side, !ibv_modify_qp(side->qp, &reset, IBV_QP_STATE));
        else
            WANT(side, !ibv_destroy_qp(side->qp));
        side->expected_count = side->unsignalled = side->has_failed = 0;
        make_window(side);
    }
    if (is_reset)
        join(side->qp, side->peer->qp, &gid);
    else
        make_pair(side);
}

static void step(struct thread *thread)
{
    struct side *side = &thread->sides[draw(thread, SIDES)];
    unsigned what = draw(thread, 400);
    if (what < 130)
        post(side, 1 + draw(thread, 6), 0);
    else if (what < 140)
        post(side, 1 + draw(thread, LONGEST), 0);
    else if (what < 180)
        post_nothing(side, draw(thread, 5));
    else if (what < 280)
        post_receives(side, 1 + draw(thread, 4));
    else if (what < 392)
        take(thread);
    else if (what < 396)
        settle(side);
    else
        break_pair(side);
}

static int has_done_enough(const struct thread *thread)
{
    return thread->completions > thread->steps / 4 && thread->batches > thread->steps / 20 &&
        thread->refused > thread->steps / 40;
}

static void *run(void *given)
{
    struct thread *thread = given;
    CHECK(thread->pd = thread->plain_pd = ibv_alloc_pd(thread->context));
    if (thread->seed % 2) {
        struct ibv_td_init_attr no_flags = { 0 };
        CHECK(thread->td = ibv_alloc_td(thread->context, &no_flags));
        struct ibv_parent_domain_init_attr both = { .pd = thread->plain_pd, .td = thread->td };
        CHECK(thread->pd = ibv_alloc_parent_domain(thread->context, &both));
    }
    for (int i = 0; i < QUEUES; i++) {
        struct ibv_cq_init_attr_ex wanted = { .cqe = 2000, .wc_flags = IBV_WC_STANDARD_FLAGS };
        if (i)
            CHECK(thread->queues[i] = ibv_cq_ex_to_cq(thread->extended[i] = ibv_create_cq_ex(thread->context, &wanted)));
        else
            CHECK(thread->queues[i] = ibv_create_cq(thread->context, 2000, NULL, NULL, 0));
    }
    for (int i = 0; i < SIDES; i++) {
        struct side *side = &thread->sides[i];
        size_t bytes = (size_t)PARTS * RING * SLOT;
        side->thread = thread;
        side->index = i;
        side->peer = &thread->sides[i ^ 1];
        CHECK(side->memory = malloc(bytes));
        CHECK(side->mr = ibv_reg_mr(thread->pd, side->memory, bytes, ACCESS));
        make_window(side);
    }
    for (int i = 0; i < SIDES; i += 2)
        make_pair(&thread->sides[i]);
    for (thread->step = 0; has_steps(thread, has_done_enough(thread)); thread->step++)
        step(thread);
    for (int i = 0; i < SIDES; i += 2)
        settle(&thread->sides[i]);
    for (int i = 0; i < SIDES; i++) {
        struct side *side = &thread->sides[i];
        CHECK(!ibv_destroy_qp(side->qp) && !ibv_dealloc_mw(side->window) && !ibv_dereg_mr(side->mr));
        free(side->memory);
    }
    for (int i = 0; i < QUEUES; i++)
        CHECK(!ibv_destroy_cq(thread->queues[i]));
    CHECK(thread->pd == thread->plain_pd || (!ibv_dealloc_pd(thread->pd) && !ibv_dealloc_td(thread->td)));
    CHECK(!ibv_dealloc_pd(thread->plain_pd));
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count == 4);
    struct ibv_context *context = open_first(&gid);
    for (int i = 0; i < MAX_THREADS; i++)
        threads[i].context = context;
    int number = run_threads(words + 1, run);
    for (int i = 0; i < number; i++)
        CHECK(has_done_enough(&threads[i]));
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
