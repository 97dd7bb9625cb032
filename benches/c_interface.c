/* Counts of the C interface: 8-byte RDMA writes or sends to itself, one in flight, posted and polled by functions that
 * callgrind counts by name. Between the two it waits, without polling, until the completion is there.
 * Usage: c_interface ROUNDS plain|inline|thread-domain|shared
 *   shared   sends into a shared receive queue; its receive, and both completions with room for 16, as UCX does */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(holds) do { if (!(holds)) { fprintf(stderr, "line %d: %s\n", __LINE__, #holds); exit(1); } } while (0)

enum { GID_INDEX = 1, ROOM = 16 };

static struct ibv_qp *pair(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_cq *receive_cq, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = receive_cq, .srq = srq, .qp_type = IBV_QPT_RC,
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

__attribute__((noinline)) int measured_poll_many(struct ibv_cq *cq, struct ibv_wc *wc)
{
    return ibv_poll_cq(cq, ROOM, wc);
}

__attribute__((noinline)) int measured_post_shared(struct ibv_srq *srq, struct ibv_recv_wr *receive)
{
    struct ibv_recv_wr *bad;
    return ibv_post_srq_recv(srq, receive, &bad);
}

/* One send into the receive that was posted a round before, and its two completions. */
static void shared_round(struct ibv_qp *qp, struct ibv_srq *srq, struct ibv_cq *receive_cq, struct ibv_send_wr *send,
    struct ibv_recv_wr *receive, volatile uint64_t *to)
{
    struct ibv_wc wc[ROOM];
    struct ibv_cq *cqs[] = { qp->send_cq, receive_cq };
    receive->wr_id = send->wr_id;
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_req_notify_cq(cqs[i], 0));
    CHECK(!measured_post_shared(srq, receive) && !measured_post(qp, send));
    alarm(60);
    for (int i = 0; i < 2; i++) {
        struct ibv_cq *from;
        void *program;
        CHECK(!ibv_get_cq_event(cqs[i]->channel, &from, &program));
        ibv_ack_cq_events(from, 1);
    }
    CHECK(measured_poll_many(qp->send_cq, wc) == 1 && wc->status == IBV_WC_SUCCESS && wc->wr_id == send->wr_id);
    CHECK(measured_poll_many(receive_cq, wc) == 1 && wc->status == IBV_WC_SUCCESS && wc->wr_id == send->wr_id - 1);
    CHECK(wc->opcode == IBV_WC_RECV && wc->byte_len == sizeof *to && *to == send->wr_id);
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
    int is_shared = !strcmp(words[2], "shared");
    if (is_shared)
        CHECK((wanted.channel = ibv_create_comp_channel(context)));
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &wanted));
    CHECK(domain && cq && source && target);
    struct ibv_cq *receive_cq = cq;
    struct ibv_srq *srq = NULL;
    if (is_shared) {
        struct ibv_srq_init_attr many = { .attr = { .max_wr = 64, .max_sge = 1 } };
        CHECK((srq = ibv_create_srq(pd, &many)) && (receive_cq = ibv_create_cq(context, 64, NULL, wanted.channel, 0)));
    }
    struct ibv_qp *one = pair(domain, cq, cq, NULL), *two = pair(domain, cq, receive_cq, srq);
    join(one, two->qp_num, &gid);
    join(two, one->qp_num, &gid);
    struct ibv_sge data = { (uintptr_t)&from, sizeof from, source->lkey };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)&to, target->rkey } };
    if (!strcmp(words[2], "inline"))
        write.send_flags |= IBV_SEND_INLINE;
    struct ibv_sge room = { (uintptr_t)&to, sizeof to, target->lkey };
    struct ibv_recv_wr receive = { .sg_list = &room, .num_sge = 1 };
    if (srq) {
        /* The first receive makes the library register memory, in other threads too: it is not counted. */
        struct ibv_recv_wr *bad;
        CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
        write.opcode = IBV_WR_SEND;
    }
    for (int round = 1; round <= rounds; round++) {
        from = round;
        write.wr_id = round;
        if (srq) {
            shared_round(one, srq, receive_cq, &write, &receive, &to);
            continue;
        }
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
