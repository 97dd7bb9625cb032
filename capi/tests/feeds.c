/* One completion queue serves queue pairs of three shared receive queues and one without: two shared queues with
 * two queue pairs each, whose messages are copied, and one with a single queue pair. A queue pair that fails by
 * itself takes no more receives, and the program is told so once. Says "ok" and ends with 0. */
#include "connect.h"
#include <poll.h>

enum { SHARED = 3, PAIRS = 6, PLAIN = PAIRS - 1, LENGTH = 64, RECEIVES = 16, ROUNDS = 60, LONG = 3 << 20 };

static unsigned char from[LENGTH], memory[PAIRS][RECEIVES][LENGTH];
static const int owner[PAIRS] = { 0, 0, 1, 1, 2, -1 };
static struct ibv_qp *senders[PAIRS], *receivers[PAIRS];
static struct ibv_srq *shared[SHARED];
static struct ibv_cq *sent, *arrived;
static struct ibv_mr *mr, *source;

/* Posts a receive whose number tells to which queue it was posted. */
static void give(int to, uint64_t place)
{
    int list = to < 0 ? SHARED : to;
    struct ibv_sge into = { (uintptr_t)memory[list][place], LENGTH, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = (uint64_t)list << 32 | place, .sg_list = &into, .num_sge = 1 }, *bad;
    if (to < 0)
        CHECK(!ibv_post_recv(receivers[PLAIN], &receive, &bad));
    else
        CHECK(!ibv_post_srq_recv(shared[to], &receive, &bad));
}

static void message(int pair, unsigned char number)
{
    memset(from, number, LENGTH);
    struct ibv_sge data = { (uintptr_t)from, LENGTH, source->lkey };
    struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &data, .num_sge = 1,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(senders[pair], &send, &bad));
    CHECK(next(sent).status == IBV_WC_SUCCESS);
}

/* The next message came to this queue pair, into a receive of its own queue, which is posted again. */
static void expect(int pair, unsigned char number)
{
    struct ibv_wc wc = next(arrived);
    uint64_t list = owner[pair] < 0 ? SHARED : owner[pair], place = wc.wr_id & 0xFFFFFFFF;
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == LENGTH);
    CHECK(wc.qp_num == receivers[pair]->qp_num && wc.wr_id >> 32 == list && place < RECEIVES);
    for (int i = 0; i < LENGTH; i++)
        CHECK(memory[list][place][i] == number);
    give(owner[pair], place);
}

static void messages_use_the_receives_of_their_queue(void)
{
    for (int number = 0; number < ROUNDS; number++) {
        int pair = number * 5 % PAIRS;
        message(pair, (unsigned char)number);
        expect(pair, (unsigned char)number);
    }
}

/* A message without a receive holds up no message of another shared queue. */
static void each_queue_waits_alone(void)
{
    struct ibv_wc wc;
    for (int used = 0; used < RECEIVES; used++) {
        message(0, 1);
        CHECK(next(arrived).status == IBV_WC_SUCCESS);
    }
    message(1, 9);
    CHECK(!ibv_poll_cq(arrived, 1, &wc));
    for (int pair = 2; pair < PAIRS; pair++) {
        message(pair, (unsigned char)(30 + pair));
        expect(pair, (unsigned char)(30 + pair));
    }
    CHECK(!ibv_poll_cq(arrived, 1, &wc));
    for (uint64_t place = 0; place < RECEIVES; place++)
        give(0, place);
    expect(1, 9);
}

/* The first receives had 64 bytes: places for messages do not depend on that. */
static void receives_may_grow(struct ibv_pd *pd)
{
    static unsigned char long_from[LONG], long_to[LONG];
    struct ibv_mr *out = ibv_reg_mr(pd, long_from, LONG, 0), *in = ibv_reg_mr(pd, long_to, LONG, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge data = { (uintptr_t)long_from, LONG, out->lkey }, into = { (uintptr_t)long_to, LONG, in->lkey };
    struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &data, .num_sge = 1,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    struct ibv_recv_wr receive = { .wr_id = 5, .sg_list = &into, .num_sge = 1 }, *bad_receive;
    for (int used = 0; used < RECEIVES; used++) {
        message(2, 1);
        CHECK(next(arrived).status == IBV_WC_SUCCESS);
    }
    for (int number = 0; number < 4; number++) {
        for (int i = 0; i < LONG; i++)
            long_from[i] = (unsigned char)(i / 4096 + i + number);
        CHECK(!ibv_post_srq_recv(shared[1], &receive, &bad_receive));
        CHECK(!ibv_post_send(senders[3], &send, &bad) && next(sent).status == IBV_WC_SUCCESS);
        struct ibv_wc wc = next(arrived);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.byte_len == LONG);
        CHECK(!memcmp(long_from, long_to, LONG));
    }
    for (uint64_t place = 0; place < RECEIVES; place++)
        give(1, place);
    CHECK(!ibv_dereg_mr(in) && !ibv_dereg_mr(out));
}

/* True if the queue pair is said to take no more receives within this time; other events are skipped. */
static int is_told(struct ibv_context *context, struct ibv_qp *qp, int milliseconds)
{
    struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
    while (poll(&ready, 1, milliseconds) == 1) {
        struct ibv_async_event event;
        CHECK(!ibv_get_async_event(context, &event));
        ibv_ack_async_event(&event);
        if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
            CHECK(event.element.qp == qp);
            return 1;
        }
    }
    return 0;
}

static void a_failed_queue_pair_says_so_once(struct ibv_context *context)
{
    struct ibv_sge data = { (uintptr_t)from, LENGTH, source->lkey };
    struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &data, .num_sge = 1,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = (uintptr_t)memory, .rkey = mr->rkey ^ 0x5500 } }, *bad;
    CHECK(!ibv_post_send(senders[2], &write, &bad));
    CHECK(next(sent).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(is_told(context, receivers[2], SECONDS * 1000));
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(receivers[2], &attr, IBV_QP_STATE));
    CHECK(!is_told(context, receivers[2], 300));
    attr.qp_state = IBV_QPS_RESET;
    CHECK(!ibv_modify_qp(receivers[2], &attr, IBV_QP_STATE));
    to_init(receivers[2], 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(!ibv_modify_qp(receivers[2], &attr, IBV_QP_STATE));
    CHECK(is_told(context, receivers[2], SECONDS * 1000));
    /* Its receives serve the other queue pair. */
    for (int used = 0; used < 2 * RECEIVES; used++) {
        message(3, 77);
        expect(3, 77);
    }
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    sent = ibv_create_cq(context, 256, NULL, NULL, 0);
    arrived = ibv_create_cq(context, 256, NULL, NULL, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    source = ibv_reg_mr(pd, from, sizeof from, 0);
    CHECK(pd && sent && arrived && mr && source);
    for (int i = 0; i < SHARED; i++) {
        struct ibv_srq_init_attr wanted = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
        CHECK((shared[i] = ibv_create_srq(pd, &wanted)));
    }
    struct ibv_qp_init_attr init = { .send_cq = sent, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 } };
    for (int pair = 0; pair < PAIRS; pair++) {
        init.srq = NULL;
        init.recv_cq = sent;
        senders[pair] = ibv_create_qp(pd, &init);
        init.srq = owner[pair] < 0 ? NULL : shared[owner[pair]];
        init.recv_cq = arrived;
        receivers[pair] = ibv_create_qp(pd, &init);
        CHECK(senders[pair] && receivers[pair]);
        join(senders[pair], receivers[pair], &gid);
    }
    for (int to = -1; to < SHARED; to++)
        for (uint64_t place = 0; place < RECEIVES; place++)
            give(to, place);
    messages_use_the_receives_of_their_queue();
    each_queue_waits_alone();
    receives_may_grow(pd);
    a_failed_queue_pair_says_so_once(context);
    for (int pair = 0; pair < PAIRS; pair++)
        CHECK(!ibv_destroy_qp(senders[pair]) && !ibv_destroy_qp(receivers[pair]));
    for (int i = 0; i < SHARED; i++)
        CHECK(!ibv_destroy_srq(shared[i]));
    CHECK(!ibv_destroy_cq(arrived) && !ibv_destroy_cq(sent));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(source) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
