/* Memory windows of both types, a region that is registered again under its key, a completion queue that is
 * resized, and the receives that a queue pair says it takes. Says "ok" and ends with 0. */
#include "connect.h"

enum { PAGE = 4096, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static unsigned char memory[2][PAGE] __attribute__((aligned(PAGE))), from[8] = "ringside";
static struct ibv_cq *cq;
static union ibv_gid gid;

/* Ends a failed connection, and connects both sides again. */
static void again(struct ibv_qp *one, struct ibv_qp *two)
{
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    struct ibv_wc wc;
    CHECK(!ibv_modify_qp(one, &reset, IBV_QP_STATE) && !ibv_modify_qp(two, &reset, IBV_QP_STATE));
    while (ibv_poll_cq(cq, 1, &wc)) {
    }
    join(one, two, &gid);
}

/* A write of eight bytes: how it ended. */
static enum ibv_wc_status write_to(struct ibv_qp *qp, void *to, uint32_t key)
{
    struct ibv_sge data = { (uintptr_t)from, sizeof from, 0 };
    struct ibv_send_wr write = { .wr_id = 7, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = (uintptr_t)to, .rkey = key } }, *bad;
    CHECK(!ibv_post_send(qp, &write, &bad));
    struct ibv_wc wc = next(cq);
    CHECK(wc.wr_id == 7);
    return wc.status;
}

static void written(unsigned char *at)
{
    CHECK(!memcmp(at, from, sizeof from));
    memset(at, 0, sizeof from);
}

static enum ibv_wc_opcode bound(void)
{
    struct ibv_wc wc = next(cq);
    CHECK(wc.status == IBV_WC_SUCCESS);
    return wc.opcode;
}

static void a_window_of_type_1(struct ibv_qp *one, struct ibv_qp *two, struct ibv_mr *mr)
{
    struct ibv_mw *window = ibv_alloc_mw(two->pd, IBV_MW_TYPE_1);
    CHECK(window && window->type == IBV_MW_TYPE_1 && window->pd == two->pd);
    uint32_t first = window->rkey;
    struct ibv_mw_bind bind = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
        .bind_info = { mr, (uintptr_t)memory[0] + 64, 64, IBV_ACCESS_REMOTE_WRITE } };
    CHECK(!ibv_bind_mw(two, window, &bind) && bound() == IBV_WC_BIND_MW);
    CHECK(window->rkey == ibv_inc_rkey(first));
    CHECK(write_to(one, memory[0] + 64, window->rkey) == IBV_WC_SUCCESS);
    written(memory[0] + 64);
    CHECK(write_to(one, memory[0] + 64 - 1, window->rkey) == IBV_WC_REM_ACCESS_ERR);
    again(one, two);
    /* The next bind gives it the next key, and takes the old one away. */
    uint32_t old = window->rkey;
    CHECK(!ibv_bind_mw(two, window, &bind) && bound() == IBV_WC_BIND_MW && window->rkey != old);
    CHECK(write_to(one, memory[0] + 64, old) == IBV_WC_REM_ACCESS_ERR);
    again(one, two);
    /* A region with a window on it stays. */
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ACCESS) == IBV_REREG_MR_ERR_CMD);
    CHECK(errno == EBUSY);
    CHECK(write_to(one, memory[0], mr->rkey) == IBV_WC_SUCCESS);
    written(memory[0]);
    CHECK(!ibv_dealloc_mw(window));
}

static void a_window_of_type_2(struct ibv_qp *one, struct ibv_qp *two, struct ibv_mr *mr)
{
    struct ibv_mw *window = ibv_alloc_mw(two->pd, IBV_MW_TYPE_2);
    CHECK(window);
    uint32_t key = ibv_inc_rkey(window->rkey);
    /* The index is the window's, whatever the request says. */
    struct ibv_send_wr bind = { .wr_id = 2, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
        .bind_mw = { window, key ^ 0x5500, { mr, (uintptr_t)memory[0], 64, IBV_ACCESS_REMOTE_WRITE } } }, *bad;
    CHECK(!ibv_post_send(two, &bind, &bad) && bound() == IBV_WC_BIND_MW && window->rkey == key);
    CHECK(write_to(one, memory[0], key) == IBV_WC_SUCCESS);
    written(memory[0]);
    struct ibv_send_wr close = { .wr_id = 3, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
        .invalidate_rkey = key };
    CHECK(!ibv_post_send(two, &close, &bad) && bound() == IBV_WC_LOCAL_INV);
    CHECK(write_to(one, memory[0], key) == IBV_WC_REM_ACCESS_ERR);
    again(one, two);
    CHECK(!ibv_dealloc_mw(window));
    /* What names no window or no region is refused when it is posted. */
    bind.bind_mw.mw = NULL;
    CHECK(ibv_post_send(two, &bind, &bad) == EINVAL && bad == &bind);
    CHECK(!ibv_alloc_mw(two->pd, 0) && errno == EINVAL);
}

static void a_region_again(struct ibv_qp *one, struct ibv_qp *two, struct ibv_mr *mr, struct ibv_pd *other)
{
    uint32_t key = mr->rkey;
    errno = 0;
    CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_CMD && errno == EINVAL);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory[1], PAGE, 0));
    CHECK(mr->rkey == key && mr->addr == memory[1] && mr->length == PAGE);
    CHECK(write_to(one, memory[1], key) == IBV_WC_SUCCESS);
    written(memory[1]);
    CHECK(write_to(one, memory[0], key) == IBV_WC_REM_ACCESS_ERR);
    again(one, two);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
    CHECK(mr->rkey == key && write_to(one, memory[1], key) == IBV_WC_REM_ACCESS_ERR);
    again(one, two);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ACCESS));
    CHECK(write_to(one, memory[1], key) == IBV_WC_SUCCESS);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0) && mr->pd == other);
    CHECK(write_to(one, memory[1], key) == IBV_WC_REM_ACCESS_ERR);
    again(one, two);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, one->pd, NULL, 0, 0) && mr->pd == one->pd);
    /* Wrong arguments change nothing. */
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(mr, 1 << 5, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
    CHECK(write_to(one, memory[1], key) == IBV_WC_SUCCESS);
}

static void a_queue_is_not_resized_below_what_waits(struct ibv_qp *qp, struct ibv_mr *mr)
{
    struct ibv_sge data = { (uintptr_t)from, sizeof from, 0 };
    struct ibv_send_wr write = { .wr_id = 9, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = (uintptr_t)memory[1], .rkey = mr->rkey } }, *bad;
    for (int i = 0; i < 6; i++)
        CHECK(!ibv_post_send(qp, &write, &bad));
    CHECK(next(cq).wr_id == 9);
    /* The device completes in order: five more are on their way or wait. */
    int left = 5, error;
    time_t end = time(NULL) + SECONDS;
    while ((error = ibv_resize_cq(cq, 4)) == 0 && time(NULL) < end)
        sched_yield();
    CHECK(error == EINVAL && cq->cqe >= 4);
    /* What waited before a change of size still counts. */
    CHECK(!ibv_resize_cq(cq, 16) && ibv_resize_cq(cq, 4) == EINVAL);
    while (left--)
        CHECK(next(cq).status == IBV_WC_SUCCESS);
    CHECK(!ibv_resize_cq(cq, 64) && cq->cqe >= 64);
}

/* Requests of a failed queue pair that needed no place in the queue each complete: more than a larger queue holds. */
static void a_queue_is_made_larger_whatever_failed(struct ibv_mr *mr)
{
    enum { WRITES = 12 };
    struct ibv_cq *small = ibv_create_cq(mr->context, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = small, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = WRITES, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *failing = ibv_create_qp(mr->pd, &init), *peer = ibv_create_qp(mr->pd, &init);
    CHECK(small && failing && peer);
    join(failing, peer, &gid);
    struct ibv_sge data = { (uintptr_t)from, sizeof from, 0 };
    struct ibv_send_wr write = { .wr_id = 3, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = (uintptr_t)memory[1], .rkey = mr->rkey ^ 0x5500 } }, *bad;
    for (int i = 0; i < WRITES; i++)
        CHECK(!ibv_post_send(failing, &write, &bad));
    struct ibv_qp_attr attr = { 0 };
    time_t end = time(NULL) + SECONDS;
    while (attr.qp_state != IBV_QPS_ERR && time(NULL) < end) {
        CHECK(!ibv_query_qp(failing, &attr, IBV_QP_STATE, &init));
        sched_yield();
    }
    CHECK(!ibv_resize_cq(small, 8) && small->cqe >= 8);
    CHECK(next(small).status == IBV_WC_REM_ACCESS_ERR);
    for (int i = 1; i < WRITES; i++)
        CHECK(next(small).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_destroy_qp(failing) && !ibv_destroy_qp(peer) && !ibv_destroy_cq(small));
}

/* A queue pair takes as many receives as it said, and then says so. */
static void receives_fill_the_queue(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) && init.cap.max_recv_wr >= 5);
    struct ibv_recv_wr receive = { .wr_id = 1 }, *bad;
    for (uint32_t i = 0; i < init.cap.max_recv_wr; i++)
        CHECK(!ibv_post_recv(qp, &receive, &bad));
    CHECK(ibv_post_recv(qp, &receive, &bad) == ENOMEM && bad == &receive);
}

int main(void)
{
    struct ibv_context *context = open_first(&gid);
    struct ibv_device_attr device;
    CHECK(!ibv_query_device(context, &device) && device.max_mw > 0);
    CHECK(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW && device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory[0], PAGE, ACCESS | IBV_ACCESS_MW_BIND);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_recv_wr = 5, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    CHECK(pd && other && cq && mr && one && two);
    join(one, two, &gid);
    a_window_of_type_1(one, two, mr);
    a_window_of_type_2(one, two, mr);
    a_region_again(one, two, mr, other);
    a_queue_is_not_resized_below_what_waits(one, mr);
    a_queue_is_made_larger_whatever_failed(mr);
    receives_fill_the_queue(two);
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
    CHECK(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
