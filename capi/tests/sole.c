/* A shared receive queue with one queue pair: as many messages as receives arrive before the program polls, in order,
 * however many, and no more than that. A queue pair that comes later finds every receive that is left. Says "ok" and ends
 * with 0. */
#include "connect.h"

enum { MOST = 100, LENGTH = 64, ROUTE = 40, KEY = 0x1234 };

static unsigned char memory[MOST][LENGTH + ROUTE], data[LENGTH];
static struct ibv_context *context;
static struct ibv_cq *sent, *arrived;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static union ibv_gid gid;

static void give(struct ibv_srq *srq, uint64_t first, int count)
{
    for (int i = 0; i < count; i++) {
        struct ibv_sge into = { (uintptr_t)memory[first + i], sizeof memory[0], mr->lkey };
        struct ibv_recv_wr receive = { .wr_id = first + i, .sg_list = &into, .num_sge = 1 }, *bad;
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
    }
}

static struct ibv_qp *made(enum ibv_qp_type type, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = arrived, .qp_type = type, .srq = srq,
        .cap = { .max_send_wr = MOST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = LENGTH } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static struct ibv_srq *shared(int receives)
{
    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = receives, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &wanted);
    CHECK(srq);
    return srq;
}

static void message(struct ibv_qp *sender, unsigned char number, struct ibv_ah *to, struct ibv_qp *receiver)
{
    memset(data, number, LENGTH);
    struct ibv_sge from = { (uintptr_t)data, LENGTH, 0 };
    struct ibv_send_wr send = { .wr_id = number, .opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
    if (to)
        send.wr.ud.ah = to, send.wr.ud.remote_qpn = receiver->qp_num, send.wr.ud.remote_qkey = KEY;
    CHECK(!ibv_post_send(sender, &send, &bad));
}

static void is_sent(unsigned char number)
{
    struct ibv_wc wc = next(sent);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == number);
}

static void expect(struct ibv_qp *receiver, uint64_t place, unsigned char number, int route)
{
    struct ibv_wc wc = next(arrived);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == place && wc.qp_num == receiver->qp_num);
    CHECK((int)wc.byte_len == LENGTH + route);
    for (int i = 0; i < LENGTH; i++)
        CHECK(memory[place][route + i] == number);
}

static void nothing_comes(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    for (int i = 0; i < 30; i++) {
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
        CHECK(!nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL));
    }
}

static void as_many_messages_as_receives(int count, int is_posted_first)
{
    struct ibv_srq *srq = shared(count);
    if (is_posted_first)
        give(srq, 0, count);
    struct ibv_qp *sender = made(IBV_QPT_RC, NULL), *receiver = made(IBV_QPT_RC, srq);
    join(sender, receiver, &gid);
    if (!is_posted_first)
        give(srq, 0, count);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++)
            message(sender, i, NULL, NULL);
        for (int i = 0; i < count; i++)
            is_sent(i);
        /* One more has to wait for a receive. */
        message(sender, 200, NULL, NULL);
        nothing_comes(sent);
        for (int i = 0; i < count; i++)
            expect(receiver, i, i, 0);
        nothing_comes(arrived);
        give(srq, 0, 1);
        is_sent(200);
        expect(receiver, 0, 200, 0);
        give(srq, 0, count);
    }
    CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq));
}

/* Receives without memory take writes with a number. */
static void as_many_numbers_as_receives(int count)
{
    struct ibv_srq *srq = shared(count);
    struct ibv_qp *sender = made(IBV_QPT_RC, NULL), *receiver = made(IBV_QPT_RC, srq);
    join(sender, receiver, &gid);
    for (int i = 0; i < count; i++) {
        struct ibv_recv_wr receive = { .wr_id = i }, *bad;
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
    }
    for (int i = 0; i < count; i++) {
        struct ibv_send_wr write = { .wr_id = i, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = i,
            .send_flags = IBV_SEND_SIGNALED }, *bad;
        CHECK(!ibv_post_send(sender, &write, &bad));
    }
    for (int i = 0; i < count; i++)
        is_sent(i);
    for (int i = 0; i < count; i++) {
        struct ibv_wc wc = next(arrived);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && (int)wc.wr_id == i &&
            (int)wc.imm_data == i);
    }
    CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq));
}

/* Before the program polls anything. */
static void many_messages(int count)
{
    struct ibv_cq *all = ibv_create_cq(context, count, NULL, NULL, 0);
    struct ibv_srq *srq = shared(count);
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = all, .qp_type = IBV_QPT_RC, .srq = srq,
        .cap = { .max_send_wr = MOST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *sender = made(IBV_QPT_RC, NULL), *receiver = ibv_create_qp(pd, &init);
    CHECK(all && receiver);
    join(sender, receiver, &gid);
    for (int i = 0; i < count; i++) {
        struct ibv_sge into = { (uintptr_t)memory[i % MOST], sizeof memory[0], mr->lkey };
        struct ibv_recv_wr receive = { .wr_id = i, .sg_list = &into, .num_sge = 1 }, *bad;
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
    }
    for (int i = 0; i < count; i++) {
        message(sender, i % MOST, NULL, NULL);
        is_sent(i % MOST);
    }
    for (int i = 0; i < count; i++) {
        struct ibv_wc wc = next(all);
        CHECK(wc.status == IBV_WC_SUCCESS && (int)wc.wr_id == i && memory[i % MOST][0] == i % MOST);
    }
    CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(all));
}

/* A queue pair that is reset, and one that stays behind alone, have every receive again. */
static void after_others_and_a_reset(int count)
{
    struct ibv_srq *srq = shared(5 * MOST);
    struct ibv_qp *sender = made(IBV_QPT_RC, NULL), *receiver = made(IBV_QPT_RC, srq);
    struct ibv_qp *other = made(IBV_QPT_RC, NULL), *gone = made(IBV_QPT_RC, srq);
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    join(sender, receiver, &gid);
    join(other, gone, &gid);
    give(srq, 0, count);
    message(other, 1, NULL, NULL);
    is_sent(1);
    expect(gone, 0, 1, 0);
    message(other, 2, NULL, NULL); /* not polled: its receive serves another one */
    is_sent(2);
    CHECK(!ibv_destroy_qp(gone) && !ibv_destroy_qp(other));
    give(srq, 0, 1);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++) {
            message(sender, i, NULL, NULL);
            is_sent(i);
        }
        for (int i = 0; i < count; i++)
            expect(receiver, (i + (round == 0)) % count, i, 0);
        give(srq, 0, count);
        CHECK(!ibv_modify_qp(receiver, &reset, IBV_QP_STATE) && !ibv_modify_qp(sender, &reset, IBV_QP_STATE));
        join(sender, receiver, &gid);
    }
    CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq));
}

/* The first queue pair does not keep what it has no message for. */
static void a_later_queue_pair_has_every_receive(int count)
{
    struct ibv_srq *srq = shared(count);
    struct ibv_qp *senders[2], *receivers[2];
    give(srq, 0, count);
    for (int i = 0; i < 2; i++) {
        senders[i] = made(IBV_QPT_RC, NULL);
        receivers[i] = made(IBV_QPT_RC, srq);
        join(senders[i], receivers[i], &gid);
    }
    message(senders[0], 99, NULL, NULL);
    is_sent(99);
    expect(receivers[0], 0, 99, 0);
    for (int i = 1; i < count; i++) {
        message(senders[1], i, NULL, NULL);
        is_sent(i);
    }
    for (int i = 1; i < count; i++)
        expect(receivers[1], i, i, 0);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(senders[i]) && !ibv_destroy_qp(receivers[i]));
    CHECK(!ibv_destroy_srq(srq));
}

static void no_receive_is_posted(void)
{
    struct ibv_srq *srq = shared(8);
    struct ibv_qp *sender = made(IBV_QPT_RC, NULL), *receiver = made(IBV_QPT_RC, srq);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 0,
        .sq_psn = 0x111, .max_rd_atomic = 3 };
    give(srq, 0, 1);
    to_init(sender, 0);
    to_init(receiver, 0);
    to_rtr(sender, receiver->qp_num, &gid, 0x222);
    to_rtr(receiver, sender->qp_num, &gid, 0x111);
    CHECK(!ibv_modify_qp(sender, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    message(sender, 1, NULL, NULL);
    is_sent(1);
    message(sender, 2, NULL, NULL);
    struct ibv_wc wc = next(sent);
    CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR && wc.wr_id == 2);
    expect(receiver, 0, 1, 0);
    CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq));
}

static void datagrams(int count)
{
    struct ibv_srq *srq = shared(count);
    struct ibv_qp *sender = made(IBV_QPT_UD, NULL), *receiver = made(IBV_QPT_UD, srq), *both[] = { sender, receiver };
    struct ibv_ah_attr there = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX,
        .hop_limit = 64 } };
    struct ibv_ah *to = ibv_create_ah(pd, &there);
    CHECK(to);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
        CHECK(!ibv_modify_qp(both[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
        attr.qp_state = IBV_QPS_RTR;
        CHECK(!ibv_modify_qp(both[i], &attr, IBV_QP_STATE));
        attr.qp_state = IBV_QPS_RTS;
        CHECK(!ibv_modify_qp(both[i], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    }
    for (int round = 0; round < 3; round++) {
        give(srq, 0, count);
        for (int i = 0; i < count + 2; i++) {
            message(sender, i, to, receiver);
            is_sent(i);
        }
        nothing_comes(sent);
        for (int i = 0; i < count; i++)
            expect(receiver, i, i, ROUTE);
        nothing_comes(arrived);
    }
    CHECK(!ibv_destroy_ah(to) && !ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq));
}

int main(void)
{
    context = open_first(&gid);
    CHECK((pd = ibv_alloc_pd(context)));
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
    CHECK((sent = ibv_create_cq(context, 256, NULL, NULL, 0)) && (arrived = ibv_create_cq(context, 256, NULL, NULL, 0)));
    static const int counts[] = { 1, 2, 16, MOST };
    for (int i = 0; i < 4; i++) {
        as_many_messages_as_receives(counts[i], 0);
        as_many_messages_as_receives(counts[i], 1);
        a_later_queue_pair_has_every_receive(counts[i]);
        datagrams(counts[i]);
        as_many_numbers_as_receives(counts[i]);
        after_others_and_a_reset(counts[i]);
    }
    no_receive_is_posted();
    many_messages(600);
    many_messages(3000);
    CHECK(!ibv_destroy_cq(arrived) && !ibv_destroy_cq(sent) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
