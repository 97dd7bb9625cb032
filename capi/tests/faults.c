/* The status of each way in which a work request fails, at both ends, and of what was posted behind it. */
#include "connect.h"
#include <poll.h>
#include <unistd.h>

enum {
    SIZE = 4096,
    DEPTH = 8,
    ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
};

/* Two connected queue pairs, each with queues of its own. */
struct end {
    struct ibv_cq *sends, *receives;
    struct ibv_qp *qp;
};

static struct ibv_context *context;
static union ibv_gid gid;
static struct ibv_pd *pd, *other_pd;
static char memory[2][SIZE];
static struct ibv_mr *region, *target, *read_only, *foreign;
static uint32_t gone_key;
static int failures;

static struct end made(void)
{
    struct ibv_cq *sends = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct end end = { sends, ibv_create_cq(context, 64, NULL, NULL, 0), NULL };
    CHECK(end.sends && end.receives);
    struct ibv_qp_init_attr wanted = { .send_cq = end.sends, .recv_cq = end.receives, .qp_type = IBV_QPT_RC,
        .cap = { DEPTH, DEPTH, 2, 2, 64 }, .sq_sig_all = 0 };
    end.qp = ibv_create_qp(pd, &wanted);
    CHECK(end.qp);
    return end;
}

static void unmade(struct end *end)
{
    CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_cq(end->sends) && !ibv_destroy_cq(end->receives));
}

static int send(struct end *end, uint64_t id, int opcode, struct ibv_sge *sge, int count, uint64_t to,
    uint32_t key, int flags)
{
    struct ibv_send_wr *bad, wr = { .wr_id = id, .opcode = opcode, .sg_list = sge, .num_sge = count,
        .send_flags = flags, .wr.rdma = { to, key } };
    return ibv_post_send(end->qp, &wr, &bad);
}

static int receive(struct end *end, uint64_t id, struct ibv_sge *sge, int count)
{
    struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = sge, .num_sge = count };
    return ibv_post_recv(end->qp, &wr, &bad);
}

static struct ibv_sge of(struct ibv_mr *mr, int length)
{
    return (struct ibv_sge){ (uintptr_t)mr->addr, length, mr->lkey };
}

static void expect(const char *name, struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next(cq);
    if (wc.wr_id != id || wc.status != status) {
        fprintf(stderr, "%s: %lu %s, wanted %lu %s\n", name, wc.wr_id, ibv_wc_status_str(wc.status), id,
            ibv_wc_status_str(status));
        failures++;
    }
}

static int state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

static void state_is(const char *name, struct ibv_qp *qp, int wanted)
{
    time_t end = time(NULL) + 5;
    while (state(qp) != wanted && time(NULL) < end)
        sched_yield();
    if (state(qp) != wanted) {
        fprintf(stderr, "%s: state %d, wanted %d\n", name, state(qp), wanted);
        failures++;
    }
}

static void drained(const char *name, struct ibv_cq *cq)
{
    struct ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc)) {
        fprintf(stderr, "%s: one too many: %lu %s\n", name, wc.wr_id, ibv_wc_status_str(wc.status));
        failures++;
    }
}

/* The next event about a queue pair is one of these. */
static void reported(const char *name, struct ibv_qp *qp, enum ibv_event_type one, enum ibv_event_type other)
{
    struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    do {
        CHECK(poll(&ready, 1, 60000) == 1 && !ibv_get_async_event(context, &event));
        ibv_ack_async_event(&event);
    } while (event.element.qp != qp);
    if (event.event_type != one && event.event_type != other) {
        fprintf(stderr, "%s: %s\n", name, ibv_event_type_str(event.event_type));
        failures++;
    }
}

/* One bad request between good ones. */
static void requester(const char *name, int opcode, struct ibv_sge *sge, int count, uint64_t to, uint32_t key,
    enum ibv_wc_status wanted, int remote_fails)
{
    struct end a = made(), b = made();
    struct ibv_sge good = of(region, 8), into = of(target, 64);
    join(a.qp, b.qp, &gid);
    for (int i = 0; i < 4; i++)
        CHECK(!receive(&b, 100 + i, &into, 1));
    CHECK(!receive(&a, 200, &into, 1));
    CHECK(!send(&a, 1, IBV_WR_SEND, &good, 1, 0, 0, IBV_SEND_SIGNALED));
    expect(name, a.sends, 1, IBV_WC_SUCCESS);
    expect(name, b.receives, 100, IBV_WC_SUCCESS);
    CHECK(!send(&a, 2, IBV_WR_SEND, &good, 1, 0, 0, 0));
    CHECK(!send(&a, 3, opcode, sge, count, to, key, 0));
    CHECK(!send(&a, 4, IBV_WR_SEND, &good, 1, 0, 0, 0));
    CHECK(!send(&a, 5, IBV_WR_SEND, &good, 1, 0, 0, IBV_SEND_SIGNALED));
    expect(name, b.receives, 101, IBV_WC_SUCCESS);
    expect(name, a.sends, 3, wanted);
    expect(name, a.sends, 4, IBV_WC_WR_FLUSH_ERR);
    expect(name, a.sends, 5, IBV_WC_WR_FLUSH_ERR);
    expect(name, a.receives, 200, IBV_WC_WR_FLUSH_ERR);
    state_is(name, a.qp, IBV_QPS_ERR);
    if (remote_fails) {
        state_is(name, b.qp, IBV_QPS_ERR);
        expect(name, b.receives, 102, IBV_WC_WR_FLUSH_ERR);
        expect(name, b.receives, 103, IBV_WC_WR_FLUSH_ERR);
        reported(name, b.qp, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_REQ_ERR);
    } else
        state_is(name, b.qp, IBV_QPS_RTS);
    /* What is posted now completes, too. */
    CHECK(!send(&a, 6, IBV_WR_SEND, &good, 1, 0, 0, 0));
    expect(name, a.sends, 6, IBV_WC_WR_FLUSH_ERR);
    CHECK(!receive(&a, 201, &into, 1));
    expect(name, a.receives, 201, IBV_WC_WR_FLUSH_ERR);
    drained(name, a.sends);
    drained(name, b.receives);
    /* The pair serves again after a reset. */
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    CHECK(!ibv_modify_qp(a.qp, &reset, IBV_QP_STATE) && !ibv_modify_qp(b.qp, &reset, IBV_QP_STATE));
    join(a.qp, b.qp, &gid);
    CHECK(!receive(&b, 300, &into, 1));
    CHECK(!send(&a, 7, IBV_WR_SEND, &good, 1, 0, 0, IBV_SEND_SIGNALED));
    expect(name, a.sends, 7, IBV_WC_SUCCESS);
    expect(name, b.receives, 300, IBV_WC_SUCCESS);
    unmade(&a);
    unmade(&b);
}

static void receiver(const char *name, struct ibv_sge *sge, int count, enum ibv_wc_status here,
    enum ibv_wc_status there)
{
    struct end a = made(), b = made();
    struct ibv_sge good = of(region, 32), into = of(target, 64);
    join(a.qp, b.qp, &gid);
    CHECK(!receive(&b, 100, &into, 1));
    CHECK(!receive(&b, 101, sge, count));
    CHECK(!receive(&b, 102, &into, 1));
    CHECK(!send(&a, 1, IBV_WR_SEND, &good, 1, 0, 0, 0));
    CHECK(!send(&a, 2, IBV_WR_SEND, &good, 1, 0, 0, 0));
    CHECK(!send(&a, 3, IBV_WR_SEND, &good, 1, 0, 0, IBV_SEND_SIGNALED));
    expect(name, b.receives, 100, IBV_WC_SUCCESS);
    expect(name, b.receives, 101, here);
    expect(name, b.receives, 102, IBV_WC_WR_FLUSH_ERR);
    expect(name, a.sends, 2, there);
    expect(name, a.sends, 3, IBV_WC_WR_FLUSH_ERR);
    drained(name, a.sends);
    state_is(name, a.qp, IBV_QPS_ERR);
    state_is(name, b.qp, IBV_QPS_ERR);
    unmade(&a);
    unmade(&b);
}

static void local_keys(void)
{
    uint64_t to = (uintptr_t)memory[1];
    struct ibv_sge never = { (uintptr_t)memory, 32, 0xABCDEF12 }, late = { (uintptr_t)memory[1], 32, gone_key };
    struct ibv_sge alien = of(foreign, 32), constant = of(read_only, 32);
    struct ibv_sge past = { (uintptr_t)memory[1] + SIZE - 16, 32, target->lkey };
    struct ibv_sge before = { (uintptr_t)memory[1] - 16, 32, target->lkey };
    struct ibv_sge second[2] = { of(target, 16), late };
    struct ibv_sge zero = { (uintptr_t)memory, 32, 0 };
    struct { const char *name; struct ibv_sge *sge; int count; } local[] = {
        { "a key that never was", &never, 1 }, { "a key that is gone", &late, 1 },
        { "a key of another domain", &alien, 1 },
        { "past the end", &past, 1 }, { "before the start", &before, 1 },
        { "the second fragment", second, 2 }, { "key 0", &zero, 1 } };
    for (unsigned i = 0; i < sizeof(local) / sizeof(*local); i++) {
        char name[100];
        int opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_IMM,
            IBV_WR_RDMA_WRITE_WITH_IMM };
        for (unsigned j = 0; j < 5; j++) {
            if (opcodes[j] == IBV_WR_RDMA_READ && local[i].count > 1 )
                continue;
            snprintf(name, sizeof(name), "send (%d), %s", opcodes[j], local[i].name);
            requester(name, opcodes[j], local[i].sge, local[i].count, to, target->rkey, IBV_WC_LOC_PROT_ERR, 0);
        }
        snprintf(name, sizeof(name), "receive, %s", local[i].name);
        receiver(name, local[i].sge, local[i].count, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
    }
    receiver("receive, read-only", &constant, 1, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
    struct ibv_sge shorter = of(target, 31);
    receiver("receive, short", &shorter, 1, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    receiver("receive, none", &shorter, 0, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    requester("read into constants", IBV_WR_RDMA_READ, &constant, 1, to, target->rkey, IBV_WC_LOC_PROT_ERR, 0);

}

static void remote_keys(void)
{
    uint64_t to = (uintptr_t)memory[1];
    struct ibv_sge good = of(region, 32);
    struct { const char *name; int opcode; uint64_t to; uint32_t key; } remote[] = {
        { "write, no key", IBV_WR_RDMA_WRITE, to, 0xABCDEF12 },
        { "read, no key", IBV_WR_RDMA_READ, to, 0xABCDEF12 },
        { "write, key 0", IBV_WR_RDMA_WRITE, to, 0 },
        { "write, gone", IBV_WR_RDMA_WRITE, to, gone_key },
        { "write, domain", IBV_WR_RDMA_WRITE, to, foreign->rkey },
        { "read, domain", IBV_WR_RDMA_READ, to, foreign->rkey },
        { "write, right", IBV_WR_RDMA_WRITE, to, read_only->rkey },
        { "write, past", IBV_WR_RDMA_WRITE, to + SIZE - 31, target->rkey },
        { "read, past", IBV_WR_RDMA_READ, to + SIZE - 31, target->rkey },
        { "write, wrap", IBV_WR_RDMA_WRITE, -(uint64_t)8, target->rkey },
        { "imm, no key", IBV_WR_RDMA_WRITE_WITH_IMM, to, 0xABCDEF12 } };
    for (unsigned i = 0; i < sizeof(remote) / sizeof(*remote); i++)
        requester(remote[i].name, remote[i].opcode, &good, 1, remote[i].to, remote[i].key,
            IBV_WC_REM_ACCESS_ERR, 1);
}

static void nothing_and_to_error(void)
{
    struct ibv_sge good = of(region, 32);
    /* No memory is touched by a request of no bytes: its key is not looked at. */
    struct end a = made(), b = made();
    join(a.qp, b.qp, &gid);
    CHECK(!send(&a, 1, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0xABCDEF12, IBV_SEND_SIGNALED));
    expect("zero write", a.sends, 1, IBV_WC_SUCCESS);
    CHECK(!send(&a, 2, IBV_WR_RDMA_READ, NULL, 0, 0, 0xABCDEF12, IBV_SEND_SIGNALED));
    expect("zero read", a.sends, 2, IBV_WC_SUCCESS);
    unmade(&a);
    unmade(&b);
    a = made(), b = made();
    join(a.qp, b.qp, &gid);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    CHECK(!send(&a, 1, IBV_WR_SEND, &good, 1, 0, 0, 0));
    CHECK(!receive(&a, 9, &good, 1));
    usleep(100000);
    CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE));
    expect("to error", a.sends, 1, IBV_WC_WR_FLUSH_ERR);
    expect("to error", a.receives, 9, IBV_WC_WR_FLUSH_ERR);
    unmade(&a);
    unmade(&b);
}

static void no_answer(void)
{
    struct ibv_sge good = of(region, 32);
    /* Receiver not ready, no retries; peer gone. */
    struct end a = made(), b = made();
    to_init(a.qp, 0);
    to_init(b.qp, 0);
    to_rtr(a.qp, b.qp->qp_num, &gid, 1);
    to_rtr(b.qp, a.qp->qp_num, &gid, 1);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 1,
        .rnr_retry = 1, .sq_psn = 1, .max_rd_atomic = 1 };
    CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    CHECK(!send(&a, 1, IBV_WR_SEND, &good, 1, 0, 0, 0));
    CHECK(!send(&a, 2, IBV_WR_SEND, &good, 1, 0, 0, 0));
    expect("not ready", a.sends, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    expect("not ready", a.sends, 2, IBV_WC_WR_FLUSH_ERR);
    state_is("not ready", b.qp, IBV_QPS_RTR);
    unmade(&b);
    unmade(&a);
    a = made(), b = made();
    join(a.qp, b.qp, &gid);
    unmade(&b);
    CHECK(!send(&a, 1, IBV_WR_SEND, &good, 1, 0, 0, 0));
    expect("gone", a.sends, 1, IBV_WC_RETRY_EXC_ERR);
    unmade(&a);
}

static void shared_receives(void)
{
    struct ibv_sge good = of(region, 32);
    struct ibv_sge late = { (uintptr_t)memory[1], 32, gone_key }, shorter = of(target, 31);
    /* A shared receive queue: the bad receive fails one queue pair, the others go on. */
    struct ibv_srq_init_attr shared = { .attr = { 64, 2, 0 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq);
    struct ibv_sge into = of(target, 64);
    struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &late, .num_sge = 1 };
    CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
    wr = (struct ibv_recv_wr){ .wr_id = 2, .sg_list = &shorter, .num_sge = 1 };
    CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
    wr = (struct ibv_recv_wr){ .wr_id = 3, .sg_list = &into, .num_sge = 1 };
    CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
    struct end c[3], d[3];
    enum ibv_wc_status ours[3] = { IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_SUCCESS };
    for (int i = 0; i < 3; i++) {
        c[i] = made();
        CHECK(!ibv_destroy_qp(c[i].qp));
        struct ibv_qp_init_attr wanted = { .send_cq = c[i].sends, .recv_cq = c[i].receives,
            .qp_type = IBV_QPT_RC,
            .cap = { DEPTH, 0, 2, 0, 0 }, .srq = srq };
        c[i].qp = ibv_create_qp(pd, &wanted);
        CHECK(c[i].qp);
        d[i] = made();
        join(c[i].qp, d[i].qp, &gid);
        CHECK(!send(&d[i], 20 + i, IBV_WR_SEND, &good, 1, 0, 0, IBV_SEND_SIGNALED));
        expect("shared receive", c[i].receives, 1 + i, ours[i]);
        /* Copied: the message was acknowledged before. */
        expect("shared send", d[i].sends, 20 + i, IBV_WC_SUCCESS);
        if (i < 2)
            reported("shared event", c[i].qp, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR);
        state_is("shared", c[i].qp, i < 2 ? IBV_QPS_ERR : IBV_QPS_RTS);
        drained("shared", c[i].receives);
    }
    for (int i = 0; i < 3; i++) {
        unmade(&c[i]);
        unmade(&d[i]);
    }
    CHECK(!ibv_destroy_srq(srq));
}

int main(void)
{
    context = open_first(&gid);
    pd = ibv_alloc_pd(context);
    other_pd = ibv_alloc_pd(context);
    CHECK(pd && other_pd);
    region = ibv_reg_mr(pd, memory[0], SIZE, ALL);
    target = ibv_reg_mr(pd, memory[1], SIZE, ALL);
    read_only = ibv_reg_mr(pd, memory[1], SIZE, IBV_ACCESS_REMOTE_READ);
    foreign = ibv_reg_mr(other_pd, memory[1], SIZE, ALL);
    struct ibv_mr *gone = ibv_reg_mr(pd, memory[1], SIZE, ALL);
    CHECK(region && target && read_only && foreign && gone);
    gone_key = gone->lkey;
    CHECK(!ibv_dereg_mr(gone));
    local_keys();
    remote_keys();
    nothing_and_to_error();
    no_answer();
    shared_receives();
    CHECK(!failures);
    puts("ok");
    return 0;
}
