/* Counts of the C interface: 8-byte RDMA writes to itself, one in flight, posted and polled by functions that
 * callgrind counts by name. Between the two it waits, by sleeping, until the completion is there.
 * Usage: c_interface ROUNDS plain|inline|thread-domain */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(holds) do { if (!(holds)) { fprintf(stderr, "line %d: %s\n", __LINE__, #holds); exit(1); } } while (0)

enum { GID_INDEX = 1 };

static struct ibv_qp *pair(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    CHECK(made);
    return made;
}

static void join(struct ibv_qp *qp, uint32_t peer, union ibv_gid *gid)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 1,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
    CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 1,
        .max_rd_atomic = 1 };
    CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
        IBV_QP_MAX_QP_RD_ATOMIC));
}

__attribute__((noinline)) int measured_post(struct ibv_qp *qp, struct ibv_send_wr *write)
{
    struct ibv_send_wr *bad;
    return ibv_post_send(qp, write, &bad);
}

__attribute__((noinline)) int measured_poll(struct ibv_cq *cq, struct ibv_wc *wc)
{
    return ibv_poll_cq(cq, 1, wc);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    int rounds = atoi(words[1]);
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    union ibv_gid gid;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd && !ibv_query_gid(context, 1, GID_INDEX, &gid));
    static uint64_t from, to;
    struct ibv_mr *source = ibv_reg_mr(pd, &from, sizeof from, 0);
    struct ibv_mr *target = ibv_reg_mr(pd, &to, sizeof to, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_cq_init_attr_ex wanted = { .cqe = 64 };
    struct ibv_pd *domain = pd;
    if (!strcmp(words[2], "thread-domain")) {
        struct ibv_td_init_attr thread = { 0 };
        struct ibv_parent_domain_init_attr parent = { .pd = pd, .td = ibv_alloc_td(context, &thread) };
        domain = ibv_alloc_parent_domain(context, &parent);
        wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        wanted.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    }
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &wanted));
    CHECK(domain && cq && source && target);
    struct ibv_qp *one = pair(domain, cq), *two = pair(domain, cq);
    join(one, two->qp_num, &gid);
    join(two, one->qp_num, &gid);
    struct ibv_sge data = { (uintptr_t)&from, sizeof from, source->lkey };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)&to, target->rkey } };
    if (!strcmp(words[2], "inline"))
        write.send_flags |= IBV_SEND_INLINE;
    for (int round = 1; round <= rounds; round++) {
        from = round;
        write.wr_id = round;
        CHECK(!measured_post(one, &write));
        /* The write lands before its completion: give that the time of many turns of the model. */
        for (int i = 0; *(volatile uint64_t *)&to != (uint64_t)round; i++) {
            CHECK(i < 100000);
            usleep(100);
        }
        usleep(3000);
        struct ibv_wc wc;
        CHECK(measured_poll(cq, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)round);
    }
    puts("ok");
    return 0;
}
