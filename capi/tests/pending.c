/* A thread that is to be cancelled makes every call of verbs that does not sleep: it is cancelled in none, and not
 * before it asks for it. What it made works afterwards. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <pthread.h>

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND };

static struct ibv_context *context;
static union ibv_gid gid;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *one, *two;
static struct ibv_mr *mr;
static char memory[4096];

/* The call that is made now, for the message. */
static const char *now = "none";
#define CALL(what) do { now = #what; CHECK(what); } while (0)

static void make(void)
{
    struct ibv_device **list;
    CALL((list = ibv_get_device_list(NULL)) && list[0]);
    CALL(context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    CALL(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    CALL(pd = ibv_alloc_pd(context));
    CALL(channel = ibv_create_comp_channel(context));
    CALL(cq = ibv_create_cq(context, 8, NULL, channel, 0));
    struct ibv_wc wc;
    /* The first one of the process reads the number of processors. */
    for (int poll = 0; poll < 100; poll++)
        CALL(ibv_poll_cq(cq, 1, &wc) == 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CALL((one = ibv_create_qp(pd, &init)) && (two = ibv_create_qp(pd, &init)));
    now = "ibv_modify_qp";
    join(one, two, &gid);
    CALL(mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS));
}

static void write_once(uint64_t id)
{
    struct ibv_sge data = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr write = { .wr_id = id, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)memory + 8, mr->rkey } }, *bad;
    CALL(!ibv_post_send(one, &write, &bad));
}

/* Events come of a completion that is unread, and of requests of a failed queue pair. */
static void use(void)
{
    CALL(!ibv_req_notify_cq(cq, 0));
    write_once(1);
    struct pollfd event = { .fd = channel->fd, .events = POLLIN };
    int before;
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
    CHECK(poll(&event, 1, SECONDS * 1000) == 1);
    CHECK(takes_event(channel, 0));
    CHECK(next(cq).wr_id == 1);
    write_once(2);
    while (!ibv_req_notify_cq(cq, 0) && poll(&event, 1, 1) == 0)
        ;
    CHECK(takes_event(channel, 0)); /* the completion is unread, perhaps told of by the device */
    write_once(3);
    CHECK(!pthread_setcancelstate(before, NULL));
    sched_yield();
    CALL(!ibv_req_notify_cq(cq, 0));
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    CALL(!ibv_modify_qp(one, &attr, IBV_QP_STATE));
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    for (uint64_t id = 2; id < 4; id++)
        CHECK(next(cq).wr_id == id);
    while (takes_event(channel, 100))
        CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(!pthread_setcancelstate(before, NULL));
    write_once(4);
}

static void others(void)
{
    struct ibv_device_attr device;
    struct ibv_device_attr_ex device_ex;
    struct ibv_port_attr port;
    union ibv_gid found;
    uint16_t key;
    CALL(!ibv_query_device(context, &device) && !ibv_query_device_ex(context, NULL, &device_ex));
    CALL(!ibv_query_port(context, 1, &port));
    CALL(!ibv_query_gid(context, 1, GID_INDEX, &found) && !ibv_query_pkey(context, 1, 0, &key));
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CALL(!ibv_query_qp(two, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &init));
    CALL(!ibv_resize_cq(cq, 64));
    struct ibv_ah_attr way = { .is_global = 1, .port_num = 1,
        .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } };
    struct ibv_ah *ah;
    CALL(ah = ibv_create_ah(pd, &way));
    CALL(!ibv_destroy_ah(ah));
    struct ibv_mw *window;
    CALL(window = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
    CALL(!ibv_dealloc_mw(window));
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 1 } };
    struct ibv_srq_attr size;
    struct ibv_srq *srq;
    CALL(srq = ibv_create_srq(pd, &shared));
    CALL(!ibv_query_srq(srq, &size));
    CALL(!ibv_destroy_srq(srq));
    struct ibv_cq_init_attr_ex extended = { .cqe = 4 };
    struct ibv_cq_ex *cq_ex;
    CALL(cq_ex = ibv_create_cq_ex(context, &extended));
    CALL(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)));
    CALL(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ACCESS | IBV_ACCESS_REMOTE_READ));
}

/* The first receive of a shared queue has the library register memory, and a message that is longer than its receive
 * has it stop the queue pair. */
static void shared(void)
{
    struct ibv_srq_init_attr size = { .attr = { .max_wr = 16, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &size);
    struct ibv_cq *own = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = own, .recv_cq = own, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *from = ibv_create_qp(pd, &init);
    init.srq = srq;
    struct ibv_qp *to = ibv_create_qp(pd, &init);
    CHECK(srq && own && from && to);
    join(from, to, &gid);
    struct ibv_sge data = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 9, .sg_list = &data, .num_sge = 1 }, *bad_receive;
    CALL(!ibv_post_srq_recv(srq, &receive, &bad_receive));
    data.length = 64;
    struct ibv_send_wr send = { .wr_id = 8, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
    CALL(!ibv_post_send(from, &send, &bad));
    now = "ibv_poll_cq of a message that is too long";
    struct ibv_wc wc;
    while ((wc = next(own)).wr_id != 9)
        ;
    CHECK(wc.status != IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_cq(own) && !ibv_destroy_srq(srq));
}

static void *live(void *unused)
{
    (void)unused;
    /* It is cancelled already, and from here on at any point of cancellation. */
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    CHECK(!pthread_cancel(pthread_self()));
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    make();
    use();
    others();
    shared();
    now = "none";
    pthread_testcancel();
    return NULL;
}

static void *end(void *unused)
{
    (void)unused;
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    CHECK(!pthread_cancel(pthread_self()));
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    CALL(!ibv_destroy_qp(one));
    CALL(!ibv_destroy_qp(two));
    CALL(!ibv_destroy_cq(cq)); /* an event was not read */
    CALL(!ibv_destroy_comp_channel(channel));
    CALL(!ibv_dereg_mr(mr));
    CALL(!ibv_dealloc_pd(pd));
    CALL(!ibv_close_device(context));
    now = "none";
    pthread_testcancel();
    return NULL;
}

/* Runs a thread, which ends where it asks for it. */
static void run(void *(*body)(void *))
{
    pthread_t thread;
    void *result;
    struct timespec limit;
    CHECK(!pthread_create(&thread, NULL, body, NULL));
    CHECK(!clock_gettime(CLOCK_REALTIME, &limit));
    limit.tv_sec += 3 * SECONDS;
    int joined = pthread_timedjoin_np(thread, &result, &limit);
    if (joined || now[0] != 'n' || now[1] != 'o')
        fprintf(stderr, "%s in %s\n", joined ? "it stays" : "it was cancelled", now);
    CHECK(!joined && result == PTHREAD_CANCELED && !strcmp(now, "none"));
}

int main(void)
{
    run(live);
    CHECK(takes_event(channel, SECONDS * 1000)); /* of the request that was flushed */
    struct ibv_wc wc = next(cq);
    CHECK(wc.wr_id == 4 && wc.status == IBV_WC_WR_FLUSH_ERR);
    /* An event that is left unread. */
    CHECK(!ibv_req_notify_cq(cq, 0));
    write_once(5);
    run(end);
    puts("ok");
    return 0;
}
