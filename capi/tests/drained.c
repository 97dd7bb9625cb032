/* A queue pair that stops sending (SQD): what was sent is answered, what is posted waits until it sends again; and
 * the attributes that change meanwhile, or while it sends. Says "ok" and ends with 0. */
#include "connect.h"
#include <pthread.h>

enum { BYTES = 64, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, QKEY = 0x1234 };

static char memory[4][BYTES];
static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_qp *posting; /* of the second thread */
static int posted;

static struct ibv_qp *make(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static int change(struct ibv_qp *qp, enum ibv_qp_state to, struct ibv_qp_attr attr, int mask)
{
    attr.qp_state = to;
    return ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id)
{
    struct ibv_sge piece = { (uintptr_t)memory[0], BYTES, mr->lkey };
    struct ibv_send_wr wanted = { .wr_id = id, .sg_list = &piece, .num_sge = 1, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)memory[1], mr->rkey } }, *bad;
    CHECK(!ibv_post_send(qp, &wanted, &bad));
}

static void receive(struct ibv_qp *qp, uint64_t id)
{
    struct ibv_sge piece = { (uintptr_t)memory[2], 2 * BYTES, mr->lkey };
    struct ibv_recv_wr wanted = { .wr_id = id, .sg_list = &piece, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_recv(qp, &wanted, &bad));
}

static void expect(uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next(cq);
    if (wc.wr_id != id || wc.status != status)
        fprintf(stderr, "request %lu: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
    CHECK(wc.wr_id == id && wc.status == status);
}

static void nothing_comes(void)
{
    struct ibv_wc wc;
    const struct timespec moment = { .tv_nsec = 50000000 };
    nanosleep(&moment, NULL);
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

static struct ibv_qp_attr query(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    CHECK(attr.qp_state == state && attr.cur_qp_state == state && qp->state == state && !attr.sq_draining);
    return attr;
}

static void stops(struct ibv_qp *one, struct ibv_qp *two)
{
    struct ibv_qp_attr attr = { .en_sqd_async_notify = 1 };
    CHECK(change(one, IBV_QPS_SQD, attr, IBV_QP_TIMEOUT) == EINVAL);
    for (uint64_t id = 1; id <= 3; id++)
        post(one, IBV_WR_RDMA_WRITE, id);
    CHECK(!change(one, IBV_QPS_SQD, attr, IBV_QP_EN_SQD_ASYNC_NOTIFY));
    query(one, IBV_QPS_SQD);
    /* The device may have begun some of them. Those are complete, and no other one comes. */
    uint64_t first = 1;
    struct ibv_wc begun;
    for (; ibv_poll_cq(cq, 1, &begun); first++)
        CHECK(begun.wr_id == first && begun.status == IBV_WC_SUCCESS);
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == one);
    ibv_ack_async_event(&event);

    /* It receives on, and keeps what is posted. */
    memcpy(memory[0], "after the stop", 15);
    post(one, IBV_WR_RDMA_WRITE, 4);
    nothing_comes();
    CHECK(!memory[1][0]);
    receive(one, 50);
    post(two, IBV_WR_SEND, 60);
    uint64_t seen = next(cq).wr_id + next(cq).wr_id;
    CHECK(seen == 110 && !strcmp(memory[2], memory[0]));

    attr = (struct ibv_qp_attr){ .timeout = 10, .retry_cnt = 1, .rnr_retry = 7, .qp_access_flags = 0 };
    CHECK(!change(one, IBV_QPS_SQD, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_ACCESS_FLAGS));
    attr = query(one, IBV_QPS_SQD);
    CHECK(attr.timeout == 10 && attr.retry_cnt == 1 && attr.qp_access_flags == 0 && attr.dest_qp_num == two->qp_num);
    attr.ah_attr.grh.traffic_class++;
    CHECK(change(one, IBV_QPS_SQD, attr, IBV_QP_AV) == EOPNOTSUPP);
    CHECK(change(one, IBV_QPS_RTR, attr, 0) == EINVAL && change(one, IBV_QPS_RTS, attr, IBV_QP_RETRY_CNT) == EINVAL);
    query(one, IBV_QPS_SQD);
    CHECK(!change(one, IBV_QPS_RTS, attr, 0));
    for (; first <= 4; first++)
        expect(first, IBV_WC_SUCCESS);
    CHECK(!strcmp(memory[1], memory[0]));
    query(one, IBV_QPS_RTS);
}

static void *post_later(void *unused)
{
    const struct timespec moment = { .tv_sec = 1 };
    nanosleep(&moment, NULL);
    post(posting, IBV_WR_RDMA_WRITE, 8);
    __atomic_store_n(&posted, 1, __ATOMIC_SEQ_CST);
    return unused;
}

/* The peer has no receive: the wait has an end, and other threads may post meanwhile. */
static void does_not_stop(struct ibv_qp *one, struct ibv_qp *two)
{
    pthread_t thread;
    posting = one;
    post(one, IBV_WR_SEND, 7);
    CHECK(!pthread_create(&thread, NULL, post_later, NULL));
    const struct ibv_qp_attr none = { 0 };
    int result;
    while (!(result = change(one, IBV_QPS_SQD, none, 0))) { /* the device had not begun the request */
        CHECK(!change(one, IBV_QPS_RTS, none, 0));
        sched_yield();
    }
    CHECK(result == EBUSY);
    CHECK(__atomic_load_n(&posted, __ATOMIC_SEQ_CST));
    query(one, IBV_QPS_RTS);
    receive(two, 70);
    uint64_t seen = next(cq).wr_id + next(cq).wr_id + next(cq).wr_id;
    CHECK(seen == 85 && !pthread_join(thread, NULL));
}

/* New rights of the peer, where the queue pair sends and where it has stopped. */
static void rights_change(struct ibv_qp *one, struct ibv_qp *two)
{
    struct ibv_qp_attr none = { 0 }, read = { .qp_access_flags = IBV_ACCESS_REMOTE_READ };
    post(one, IBV_WR_RDMA_READ, 9);
    expect(9, IBV_WC_SUCCESS);
    CHECK(!change(two, IBV_QPS_SQD, none, 0) && !change(two, IBV_QPS_RTS, none, IBV_QP_ACCESS_FLAGS));
    CHECK(!ibv_modify_qp(two, &read, IBV_QP_ACCESS_FLAGS));
    post(one, IBV_WR_RDMA_READ, 10);
    expect(10, IBV_WC_SUCCESS);
    CHECK(!ibv_modify_qp(two, &none, IBV_QP_ACCESS_FLAGS));
    post(one, IBV_WR_RDMA_READ, 11);
    expect(11, IBV_WC_REM_INV_REQ_ERR);
    CHECK(change(one, IBV_QPS_SQD, none, 0) == EINVAL); /* it has failed */
}

/* A stopped queue pair that ends flushes what waits; one that goes back to RESET drops it. */
static void ends(struct ibv_qp *one, struct ibv_qp *two)
{
    struct ibv_qp_attr none = { 0 };
    for (int fails = 1; fails >= 0; fails--) {
        CHECK(!change(one, IBV_QPS_RESET, none, 0) && !change(two, IBV_QPS_RESET, none, 0));
        CHECK(change(one, IBV_QPS_SQD, none, 0) == EINVAL);
        join(one, two, &gid);
        CHECK(!change(one, IBV_QPS_SQD, none, 0));
        post(one, IBV_WR_RDMA_WRITE, 12);
        if (fails) {
            CHECK(!change(one, IBV_QPS_ERR, none, 0));
            expect(12, IBV_WC_WR_FLUSH_ERR);
        }
    }
    CHECK(!change(one, IBV_QPS_RESET, none, 0) && !change(two, IBV_QPS_RESET, none, 0));
    join(one, two, &gid);
    post(one, IBV_WR_RDMA_WRITE, 13);
    expect(13, IBV_WC_SUCCESS);
}

static void datagrams(void)
{
    struct ibv_qp *qp = make(IBV_QPT_UD);
    struct ibv_qp_attr attr = { .port_num = 1, .qkey = QKEY };
    struct ibv_ah_attr route = { .is_global = 1, .port_num = 1,
        .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } };
    struct ibv_ah *handle = ibv_create_ah(pd, &route);
    CHECK(handle && !change(qp, IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    CHECK(!change(qp, IBV_QPS_RTR, attr, 0) && !change(qp, IBV_QPS_RTS, attr, IBV_QP_SQ_PSN));
    CHECK(!change(qp, IBV_QPS_SQD, attr, 0));
    attr.qkey = QKEY + 1;
    CHECK(!change(qp, IBV_QPS_SQD, attr, IBV_QP_QKEY));
    for (uint64_t id = 20; id < 22; id++)
        receive(qp, id);
    for (uint32_t key = QKEY; key <= QKEY + 1; key++) {
        struct ibv_sge piece = { (uintptr_t)memory[0], BYTES, mr->lkey };
        struct ibv_send_wr wanted = { .wr_id = 100, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
            .imm_data = key, .send_flags = IBV_SEND_SIGNALED,
            .wr.ud = { .ah = handle, .remote_qpn = qp->qp_num, .remote_qkey = key } }, *bad;
        CHECK(!ibv_post_send(qp, &wanted, &bad));
    }
    nothing_comes();
    CHECK(!change(qp, IBV_QPS_RTS, attr, 0));
    int arrived = 0;
    for (int done = 0; done < 3; done++) { /* two sends, and the receive of the one that has the new key */
        struct ibv_wc wc = next(cq);
        CHECK(wc.status == IBV_WC_SUCCESS);
        CHECK(wc.opcode != IBV_WC_RECV || (wc.imm_data == QKEY + 1 && !arrived++));
    }
    nothing_comes();
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_ah(handle));
}

int main(void)
{
    context = open_first(&gid);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, ALL);
    CHECK(pd && cq && mr);
    struct ibv_qp *one = make(IBV_QPT_RC), *two = make(IBV_QPT_RC);
    join(one, two, &gid);
    stops(one, two);
    does_not_stop(one, two);
    rights_change(one, two);
    ends(one, two);
    CHECK(!change(one, IBV_QPS_SQD, (struct ibv_qp_attr){ 0 }, 0));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two)); /* also one that has stopped */
    datagrams();
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
