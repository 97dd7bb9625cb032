/* Completion events of programs that arm more often than they sleep: none is lost, however the requests of two
 * queues alternate. Says "ok" and ends with 0. */
#include "connect.h"
#include <poll.h>

enum { ROUNDS = 3000 };

static struct ibv_cq *queues[2];
static struct ibv_comp_channel *channels[2];
static char text[8];

static void wait_for(int which)
{
    struct pollfd ready = { .fd = channels[which]->fd, .events = POLLIN };
    struct ibv_cq *cq;
    void *context;
    CHECK(poll(&ready, 1, SECONDS * 1000) == 1);
    CHECK(!ibv_get_cq_event(channels[which], &cq, &context) && cq == queues[which]);
    uint32_t before = cq->comp_events_completed;
    ibv_ack_cq_events(cq, 1);
    CHECK(cq->comp_events_completed == before + 1);
}

/* Arms, looks, and sleeps only if there is nothing, as QEMU's migration does. */
static void completion(int which)
{
    struct ibv_wc wc;
    int found;
    CHECK(!ibv_req_notify_cq(queues[which], 0));
    while (!(found = ibv_poll_cq(queues[which], 1, &wc))) {
        wait_for(which);
        CHECK(!ibv_req_notify_cq(queues[which], 0));
    }
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
}

/* Two queue pairs that write to each other, each with a completion queue and a channel of its own. */
static void make(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp **pairs, union ibv_gid *gid)
{
    for (int i = 0; i < 2; i++) {
        CHECK((channels[i] = ibv_create_comp_channel(context)));
        CHECK((queues[i] = ibv_create_cq(context, 64, NULL, channels[i], 0)));
        struct ibv_qp_init_attr init = { .send_cq = queues[i], .recv_cq = queues[i], .qp_type = IBV_QPT_RC,
            .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
        CHECK((pairs[i] = ibv_create_qp(pd, &init)));
    }
    join(pairs[0], pairs[1], gid);
}

static void destroy(struct ibv_qp **pairs)
{
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(pairs[i]) && !ibv_destroy_cq(queues[i]) && !ibv_destroy_comp_channel(channels[i]));
}

/* The library completes a request of a failed queue pair itself, and tells of it. That was what the program asked for:
 * the next completion, which the device tells of too, gives no event. */
static void once(struct ibv_pd *pd, struct ibv_qp **pairs, struct ibv_send_wr *write)
{
    struct ibv_qp_init_attr init = { .send_cq = queues[0], .recv_cq = queues[0], .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *failed = ibv_create_qp(pd, &init);
    struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
    struct ibv_recv_wr receive = { .wr_id = 5 }, *bad_receive;
    struct pollfd ready = { .fd = channels[0]->fd, .events = POLLIN };
    struct ibv_send_wr *bad;
    CHECK(failed);
    to_init(failed, 0);
    CHECK(!ibv_modify_qp(failed, &error, IBV_QP_STATE));
    CHECK(!ibv_req_notify_cq(queues[0], 0) && !ibv_post_recv(failed, &receive, &bad_receive));
    wait_for(0);
    struct ibv_wc wc = next(queues[0]);
    CHECK(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_post_send(pairs[0], write, &bad));
    CHECK(next(queues[0]).status == IBV_WC_SUCCESS);
    /* Events come in order: what the device told before this one is there. */
    CHECK(!ibv_req_notify_cq(queues[1], 0) && !ibv_post_send(pairs[1], write, &bad));
    wait_for(1);
    CHECK(next(queues[1]).status == IBV_WC_SUCCESS && poll(&ready, 1, 0) == 0);
    CHECK(!ibv_destroy_qp(failed));
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    static char memory[8];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp *pairs[2];
    CHECK(pd && mr);
    make(context, pd, pairs, &gid);
    struct ibv_sge data = { (uintptr_t)text, sizeof text, 0 };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = (uintptr_t)memory, .rkey = mr->rkey } }, *bad;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i <= round % 9; i++)
            CHECK(!ibv_req_notify_cq(queues[0], 0) && !ibv_req_notify_cq(queues[1], 0));
        for (int i = 0; i < 2; i++)
            CHECK(!ibv_post_send(pairs[i], &write, &bad));
        completion(round % 2);
        completion((round + 1) % 2);
    }
    /* Events of what was requested may still be on their way: queues that nothing was requested of do not get them. */
    destroy(pairs);
    make(context, pd, pairs, &gid);
    for (int i = 0; i < 20; i++)
        once(pd, pairs, &write);
    destroy(pairs);
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
