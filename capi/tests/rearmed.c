/* A program that polls one completion for each event: what is unread when it asks for the next event gives one, and
 * there is none without a completion. Says "ok" and ends with 0. */
#include "connect.h"
#include <poll.h>

enum { QUIET_MS = 200, EVENT_MS = SECONDS * 1000 };

static struct ibv_comp_channel *channel;

static int has_event(int milliseconds)
{
    struct pollfd one = { .fd = channel->fd, .events = POLLIN };
    struct ibv_cq *cq;
    void *context;
    if (poll(&one, 1, milliseconds) != 1)
        return 0;
    CHECK(!ibv_get_cq_event(channel, &cq, &context));
    ibv_ack_cq_events(cq, 1);
    return 1;
}

int main(void)
{
    static char bytes[8];
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd && (channel = ibv_create_comp_channel(context)));
    struct ibv_cq *sent = ibv_create_cq(context, 8, NULL, NULL, 0), *got = ibv_create_cq(context, 8, NULL, channel, 0);
    CHECK(sent && got);
    struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = sent, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init);
    init.recv_cq = got;
    struct ibv_qp *two = ibv_create_qp(pd, &init);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(one && two && mr);
    join(one, two, &gid);
    struct ibv_sge from = { (uintptr_t)"12345678", 8, 0 }, into = { (uintptr_t)bytes, 8, mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

    CHECK(!ibv_req_notify_cq(got, 0) && !has_event(QUIET_MS));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 2; i++) {
            CHECK(!ibv_post_recv(two, &receive, &bad_receive) && !ibv_post_send(one, &send, &bad));
            CHECK(next(sent).status == IBV_WC_SUCCESS);
        }
        CHECK(has_event(EVENT_MS));
        CHECK(next(got).status == IBV_WC_SUCCESS);
        /* The second is there. */
        CHECK(!ibv_req_notify_cq(got, 0) && has_event(EVENT_MS));
        CHECK(next(got).status == IBV_WC_SUCCESS);
        /* It has given its event: the wish for it is not left for a completion that is not solicited. */
        CHECK(!ibv_req_notify_cq(got, 1));
        CHECK(!ibv_post_recv(two, &receive, &bad_receive) && !ibv_post_send(one, &send, &bad));
        CHECK(next(sent).status == IBV_WC_SUCCESS && next(got).status == IBV_WC_SUCCESS && !has_event(QUIET_MS));
        CHECK(!ibv_req_notify_cq(got, 0) && !has_event(QUIET_MS));
    }
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(sent) && !ibv_destroy_cq(got));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
