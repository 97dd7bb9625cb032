/* The states of a queue pair: what each step sets is what a query returns; RESET, also of a queue pair that a
 * shared receive queue feeds, keeps the number and drops what was outstanding. Says "ok" and ends with 0. */
#include "connect.h"

enum { BYTES = 64, RECEIVES = 40 };

static char memory[BYTES];
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = { .qp_context = memory, .send_cq = cq, .recv_cq = cq, .srq = srq,
        .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static struct ibv_qp_attr query(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    memset(&attr, 0xFF, sizeof attr);
    CHECK(!ibv_query_qp(qp, &attr, (1 << 21) - 1, &init));
    CHECK(attr.qp_state == state && attr.cur_qp_state == state && qp->state == state);
    CHECK(init.qp_context == memory && init.send_cq == cq && init.recv_cq == cq && init.qp_type == IBV_QPT_RC);
    CHECK(init.srq == qp->srq && attr.cap.max_send_wr >= 8 && init.cap.max_send_wr >= 8);
    return attr;
}

/* One message from one to the other. */
static void message(struct ibv_qp *from, struct ibv_qp *to, uint64_t id)
{
    struct ibv_sge piece = { (uintptr_t)memory, BYTES, mr->lkey };
    struct ibv_send_wr send = { .wr_id = 1000, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(from, &send, &bad));
    int sent = 0, arrived = 0;
    while (!sent || !arrived) {
        struct ibv_wc wc = next(cq);
        CHECK(wc.status == IBV_WC_SUCCESS);
        sent += wc.wr_id == 1000 && wc.qp_num == from->qp_num;
        arrived += wc.opcode == IBV_WC_RECV && wc.qp_num == to->qp_num && (!id || wc.wr_id == id);
    }
}

/* A request that fails. The public field `state` follows what the program has asked for: changes and queries of the
 * state, no others, as in rdma-core. UCX posts while it says RTS, and asks for the peer of a failed queue pair. */
static void fails(struct ibv_qp *from)
{
    struct ibv_sge piece = { (uintptr_t)memory, BYTES, mr->lkey };
    struct ibv_send_wr write = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = { (uintptr_t)memory, mr->rkey ^ 0xFF00 } }, *bad;
    struct ibv_qp_attr attr = { .min_rnr_timer = 20, .qp_state = IBV_QPS_RTR };
    struct ibv_qp_init_attr init;
    CHECK(!ibv_post_send(from, &write, &bad));
    CHECK(next(cq).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_query_qp(from, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init) && from->state == IBV_QPS_RTS);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(from, &attr, IBV_QP_STATE) == EINVAL && from->state == IBV_QPS_RTS);
    query(from, IBV_QPS_ERR);
    CHECK(ibv_modify_qp(from, &attr, IBV_QP_STATE) == EINVAL && from->state == IBV_QPS_ERR);
}

static void reset(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    uint32_t number = qp->qp_num;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr = query(qp, IBV_QPS_RESET);
    CHECK(qp->qp_num == number && !attr.dest_qp_num && !attr.rq_psn && !attr.sq_psn && !attr.timeout);
}

/* The step to RTS may give a datagram queue pair another key: it receives what names the new one. */
static void key_of_the_last_step(struct ibv_pd *pd, union ibv_gid *gid)
{
    enum { OLD = 0x111, NEW = 0x222 };
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_ah_attr route = { .is_global = 1, .port_num = 1,
        .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } };
    struct ibv_ah *handle = ibv_create_ah(pd, &route);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = OLD };
    CHECK(qp && handle);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    struct ibv_sge piece = { (uintptr_t)memory, BYTES, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &piece, .num_sge = 1 }, *bad_receive;
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    attr.qkey = NEW;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_QKEY));
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_QKEY, &init) && attr.qkey == NEW);
    for (uint32_t key = OLD; key <= NEW; key += NEW - OLD) {
        piece.length = BYTES - 40; /* the receive has a header too */
        struct ibv_send_wr send = { .wr_id = 2, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
            .imm_data = key, .send_flags = IBV_SEND_SIGNALED,
            .wr.ud = { .ah = handle, .remote_qpn = qp->qp_num, .remote_qkey = key } }, *bad;
        CHECK(!ibv_post_send(qp, &send, &bad));
    }
    for (int left = 3; left > 0; left--) { /* two sends, and the receive of the one with the new key */
        struct ibv_wc wc = next(cq);
        CHECK(wc.status == IBV_WC_SUCCESS && (wc.opcode != IBV_WC_RECV || wc.imm_data == NEW));
    }
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_ah(handle));
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd && (cq = ibv_create_cq(context, 262144, NULL, NULL, 0)) && cq->cqe >= 262144); /* libfabric asks for it */
    struct ibv_device_attr limits;
    CHECK(!ibv_query_device(context, &limits) && limits.max_cqe >= cq->cqe);
    CHECK(!ibv_create_cq(context, limits.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
    CHECK((mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE)));
    key_of_the_last_step(pd, &gid);
    struct ibv_qp *one = make(pd, NULL), *two = make(pd, NULL);
    query(one, IBV_QPS_RESET);
    to_init(one, IBV_ACCESS_REMOTE_READ);
    struct ibv_qp_attr attr = query(one, IBV_QPS_INIT);
    CHECK(attr.qp_access_flags == IBV_ACCESS_REMOTE_READ && attr.port_num == 1 && !attr.pkey_index);
    to_rtr(one, two->qp_num, &gid, 0xFFABCDEF); /* 24 bits of it count */
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_ERR + 1 };
    CHECK(ibv_modify_qp(one, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
    attr = query(one, IBV_QPS_RTR);
    CHECK(attr.rq_psn == 0xABCDEF && attr.dest_qp_num == two->qp_num && attr.path_mtu == IBV_MTU_1024);
    CHECK(attr.max_dest_rd_atomic == 4 && attr.min_rnr_timer == 12);
    CHECK(attr.ah_attr.is_global == 1 && attr.ah_attr.port_num == 1 && attr.ah_attr.grh.sgid_index == GID_INDEX &&
        attr.ah_attr.grh.hop_limit == 64 && attr.ah_attr.grh.traffic_class == 8 &&
        !memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof gid));
    to_rts(one, 0x123456);
    attr = query(one, IBV_QPS_RTS);
    CHECK(attr.sq_psn == 0x123456 && attr.rq_psn == 0xABCDEF && attr.timeout == 14 && attr.retry_cnt == 6 &&
        attr.rnr_retry == 7 && attr.max_rd_atomic == 3 && attr.min_rnr_timer == 12);
    struct ibv_qp_attr again = { .min_rnr_timer = 20, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
    CHECK(!ibv_modify_qp(one, &again, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS));
    attr = query(one, IBV_QPS_RTS);
    CHECK(attr.min_rnr_timer == 20 && attr.qp_access_flags == IBV_ACCESS_REMOTE_WRITE);
    /* Numbers count on as messages are exchanged. */
    to_init(two, 0);
    to_rtr(two, one->qp_num, &gid, 0x123456);
    to_rts(two, 0xABCDEF);
    struct ibv_sge piece = { (uintptr_t)memory, BYTES, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &piece, .num_sge = 1 }, *bad_receive;
    CHECK(!ibv_post_recv(two, &receive, &bad_receive));
    message(one, two, 1);
    CHECK(query(one, IBV_QPS_RTS).sq_psn == 0x123457 && query(two, IBV_QPS_RTS).rq_psn == 0x123457);
    fails(one);
    reset(one);
    reset(two);
    struct ibv_qp_attr early = { .qp_state = IBV_QPS_RTS };
    CHECK(ibv_modify_qp(one, &early, IBV_QP_STATE) == EINVAL);

    /* Two queue pairs of one shared receive queue; one of them goes back to RESET with receives in its ring. */
    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &wanted);
    CHECK(srq);
    struct ibv_qp *fed = make(pd, srq), *other = make(pd, srq), *third = make(pd, NULL);
    for (uint64_t id = 1; id <= RECEIVES; id++) {
        receive.wr_id = id;
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
    }
    join(one, fed, &gid);
    join(two, other, &gid);
    message(one, fed, 0);
    message(two, other, 0); /* a queue pair that came later has receives too */
    reset(fed);
    struct ibv_qp_attr failing = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(one, &failing, IBV_QP_STATE));
    join(fed, third, &gid);
    int left = RECEIVES - 2; /* each receive is used once, whatever became of its first queue pair */
    while (left > 0) {
        message(third, fed, 0);
        if (--left > 0) {
            message(two, other, 0);
            left--;
        }
        if (left == 20) {
            reset(fed);
            reset(third);
            join(fed, third, &gid);
        }
    }
    for (uint64_t id = 1; id <= RECEIVES; id++) {
        receive.wr_id = id;
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
    }
    message(third, fed, 0);
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    CHECK(!ibv_destroy_qp(fed) && !ibv_destroy_qp(other) && !ibv_destroy_qp(third));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
