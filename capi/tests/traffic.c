/* Random traffic on several pairs of queue pairs in each of some threads, with every completion, message and byte
 * compared with what was posted: writes, sends and reads of any length, in chains, signalled or not, inline, with
 * shared completion queues, shared receive queues, queues that are resized, errors, resets and new queue pairs.
 * Arguments: a seed, steps, threads. Says "ok" and ends with 0. */
#include "connect.h"
#include <pthread.h>
#include <stdint.h>

#define RECEIVE (1ULL << 63) /* in the numbers of receives */

enum { PAIRS = 4, DEPTH = 32, SLOT = 12288, QUEUES = 3, INLINE = 64, ACCESS = IBV_ACCESS_LOCAL_WRITE |
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, SHARED_WRS = 128 };

/* Parts of a side's memory, DEPTH slots each: what it sends or writes, what it reads, what it receives, what its
 * peer writes, what its peer reads. */
enum part { OUT, READ, IN, WRITTEN, SHOWN, PARTS };

struct request {
    uint64_t number;
    int opcode, is_signalled, must_fail;
    uint32_t length, immediate;
    unsigned key;
};

struct receive {
    uint64_t number;
    int slot;
};

struct side {
    struct thread *thread;
    struct side *peer;
    int index;
    struct ibv_qp *qp;
    struct ibv_cq *send_cq, *receive_cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    unsigned char *memory;
    uint64_t next_request, next_receive;
    /* requests that may complete, oldest first */
    struct request sent[DEPTH];
    unsigned sent_first, sent_count, unsignalled;
    int has_failed;
    /* receives of its own, oldest first */
    struct receive posted[DEPTH];
    unsigned posted_first, posted_count;
    /* messages that it is to receive, oldest first */
    struct request expected[DEPTH];
    unsigned expected_first, expected_count;
};

struct thread {
    unsigned seed, steps, random, step;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *queues[QUEUES];
    struct ibv_srq *srq;
    struct ibv_mr *shared_mr;
    unsigned char *shared_memory;
    int shared_free[SHARED_WRS], shared_free_count;
    struct side sides[2 * PAIRS];
    unsigned long completions;
};

static union ibv_gid gid;

#include "random.h"

#define WANT(side, what) WANT_AT((side)->thread, (side)->index, what)

/* What a side waits for. */
static void show(struct side *side)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init));
    fprintf(stderr, "side %d: state %d, %u requests, %u receives%s, %u messages, shared free %d, oldest request %d of %u bytes%s\n",
        side->index, attr.qp_state, side->sent_count, side->posted_count, side->srq ? " (shared)" : "", side->expected_count,
        side->thread->shared_free_count, side->sent[side->sent_first].opcode, side->sent[side->sent_first].length,
        side->sent[side->sent_first].is_signalled ? ", signalled" : "");
}

static unsigned char *slot(struct side *side, enum part part, unsigned at)
{
    return side->memory + ((size_t)part * DEPTH + at % DEPTH) * SLOT;
}

static int is_message(int opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static int has_immediate(int opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Receives. */

static void post_receives(struct side *side, unsigned count)
{
    struct thread *thread = side->thread;
    for (unsigned i = 0; i < count; i++) {
        struct ibv_sge part = { 0, SLOT, 0 };
        struct ibv_recv_wr wr = { .sg_list = &part, .num_sge = 1 }, *bad;
        if (side->srq) {
            if (!thread->shared_free_count)
                return;
            int at = thread->shared_free[--thread->shared_free_count];
            part.addr = (uintptr_t)(thread->shared_memory + (size_t)at * SLOT);
            part.lkey = thread->shared_mr->lkey;
            wr.wr_id = RECEIVE | at;
            WANT(side, !ibv_post_srq_recv(side->srq, &wr, &bad));
            continue;
        }
        if (side->posted_count == DEPTH)
            return;
        unsigned at = (side->posted_first + side->posted_count++) % DEPTH;
        side->posted[at] = (struct receive) { side->next_receive++, at };
        part.addr = (uintptr_t)slot(side, IN, at);
        part.lkey = side->mr->lkey;
        wr.wr_id = RECEIVE | side->posted[at].number;
        WANT(side, !ibv_post_recv(side->qp, &wr, &bad));
    }
}

static void received(struct side *side, struct ibv_wc *wc)
{
    struct thread *thread = side->thread;
    const unsigned char *data;
    if (side->srq) {
        uint64_t at = wc->wr_id & ~RECEIVE;
        WANT(side, at < SHARED_WRS);
        data = thread->shared_memory + at * SLOT;
        thread->shared_free[thread->shared_free_count++] = at;
        WANT(side, wc->status == IBV_WC_SUCCESS);
    } else {
        WANT(side, side->posted_count);
        struct receive oldest = side->posted[side->posted_first];
        WANT(side, wc->wr_id == (RECEIVE | oldest.number));
        side->posted_first = (side->posted_first + 1) % DEPTH;
        side->posted_count--;
        data = slot(side, IN, oldest.slot);
        if (wc->status == IBV_WC_WR_FLUSH_ERR)
            return;
        WANT(side, wc->status == IBV_WC_SUCCESS);
    }
    WANT(side, side->expected_count);
    struct request message = side->expected[side->expected_first];
    side->expected_first = (side->expected_first + 1) % DEPTH;
    side->expected_count--;
    WANT(side, wc->byte_len == message.length);
    WANT(side, !!(wc->wc_flags & IBV_WC_WITH_IMM) == has_immediate(message.opcode));
    if (has_immediate(message.opcode))
        WANT(side, wc->imm_data == message.immediate);
    if (message.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        WANT(side, wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
        WANT(side, is_filled(slot(side, WRITTEN, message.number), message.key, message.length));
    } else {
        WANT(side, wc->opcode == IBV_WC_RECV && is_filled(data, message.key, message.length));
    }
}

/* Requests. */

static void is_done(struct side *side, struct request *request)
{
    if (request->opcode == IBV_WR_RDMA_READ)
        WANT(side, is_filled(slot(side, READ, request->number), request->key, request->length));
    if (request->opcode == IBV_WR_RDMA_WRITE)
        WANT(side, is_filled(slot(side->peer, WRITTEN, request->number), request->key, request->length));
}

static void sent(struct side *side, struct ibv_wc *wc)
{
    for (;;) {
        WANT(side, side->sent_count);
        struct request oldest = side->sent[side->sent_first];
        side->sent_first = (side->sent_first + 1) % DEPTH;
        side->sent_count--;
        if (wc->wr_id != oldest.number) {
            /* Only a success that nobody asked for is not reported. */
            WANT(side, !side->has_failed && !oldest.is_signalled && !oldest.must_fail);
            is_done(side, &oldest);
            continue;
        }
        if (wc->status == IBV_WC_SUCCESS) {
            static const int opcodes[] = { [IBV_WR_SEND] = IBV_WC_SEND, [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ };
            WANT(side, !side->has_failed && oldest.is_signalled && !oldest.must_fail);
            WANT(side, (int)wc->opcode == opcodes[oldest.opcode]);
            is_done(side, &oldest);
        } else {
            if (wc->status != IBV_WC_WR_FLUSH_ERR && !oldest.must_fail) {
                fprintf(stderr, "%s\n", ibv_wc_status_str(wc->status));
                show(side);
                show(side->peer);
            }
            if (oldest.must_fail && !side->has_failed)
                WANT(side, wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_WR_FLUSH_ERR);
            else
                WANT(side, wc->status == IBV_WC_WR_FLUSH_ERR);
            side->has_failed = 1;
        }
        return;
    }
}

static void take(struct thread *thread)
{
    for (int q = 0; q < QUEUES; q++) {
        struct ibv_wc done[7];
        int count = ibv_poll_cq(thread->queues[q], 1 + draw(thread, 7), done);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            struct side *side = NULL;
            for (int s = 0; s < 2 * PAIRS && !side; s++)
                if (thread->sides[s].qp->qp_num == done[i].qp_num)
                    side = &thread->sides[s];
            CHECK(side);
            thread->completions++;
            int is_receive = done[i].wr_id >= RECEIVE;
            WANT(side, thread->queues[q] == (is_receive ? side->receive_cq : side->send_cq));
            if (is_receive)
                received(side, &done[i]);
            else
                sent(side, &done[i]);
        }
    }
}

/* Posts a chain; a request that must fail is the last of it. */
static void post(struct side *side, unsigned count, int fails)
{
    struct thread *thread = side->thread;
    struct ibv_send_wr wrs[4], *bad;
    struct ibv_sge parts[4][3];
    if (side->sent_count + count > DEPTH)
        return;
    /* What the peer's program has not looked at yet must stay as it is. */
    struct side *peer = side->peer;
    if (peer->expected_count && side->next_request + count - peer->expected[peer->expected_first].number > DEPTH)
        return;
    memset(wrs, 0, sizeof wrs);
    for (unsigned i = 0; i < count; i++) {
        static const int opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ };
        struct request request = { .number = side->next_request++, .opcode = opcodes[draw(thread, 5)],
            .immediate = draw(thread, 1 << 30), .key = draw(thread, 256) };
        request.must_fail = fails && i + 1 == count;
        if (request.must_fail)
            request.opcode = draw(thread, 2) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        request.length = draw(thread, 3) ? draw(thread, 100) : draw(thread, SLOT + 1);
        if (request.must_fail)
            request.length++;
        if (request.length > SLOT)
            request.length = SLOT;
        request.is_signalled = draw(thread, 2) || side->unsignalled >= DEPTH / 4;
        side->unsignalled = request.is_signalled ? 0 : side->unsignalled + 1;
        struct ibv_send_wr *wr = &wrs[i];
        unsigned char *local = slot(side, request.opcode == IBV_WR_RDMA_READ ? READ : OUT, request.number);
        int is_inline = request.opcode != IBV_WR_RDMA_READ && request.length <= INLINE && draw(thread, 2);
        if (request.opcode == IBV_WR_RDMA_READ) {
            fill(slot(side->peer, SHOWN, request.number), request.key, request.length);
            memset(local, 0xEE, request.length);
        } else {
            fill(local, request.key, request.length);
        }
        uint32_t left = request.length, done = 0;
        while (left && wr->num_sge < 3) {
            uint32_t bytes = wr->num_sge == 2 ? left : 1 + draw(thread, left);
            parts[i][wr->num_sge++] = (struct ibv_sge) { (uintptr_t)local + done, bytes, side->mr->lkey };
            done += bytes;
            left -= bytes;
        }
        wr->wr_id = request.number;
        wr->sg_list = parts[i];
        wr->opcode = request.opcode;
        wr->imm_data = request.immediate;
        wr->send_flags = (request.is_signalled ? IBV_SEND_SIGNALED : 0) | (is_inline ? IBV_SEND_INLINE : 0) |
            (draw(thread, 8) ? 0 : IBV_SEND_FENCE) | (draw(thread, 8) ? 0 : IBV_SEND_SOLICITED);
        wr->wr.rdma.remote_addr =
            (uintptr_t)slot(side->peer, request.opcode == IBV_WR_RDMA_READ ? SHOWN : WRITTEN, request.number);
        wr->wr.rdma.rkey = request.must_fail ? side->mr->rkey ^ 0xABCDE00 : side->peer->mr->rkey;
        wr->next = i + 1 < count ? &wrs[i + 1] : NULL;
        side->sent[(side->sent_first + side->sent_count++) % DEPTH] = request;
        if (is_message(request.opcode)) {
            peer->expected[(peer->expected_first + peer->expected_count++) % DEPTH] = request;
        }
    }
    WANT(side, !ibv_post_send(side->qp, wrs, &bad));
    /* Inline data was copied. */
    for (unsigned i = 0; i < count; i++)
        if (wrs[i].send_flags & IBV_SEND_INLINE)
            for (int n = 0; n < wrs[i].num_sge; n++)
                memset((void *)(uintptr_t)parts[i][n].addr, 0xDD, parts[i][n].length);
}

static void settle(struct side *side)
{
    struct thread *thread = side->thread;
    time_t end = time(NULL) + SECONDS;
    for (int i = 0; i < 2; i++, side = side->peer) {
        /* The last request is signalled, so that all are known to be done. */
        while (side->sent_count && !side->sent[(side->sent_first + side->sent_count - 1) % DEPTH].is_signalled) {
            side->unsignalled = DEPTH;
            if (side->sent_count < DEPTH)
                post(side, 1, 0);
            post_receives(side->peer, 4);
            take(thread);
            WANT(side, time(NULL) < end);
        }
    }
    while (side->sent_count || side->peer->sent_count || side->expected_count || side->peer->expected_count) {
        post_receives(side, 4);
        post_receives(side->peer, 4);
        take(thread);
        if (time(NULL) >= end) {
            show(side);
            show(side->peer);
        }
        WANT(side, time(NULL) < end);
    }
}

/* Both queue pairs are in error: everything that was posted completes. */
static void drain(struct side *side)
{
    time_t end = time(NULL) + SECONDS;
    while (side->sent_count || side->posted_count || side->peer->sent_count || side->peer->posted_count) {
        take(side->thread);
        /* What has succeeded without a signal before the error is not reported. */
        for (int i = 0; i < 2; i++, side = side->peer)
            if (side->sent_count && !side->has_failed && time(NULL) + SECONDS - 2 > end) {
                int is_silent = 1;
                for (unsigned n = 0; n < side->sent_count; n++)
                    is_silent &= !side->sent[(side->sent_first + n) % DEPTH].is_signalled;
                if (is_silent)
                    side->sent_count = 0;
            }
        WANT(side, time(NULL) < end);
    }
    for (int i = 0; i < 2; i++, side = side->peer) {
        side->expected_count = side->unsignalled = 0;
        side->has_failed = 0;
    }
}

static void make_pair(struct side *side)
{
    struct thread *thread = side->thread;
    for (int i = 0; i < 2; i++, side = side->peer) {
        side->send_cq = thread->queues[draw(thread, QUEUES)];
        side->receive_cq = thread->queues[draw(thread, QUEUES)];
        side->srq = draw(thread, 3) ? NULL : thread->srq;
        struct ibv_qp_init_attr init = { .send_cq = side->send_cq, .recv_cq = side->receive_cq, .srq = side->srq,
            .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 3, .max_recv_sge = 1,
                .max_inline_data = INLINE }, .qp_type = IBV_QPT_RC };
        WANT(side, side->qp = ibv_create_qp(thread->pd, &init));
    }
    join(side->qp, side->peer->qp, &gid);
}

static void to_error(struct side *side)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    WANT(side, !ibv_modify_qp(side->qp, &attr, IBV_QP_STATE));
}

/* Breaks a pair, takes what completes, and connects it again or makes another one. */
static void break_pair(struct side *side)
{
    struct thread *thread = side->thread;
    if (draw(thread, 2))
        settle(side);
    if (draw(thread, 2)) {
        /* The request that fails is under way when both are told to end. */
        unsigned count = 1 + draw(thread, 3);
        if (side->sent_count + count <= DEPTH)
            post(side, count, 1);
        for (unsigned i = draw(thread, 50); i; i--)
            take(thread);
    }
    unsigned how = draw(thread, 3);
    if (how < 2) {
        to_error(side);
        to_error(side->peer);
        drain(side);
    }
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    for (int i = 0; i < 2; i++, side = side->peer)
        if (how == 0)
            WANT(side, !ibv_modify_qp(side->qp, &reset, IBV_QP_STATE));
        else
            WANT(side, !ibv_destroy_qp(side->qp));
    /* Destroyed with requests outstanding: none of them is reported any more. */
    for (int i = 0; i < 2; i++, side = side->peer)
        side->sent_count = side->posted_count = side->expected_count = side->unsignalled = side->has_failed = 0;
    if (how == 0)
        join(side->qp, side->peer->qp, &gid);
    else
        make_pair(side);
}

static void step(struct thread *thread)
{
    struct side *side = &thread->sides[draw(thread, 2 * PAIRS)];
    unsigned what = draw(thread, 400);
    if (what < 180)
        post(side, 1 + draw(thread, 4), 0);
    else if (what < 280)
        post_receives(side, 1 + draw(thread, 4));
    else if (what < 390)
        take(thread);
    else if (what < 394)
        settle(side);
    else if (what < 397)
        break_pair(side);
    else
        CHECK(!ibv_resize_cq(thread->queues[draw(thread, QUEUES)], 1500 + draw(thread, 1000)));
}

static int has_done_enough(const struct thread *thread)
{
    return thread->completions > thread->steps / 4;
}

static void *run(void *given)
{
    struct thread *thread = given;
    CHECK(thread->pd = ibv_alloc_pd(thread->context));
    for (int i = 0; i < QUEUES; i++)
        CHECK(thread->queues[i] = ibv_create_cq(thread->context, 2000, NULL, NULL, 0));
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = SHARED_WRS, .max_sge = 1 } };
    CHECK(thread->srq = ibv_create_srq(thread->pd, &shared));
    CHECK(thread->shared_memory = malloc((size_t)SHARED_WRS * SLOT));
    CHECK(thread->shared_mr = ibv_reg_mr(thread->pd, thread->shared_memory, (size_t)SHARED_WRS * SLOT, ACCESS));
    for (int i = 0; i < SHARED_WRS; i++)
        thread->shared_free[thread->shared_free_count++] = i;
    for (int i = 0; i < 2 * PAIRS; i++) {
        struct side *side = &thread->sides[i];
        size_t bytes = (size_t)PARTS * DEPTH * SLOT;
        side->thread = thread;
        side->index = i;
        side->peer = &thread->sides[i ^ 1];
        CHECK(side->memory = malloc(bytes));
        CHECK(side->mr = ibv_reg_mr(thread->pd, side->memory, bytes, ACCESS));
    }
    for (int i = 0; i < 2 * PAIRS; i += 2)
        make_pair(&thread->sides[i]);
    for (thread->step = 0; has_steps(thread, has_done_enough(thread)); thread->step++)
        step(thread);
    for (int i = 0; i < 2 * PAIRS; i += 2)
        settle(&thread->sides[i]);
    for (int i = 0; i < 2 * PAIRS; i++) {
        CHECK(!ibv_destroy_qp(thread->sides[i].qp) && !ibv_dereg_mr(thread->sides[i].mr));
        free(thread->sides[i].memory);
    }
    CHECK(!ibv_destroy_srq(thread->srq) && !ibv_dereg_mr(thread->shared_mr));
    free(thread->shared_memory);
    for (int i = 0; i < QUEUES; i++)
        CHECK(!ibv_destroy_cq(thread->queues[i]));
    CHECK(!ibv_dealloc_pd(thread->pd));
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
