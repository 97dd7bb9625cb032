/* A completion queue that gets more completions than it was made for: an event tells of it, every request completes,
 * and what is made afterwards works. Says "ok" and ends with 0. */
#include "connect.h"
#include <poll.h>

enum { DEPTH = 200, BEYOND = 60 };

static char memory[64];

static void overflow(struct ibv_context *context, struct ibv_pd *pd, struct ibv_mr *mr, union ibv_gid *gid, int entries)
{
    struct ibv_cq *small = ibv_create_cq(context, entries, NULL, NULL, 0), *big = ibv_create_cq(context, 500, NULL, NULL, 0);
    CHECK(small && big && small->cqe >= entries);
    struct ibv_qp_init_attr init = { .send_cq = small, .recv_cq = big, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *sender = ibv_create_qp(pd, &init);
    init.send_cq = big;
    struct ibv_qp *receiver = ibv_create_qp(pd, &init);
    CHECK(sender && receiver);
    join(sender, receiver, gid);
    struct ibv_sge data = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = (uintptr_t)memory + 32, .rkey = mr->rkey } }, *bad;
    for (int i = 0; i < small->cqe + BEYOND; i++) {
        write.wr_id = i;
        CHECK(!ibv_post_send(sender, &write, &bad));
    }
    struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    CHECK(poll(&ready, 1, SECONDS * 1000) == 1 && !ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == small);
    ibv_ack_async_event(&event);
    int successes = 0, is_over = 0;
    for (int i = 0; i < small->cqe + BEYOND; i++) {
        struct ibv_wc wc = next(small);
        CHECK((int)wc.wr_id == i && wc.qp_num == sender->qp_num);
        is_over |= wc.status != IBV_WC_SUCCESS;
        CHECK(!is_over || wc.status == IBV_WC_WR_FLUSH_ERR);
        successes += !is_over;
    }
    CHECK(successes >= entries && is_over);
    struct ibv_qp_attr attr;
    CHECK(!ibv_query_qp(sender, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
    CHECK(!ibv_destroy_qp(sender) && !ibv_destroy_qp(receiver) && !ibv_destroy_cq(small) && !ibv_destroy_cq(big));
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(pd && mr);
    for (int round = 0; round < 3; round++) {
        overflow(context, pd, mr, &gid, 1);
        overflow(context, pd, mr, &gid, 4);
        overflow(context, pd, mr, &gid, 13);
    }
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
