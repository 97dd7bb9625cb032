/* What a queue pair lets its peer do, by qp_access_flags: a region's rights alone are not enough. The card has one
 * switch for the peer's writes and the answers to own reads, so one that may read takes writes. Then what a
 * region's own flags do. Says "ok" and ends with 0. */
#include "connect.h"

static const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
enum { BYTES = 64, FLUSHED = 1, GENERAL = 1, REMOTE_ACCESS = 3 };

static char memory[2][BYTES];
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_sge piece;
static struct { uint64_t address; uint32_t key; } target;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void start(struct ibv_qp *qp, uint32_t peer, int access, uint8_t reads)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 7,
        .sq_psn = 1, .max_rd_atomic = reads };
    to_init(qp, access);
    to_rtr(qp, peer, &gid, 1);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* One request to a queue pair with these flags, that may have so many reads of its own. */
static enum ibv_wc_status ask(enum ibv_wr_opcode opcode, int access, uint8_t reads)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    CHECK(one && two);
    start(one, two->qp_num, 0, 1);
    start(two, one->qp_num, access, reads);
    struct ibv_send_wr wanted = { .sg_list = &piece, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { .remote_addr = target.address, .rkey = target.key } }, *bad;
    CHECK(!ibv_post_send(one, &wanted, &bad));
    struct ibv_wc wc = next(cq);
    enum ibv_wc_status status = wc.status;
    if (status == IBV_WC_SUCCESS) {
        CHECK(!wc.vendor_err);
    } else {
        /* Major and minor code, as rdma-core shows them: of the failure, and of what comes after it. */
        CHECK(status != IBV_WC_REM_ACCESS_ERR || wc.vendor_err == (FLUSHED << 16 | REMOTE_ACCESS));
        CHECK(!ibv_post_send(one, &wanted, &bad));
        wc = next(cq);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.vendor_err == (FLUSHED << 16 | GENERAL));
        /* The field changes only if the state was asked for. */
        struct ibv_qp_attr attr;
        CHECK(!ibv_query_qp(one, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init) && one->state == IBV_QPS_RTS);
        CHECK(attr.dest_qp_num == two->qp_num);
        CHECK(!ibv_query_qp(one, &attr, IBV_QP_STATE, &init) && one->state == IBV_QPS_ERR);
    }
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
    return status;
}

/* The first byte of a zero-based region has address 0, for both sides. The hint on huge pages has no effect. */
static void zero_based(void)
{
    enum { OFFSET = 5, LENGTH = 16 };
    struct ibv_mr *zero = ibv_reg_mr(pd, memory[1] + OFFSET, LENGTH, all | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB);
    CHECK(zero && zero->addr == memory[1] + OFFSET && zero->length == LENGTH);
    memset(memory, 0, sizeof memory);
    memcpy(memory[0], "written", 8);
    piece = (struct ibv_sge) { (uintptr_t)memory[0], 8, mr->lkey };
    target.address = 2;
    target.key = zero->rkey;
    CHECK(ask(IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0) == IBV_WC_SUCCESS);
    CHECK(!strcmp(memory[1] + OFFSET + 2, "written"));
    piece = (struct ibv_sge) { 4, 4, zero->lkey };
    target.address = (uintptr_t)memory[0] + 20;
    target.key = mr->rkey;
    CHECK(ask(IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0) == IBV_WC_SUCCESS);
    CHECK(!strcmp(memory[0] + 20, "itte"));
    /* Not by its address in the process, and not beyond its end. */
    piece = (struct ibv_sge) { (uintptr_t)memory[0], 8, mr->lkey };
    target.key = zero->rkey;
    target.address = (uintptr_t)zero->addr;
    CHECK(ask(IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0) == IBV_WC_REM_ACCESS_ERR);
    target.address = LENGTH - 7;
    CHECK(ask(IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0) == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_dereg_mr(zero));
}

int main(void)
{
    struct ibv_context *context = open_first(&gid);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, all);
    CHECK(pd && cq && mr);
    piece = (struct ibv_sge) { (uintptr_t)memory[0], BYTES, mr->lkey };
    target.address = (uintptr_t)memory[1];
    target.key = mr->rkey;
    CHECK(ask(IBV_WR_RDMA_READ, 0, 1) == IBV_WC_REM_INV_REQ_ERR);
    CHECK(ask(IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE, 1) == IBV_WC_REM_INV_REQ_ERR);
    CHECK(ask(IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, 0) == IBV_WC_SUCCESS);
    CHECK(ask(IBV_WR_RDMA_WRITE, 0, 0) == IBV_WC_REM_INV_REQ_ERR);
    CHECK(ask(IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0) == IBV_WC_REM_INV_REQ_ERR);
    CHECK(ask(IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0) == IBV_WC_SUCCESS);
    CHECK(ask(IBV_WR_RDMA_WRITE, 0, 1) == IBV_WC_SUCCESS);
    zero_based();
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
