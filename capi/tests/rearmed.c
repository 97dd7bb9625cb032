/* Programs that poll one completion for each event. One polls first: what is unread when it asks for the next event, and
 * was not told of, gives one. One asks first: the completion that it was told of gives none again. There is no event
 * without a completion. Requests that the library completes, because their queue pair failed, and messages that waited
 * for receives give events as others do. Says "ok" and ends with 0. */
#include "connect.h"

enum { QUIET_MS = 200, EVENT_MS = SECONDS * 1000 };

static struct ibv_comp_channel *channel;
static struct ibv_cq *sent, *got;
static struct ibv_qp *one, *two;
static struct ibv_sge into;

static int has_event(int milliseconds)
{
    return takes_event(channel, milliseconds);
}

/* A message, which has arrived then. */
static void pass(int is_with_immediate)
{
    struct ibv_sge from = { (uintptr_t)"12345678", 8, 0 };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = is_with_immediate ? IBV_WR_SEND_WITH_IMM :
        IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
    CHECK(!ibv_post_recv(two, &receive, &bad_receive) && !ibv_post_send(one, &send, &bad));
    CHECK(next(sent).status == IBV_WC_SUCCESS);
}

static void ask(void)
{
    CHECK(!ibv_req_notify_cq(got, 0));
}

static void take(void)
{
    CHECK(next(got).status == IBV_WC_SUCCESS);
}

/* As perftest does: an event, the next request, one poll. */
static void asks_first(void)
{
    struct ibv_wc wc;
    ask();
    CHECK(!has_event(QUIET_MS));
    for (int round = 0; round < 40; round++) {
        pass(round % 3 == 0);
        CHECK(has_event(EVENT_MS));
        ask();
        CHECK(ibv_poll_cq(got, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
        CHECK(round % 8 || !has_event(QUIET_MS / 4));
    }
    /* Two and three at once: an event for each. */
    for (int count = 2; count < 4; count++) {
        for (int i = 0; i < count; i++)
            pass(i == 0);
        for (int i = 0; i < count; i++) {
            CHECK(has_event(EVENT_MS));
            ask();
            take();
        }
        CHECK(!has_event(QUIET_MS));
    }
}

/* An event that is read after its completion was taken, and after a poll found nothing (UCX): it hides no later one. */
static void reads_late(void)
{
    struct pollfd one_event = { .fd = channel->fd, .events = POLLIN };
    struct ibv_wc some[4];
    for (int is_batch = 0; is_batch < 2; is_batch++) {
        ask();
        pass(0);
        CHECK(poll(&one_event, 1, EVENT_MS) == 1);
        if (is_batch) {
            CHECK(ibv_poll_cq(got, 4, some) == 1);
        } else {
            take();
            CHECK(ibv_poll_cq(got, 1, some) == 0);
        }
        CHECK(has_event(0));
        pass(0);
        ask();
        CHECK(has_event(EVENT_MS));
        take();
    }
    ask();
    CHECK(!has_event(QUIET_MS));
}

/* A queue pair fails with requests that the device reports once. A program that asks first is told again once it has
 * polled the first one, and may be told of the last one twice. */
static void flushes(int asks_first, struct ibv_qp *queue_pair)
{
    enum { RECEIVES = 3 };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad;
    struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
    for (int i = 0; i < RECEIVES; i++)
        CHECK(!ibv_post_recv(queue_pair, &receive, &bad));
    ask();
    CHECK(!ibv_modify_qp(queue_pair, &failed, IBV_QP_STATE));
    for (int i = 0; i < RECEIVES; i++) {
        CHECK(has_event(EVENT_MS));
        if (asks_first)
            ask();
        CHECK(next(got).status == IBV_WC_WR_FLUSH_ERR);
        if (!asks_first)
            ask();
    }
    CHECK(!has_event(QUIET_MS) || (asks_first && !has_event(QUIET_MS)));
}

/* Messages wait for a receive of a shared queue, which is posted before the program asks for an event. */
static void holds(struct ibv_pd *pd, union ibv_gid *gid)
{
    enum { MESSAGES = 3 };
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 8, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq);
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = got, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_send_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *from = ibv_create_qp(pd, &init), *to = ibv_create_qp(pd, &init);
    CHECK(from && to);
    join(from, to, gid);
    struct ibv_sge data = { (uintptr_t)"12345678", 8, 0 };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
    struct ibv_wc wc;
    CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
    for (int i = 0; i < MESSAGES; i++) {
        CHECK(!ibv_post_send(from, &send, &bad));
        CHECK(next(sent).status == IBV_WC_SUCCESS);
    }
    take();
    CHECK(ibv_poll_cq(got, 1, &wc) == 0);
    CHECK(has_event(EVENT_MS));
    for (int i = 1; i < MESSAGES; i++)
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
    for (int i = 1; i < MESSAGES; i++) {
        ask();
        CHECK(has_event(EVENT_MS));
        take();
    }
    ask();
    CHECK(!has_event(QUIET_MS));
    CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_srq(srq));
}

int main(void)
{
    static char bytes[8];
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd && (channel = ibv_create_comp_channel(context)));
    sent = ibv_create_cq(context, 8, NULL, NULL, 0), got = ibv_create_cq(context, 8, NULL, channel, 0);
    CHECK(sent && got);
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = sent, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    one = ibv_create_qp(pd, &init);
    init.recv_cq = got;
    two = ibv_create_qp(pd, &init);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(one && two && mr);
    join(one, two, &gid);
    into = (struct ibv_sge) { (uintptr_t)bytes, 8, mr->lkey };

    ask();
    CHECK(!has_event(QUIET_MS));
    for (int round = 0; round < 5; round++) {
        pass(0);
        pass(0);
        CHECK(has_event(EVENT_MS));
        take();
        /* The second is there. */
        ask();
        CHECK(has_event(EVENT_MS));
        take();
        /* It has given its event: the wish for it is not left for a completion that is not solicited. */
        CHECK(!ibv_req_notify_cq(got, 1));
        pass(0);
        take();
        CHECK(!has_event(QUIET_MS));
        ask();
        CHECK(!has_event(QUIET_MS));
    }
    asks_first();
    reads_late();
    holds(pd, &gid);
    flushes(0, two);
    init.recv_cq = got;
    struct ibv_qp *three = ibv_create_qp(pd, &init);
    CHECK(three);
    to_init(three, 0);
    flushes(1, three);
    CHECK(!ibv_destroy_qp(three));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(sent) && !ibv_destroy_cq(got));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
