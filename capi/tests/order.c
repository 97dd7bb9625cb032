/* A program that posts and polls on while its queue pair fails: each request completes once, in the order of posting,
 * and the first error is the one that failed the queue pair. Says "ok" and ends with 0. */
#include "connect.h"

enum { ROUNDS = 300, DEPTH = 64, AFTER = 200 };

static union ibv_gid gid;
static char memory[64];

static void fail_while_posting(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_mr *mr, int bad_one)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    CHECK(one && two);
    join(one, two, &gid);
    struct ibv_sge piece = { (uintptr_t)memory, sizeof memory, mr->lkey };
    uint64_t posted = 0, completed = 0, errors = 0;
    time_t limit = time(NULL) + SECONDS;
    while (errors < AFTER || completed < posted) {
        CHECK(time(NULL) < limit);
        if (errors < AFTER && posted - completed < DEPTH) {
            struct ibv_send_wr write = { .wr_id = posted, .sg_list = &piece, .num_sge = 1,
                .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                .wr.rdma = { (uintptr_t)memory, mr->rkey ^ (posted == (uint64_t)bad_one ? 0xFF00 : 0) } }, *bad;
            CHECK(!ibv_post_send(one, &write, &bad));
            posted++;
        }
        struct ibv_wc wc;
        while (ibv_poll_cq(cq, 1, &wc) == 1) {
            CHECK(wc.wr_id == completed);
            if (wc.status != IBV_WC_SUCCESS) {
                CHECK(wc.status == (errors ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR));
                errors++;
            }
            completed++;
        }
    }
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
}

int main(void)
{
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(pd && cq && mr);
    for (int round = 0; round < ROUNDS; round++)
        fail_while_posting(pd, cq, mr, round % 20);
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
