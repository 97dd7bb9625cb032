/* Three queue pairs share their receives. As many receives as messages are enough, however the messages are
 * spread; messages without a receive wait for one; receives fail as the card would fail them. Says "ok" and
 * ends with 0. */
#include "connect.h"
#include <poll.h>

enum { PAIRS = 3, RECEIVES = 30, PIECE = 100, LENGTH = 150, BASE = 0x7000, PLACES = 64 };

static unsigned char memory[PLACES][2 * PIECE] __attribute__((aligned(4096))), from[PAIRS][LENGTH];
static struct ibv_qp *senders[PAIRS], *receivers[PAIRS];
static struct ibv_cq *sent, *arrived;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static union ibv_gid gid;

/* Posts a receive of two pieces, from the middle of a place to its end, and then from its begin. */
static void give(uint64_t place, uint32_t piece, uint32_t key)
{
    uint64_t begin = BASE + place * sizeof memory[0];
    struct ibv_sge into[] = { { begin + PIECE, piece, key }, { begin, piece, key } };
    struct ibv_recv_wr receive = { .wr_id = place, .sg_list = into, .num_sge = 2 }, *bad;
    CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
}

static void message(int pair, unsigned char number, struct ibv_send_wr *more)
{
    for (int i = 0; i < LENGTH; i++)
        from[pair][i] = (unsigned char)(number + i);
    struct ibv_sge data = { (uintptr_t)from[pair], LENGTH, 0 };
    struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad;
    if (more)
        send = *more;
    send.sg_list = &data;
    send.num_sge = 1;
    send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    CHECK(!ibv_post_send(senders[pair], &send, &bad));
    CHECK(next(sent).status == IBV_WC_SUCCESS);
}

/* The next message lies in the place that its completion names, and came from this pair. */
static void expect(int pair, unsigned char number)
{
    struct ibv_wc wc = next(arrived);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == LENGTH);
    CHECK(wc.qp_num == receivers[pair]->qp_num && wc.wr_id < PLACES);
    for (int i = 0; i < LENGTH; i++)
        CHECK(memory[wc.wr_id][(i + PIECE) % (2 * PIECE)] == (unsigned char)(number + i));
    memset(memory[wc.wr_id], 0, sizeof memory[0]);
}

static void expect_failure(enum ibv_wc_status status, uint64_t place)
{
    message(0, 1, NULL);
    struct ibv_wc wc = next(arrived);
    CHECK(wc.status == status && wc.wr_id == place && wc.qp_num == receivers[0]->qp_num);
    /* The connection is broken, as where the card finds the fault. */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(receivers[0], &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
    attr.qp_state = IBV_QPS_RESET;
    CHECK(!ibv_modify_qp(receivers[0], &attr, IBV_QP_STATE) && !ibv_modify_qp(senders[0], &attr, IBV_QP_STATE));
    join(senders[0], receivers[0], &gid);
}

static void expect_event(struct ibv_comp_channel *channel)
{
    struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
    struct ibv_cq *cq;
    void *context;
    CHECK(poll(&ready, 1, SECONDS * 1000) == 1);
    CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == arrived);
    ibv_ack_cq_events(cq, 1);
    CHECK(!ibv_req_notify_cq(arrived, 0));
}

static void uneven_messages_use_every_receive(void)
{
    for (uint64_t place = 0; place < RECEIVES; place++)
        give(place, PIECE, mr->lkey);
    for (unsigned char number = 0; number < RECEIVES - 3; number++) {
        message(0, number, NULL);
        if (number == 10)
            message(1, 200, NULL), message(1, 201, NULL);
        expect(0, number);
        if (number == 10)
            expect(1, 200), expect(1, 201);
    }
    message(2, 100, NULL);
    expect(2, 100);
}

static void messages_wait_for_receives(struct ibv_comp_channel *channel)
{
    struct ibv_wc wc;
    CHECK(!ibv_req_notify_cq(arrived, 0));
    message(1, 7, NULL);
    message(2, 8, NULL);
    expect_event(channel);
    CHECK(!ibv_poll_cq(arrived, 1, &wc));
    for (int pair = 1; pair <= 2; pair++) {
        give(40, PIECE, mr->lkey);
        expect_event(channel);
        expect(pair, (unsigned char)(6 + pair));
        CHECK(!ibv_poll_cq(arrived, 1, &wc));
    }
}

static void receives_fail_as_the_card_fails_them(struct ibv_pd *other)
{
    struct ibv_mr *readable = ibv_reg_mr_iova(mr->pd, memory, sizeof memory, BASE, 0);
    struct ibv_mr *foreign = ibv_reg_mr_iova(other, memory, sizeof memory, BASE, IBV_ACCESS_LOCAL_WRITE);
    CHECK(readable && foreign);
    give(41, PIECE / 2, mr->lkey);
    expect_failure(IBV_WC_LOC_LEN_ERR, 41);
    give(42, PIECE, readable->lkey);
    expect_failure(IBV_WC_LOC_PROT_ERR, 42);
    give(43, PIECE, foreign->lkey);
    expect_failure(IBV_WC_LOC_PROT_ERR, 43);
    give(PLACES, PIECE, mr->lkey); /* behind the region */
    expect_failure(IBV_WC_LOC_PROT_ERR, PLACES);
    uint32_t key = readable->lkey;
    CHECK(!ibv_dereg_mr(readable) && !ibv_dereg_mr(foreign));
    give(44, PIECE, key); /* it is gone */
    expect_failure(IBV_WC_LOC_PROT_ERR, 44);
    for (int i = 0; i < PLACES * 2 * PIECE; i++)
        CHECK(!memory[i / (2 * PIECE)][i % (2 * PIECE)]);
}

static void a_write_with_a_number_leaves_the_receive_alone(void)
{
    struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 0x12345678,
        .wr.rdma = { .remote_addr = BASE + 50 * sizeof memory[0], .rkey = mr->rkey } };
    memset(memory[45], 0x5A, sizeof memory[0]);
    give(45, PIECE, mr->lkey);
    message(1, 9, &write);
    struct ibv_wc wc = next(arrived);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == 45);
    CHECK(wc.imm_data == 0x12345678 && wc.wc_flags & IBV_WC_WITH_IMM && wc.byte_len == LENGTH);
    for (int i = 0; i < 2 * PIECE; i++) {
        CHECK(memory[45][i] == 0x5A);
        CHECK(memory[50][i] == (i < LENGTH ? (unsigned char)(9 + i) : 0));
    }
}

static void a_reset_drops_what_waits(void)
{
    struct ibv_wc wc;
    message(0, 3, NULL);
    message(2, 4, NULL);
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    CHECK(!ibv_poll_cq(arrived, 1, &wc));
    CHECK(!ibv_modify_qp(receivers[0], &reset, IBV_QP_STATE));
    give(46, PIECE, mr->lkey);
    give(47, PIECE, mr->lkey);
    expect(2, 4);
    message(1, 5, NULL);
    expect(1, 5);
    CHECK(!ibv_poll_cq(arrived, 1, &wc));
}

int main(void)
{
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    sent = ibv_create_cq(context, 256, NULL, NULL, 0);
    arrived = ibv_create_cq(context, 256, NULL, channel, 0);
    mr = ibv_reg_mr_iova(pd, memory, sizeof memory, BASE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = 40, .max_sge = 2 } };
    srq = ibv_create_srq(pd, &wanted);
    CHECK(pd && other && channel && sent && arrived && mr && srq);
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = sent, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = LENGTH } };
    for (int pair = 0; pair < PAIRS; pair++) {
        init.srq = NULL;
        init.recv_cq = sent;
        senders[pair] = ibv_create_qp(pd, &init);
        init.srq = srq;
        init.recv_cq = arrived;
        receivers[pair] = ibv_create_qp(pd, &init);
        CHECK(senders[pair] && receivers[pair]);
        join(senders[pair], receivers[pair], &gid);
    }
    uneven_messages_use_every_receive();
    messages_wait_for_receives(channel);
    receives_fail_as_the_card_fails_them(other);
    a_write_with_a_number_leaves_the_receive_alone();
    a_reset_drops_what_waits();
    for (int pair = 0; pair < PAIRS; pair++)
        CHECK(!ibv_destroy_qp(senders[pair]) && !ibv_destroy_qp(receivers[pair]));
    CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(arrived) && !ibv_destroy_cq(sent));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr));
    CHECK(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
