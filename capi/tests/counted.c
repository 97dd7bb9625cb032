/* Each event stands for one completion, whether the device reports it, or the library: requests of a failed queue pair,
 * and messages that waited for a receive of a shared queue. Programs poll one completion for each event here. Says "ok" and
 * ends with 0. */
#include "connect.h"

enum { QUIET_MS = 200, EVENT_MS = SECONDS * 1000, ENTRIES = 128, REQUESTS = 8 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_comp_channel *channel;
static struct ibv_cq *sent, *got;
static struct ibv_sge into;

static int has_event(int milliseconds)
{
    return takes_event(channel, milliseconds);
}

static void ask_for(int solicited_only)
{
    CHECK(!ibv_req_notify_cq(got, solicited_only));
}

static void ask(void)
{
    ask_for(0);
}

static struct ibv_qp *pair(struct ibv_cq *receives, struct ibv_srq *srq, int count)
{
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = receives, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = REQUESTS, .max_recv_wr = count, .max_send_sge = 1, .max_recv_sge = 1,
            .max_inline_data = 8 } };
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    CHECK(made);
    return made;
}

static struct ibv_srq *shared_queue(void)
{
    struct ibv_srq_init_attr init = { .attr = { .max_wr = REQUESTS, .max_sge = 1 } };
    struct ibv_srq *made = ibv_create_srq(pd, &init);
    CHECK(made);
    return made;
}

static void message(struct ibv_qp *from)
{
    struct ibv_sge data = { (uintptr_t)"12345678", 8, 0 };
    struct ibv_send_wr send = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
    CHECK(!ibv_post_send(from, &send, &bad));
    CHECK(next(sent).status == IBV_WC_SUCCESS);
}

static void give(struct ibv_qp *queue_pair, struct ibv_srq *srq, uint64_t number)
{
    struct ibv_recv_wr receive = { .wr_id = number, .sg_list = &into, .num_sge = 1 }, *bad;
    CHECK(srq ? !ibv_post_srq_recv(srq, &receive, &bad) : !ibv_post_recv(queue_pair, &receive, &bad));
}

/* A queue pair that has so many receives, numbered from 1. */
static struct ibv_qp *with_receives(int count)
{
    struct ibv_qp *made = pair(got, NULL, count);
    to_init(made, 0);
    for (int i = 1; i <= count; i++)
        give(made, NULL, i);
    return made;
}

static void fail(struct ibv_qp *queue_pair)
{
    struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(queue_pair, &failed, IBV_QP_STATE));
}

static void take(uint64_t number)
{
    CHECK(next(got).wr_id == number);
}

static int is_empty(void)
{
    struct ibv_wc wc;
    return ibv_poll_cq(got, 1, &wc) == 0;
}

/* A message comes while requests of a failed queue pair are unread. */
static void beside_failed_ones(void)
{
    struct ibv_qp *failing = with_receives(3), *from = pair(sent, NULL, REQUESTS), *to = pair(got, NULL, REQUESTS);
    struct ibv_wc wc;
    join(from, to, &gid);
    ask();
    fail(failing);
    CHECK(has_event(EVENT_MS));
    take(1);
    ask();
    give(to, NULL, 100);
    message(from);
    for (int left = 3; left > 0; left--) {
        CHECK(has_event(EVENT_MS));
        CHECK(ibv_poll_cq(got, 1, &wc) == 1);
        ask();
    }
    CHECK(!has_event(QUIET_MS) && is_empty());
    CHECK(!ibv_destroy_qp(failing) && !ibv_destroy_qp(from) && !ibv_destroy_qp(to));
}

/* A receive is posted for a message that waited, and wakes the program; then another message comes. */
static void beside_waiting_ones(void)
{
    struct ibv_srq *srq = shared_queue();
    struct ibv_qp *from = pair(sent, NULL, REQUESTS), *to = pair(got, srq, REQUESTS), *other = pair(got, srq, REQUESTS);
    join(from, to, &gid);
    give(NULL, srq, 1);
    ask();
    message(from);
    CHECK(has_event(EVENT_MS));
    take(1);
    ask();
    message(from);
    CHECK(has_event(EVENT_MS) && is_empty());
    ask();
    CHECK(!has_event(QUIET_MS));
    give(NULL, srq, 2);
    give(NULL, srq, 3);
    message(from);
    for (uint64_t number = 2; number <= 3; number++) {
        CHECK(has_event(EVENT_MS));
        take(number);
        ask();
    }
    /* The event of the device for the last message may come after it was polled. */
    CHECK(is_empty());
    CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_qp(other) && !ibv_destroy_srq(srq));
}

/* The receive that was posted for a message of one completion queue is used by another one; the next one is for the first. */
static void between_two_queues(void)
{
    struct ibv_cq *second = ibv_create_cq(context, ENTRIES, NULL, NULL, 0);
    struct ibv_srq *srq = shared_queue();
    struct ibv_qp *from = pair(sent, NULL, REQUESTS), *to = pair(got, srq, REQUESTS);
    struct ibv_qp *others = pair(sent, NULL, REQUESTS), *other = pair(second, srq, REQUESTS);
    CHECK(second);
    join(from, to, &gid);
    join(others, other, &gid);
    give(NULL, srq, 1);
    message(from);
    message(from);
    take(1);
    CHECK(is_empty());
    give(NULL, srq, 2);
    message(others);
    CHECK(next(second).wr_id == 2);
    ask();
    give(NULL, srq, 3);
    CHECK(has_event(EVENT_MS));
    take(3);
    CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_qp(others) && !ibv_destroy_qp(other));
    CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(second));
}

/* A thread that asks again at each event, and leaves polling to others, gets as many events as there are completions. */
static void without_polling(void)
{
    enum { RECEIVES = 4 };
    struct ibv_qp *failing = with_receives(RECEIVES);
    ask();
    fail(failing);
    for (int events = 0; events < RECEIVES; events++) {
        CHECK(has_event(EVENT_MS));
        ask();
    }
    CHECK(!has_event(QUIET_MS));
    for (int i = 1; i <= RECEIVES; i++)
        take(i);
    CHECK(is_empty() && !ibv_destroy_qp(failing));
}

/* Failures count as solicited. */
static void for_solicited_ones(void)
{
    enum { RECEIVES = 60 };
    struct ibv_qp *failing = with_receives(RECEIVES);
    ask_for(1);
    fail(failing);
    for (int i = 1; i <= RECEIVES; i++) {
        CHECK(has_event(EVENT_MS));
        take(i);
        ask_for(1);
    }
    CHECK(!has_event(QUIET_MS) && is_empty() && !ibv_destroy_qp(failing));
}

int main(void)
{
    static char bytes[8];
    context = open_first(&gid);
    CHECK((pd = ibv_alloc_pd(context)) && (channel = ibv_create_comp_channel(context)));
    sent = ibv_create_cq(context, ENTRIES, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(sent && mr);
    into = (struct ibv_sge) { (uintptr_t)bytes, 8, mr->lkey };
    void (*const cases[])(void) = { beside_failed_ones, beside_waiting_ones, between_two_queues, without_polling,
        for_solicited_ones };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(got = ibv_create_cq(context, ENTRIES, NULL, channel, 0));
        cases[i]();
        CHECK(!ibv_destroy_cq(got));
    }
    CHECK(!ibv_destroy_cq(sent) && !ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
