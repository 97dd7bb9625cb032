/* Eight threads post to one queue pair, whose peer takes its receives from a shared receive queue.
 * Every message arrives once, and those of a thread in their order. Says "ok" and ends with 0. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { THREADS = 8, MESSAGES = 200, RECEIVES = 100, GID_INDEX = 1 };

struct message {
    uint32_t thread, number;
};

static struct ibv_qp *sender;
static struct message received[RECEIVES];

static void *post(void *argument)
{
    struct message message = { .thread = (uint32_t)(uintptr_t)argument };
    struct ibv_sge from = { (uintptr_t)&message, sizeof message, 0 };
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr_id = RECEIVES }, *bad;
    for (; message.number < MESSAGES; message.number++) {
        int error;
        while ((error = ibv_post_send(sender, &send, &bad)) == ENOMEM)
            sched_yield();
        CHECK(!error);
    }
    return NULL;
}

static void give(struct ibv_srq *srq, struct ibv_mr *mr, uint64_t place)
{
    struct ibv_sge into = { (uintptr_t)&received[place], sizeof received[place], mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = place, .sg_list = &into, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
}

static void move(struct ibv_qp *qp, uint32_t peer, union ibv_gid *gid)
{
    struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
        .rq_psn = 7, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
    CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .sq_psn = 7, .max_rd_atomic = 1 };
    CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 512, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, received, sizeof received, IBV_ACCESS_LOCAL_WRITE);
    union ibv_gid gid;
    CHECK(cq && mr && !ibv_query_gid(context, 1, GID_INDEX, &gid));

    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &wanted);
    CHECK(srq && srq->pd == pd);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    sender = ibv_create_qp(pd, &init);
    init.srq = srq;
    struct ibv_qp *receiver = ibv_create_qp(pd, &init);
    CHECK(sender && receiver && receiver->srq == srq);
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    move(sender, receiver->qp_num, &gid);
    move(receiver, sender->qp_num, &gid);

    struct ibv_recv_wr own = { .wr_id = 1 }, *bad = NULL;
    CHECK(ibv_post_recv(receiver, &own, &bad) == EINVAL && bad == &own);
    struct ibv_srq_attr limit = { .srq_limit = RECEIVES / 2 };
    for (int place = 0; place < RECEIVES; place++)
        give(srq, mr, (uint64_t)place);
    CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    CHECK(!ibv_query_srq(srq, &limit) && limit.max_wr == RECEIVES && limit.srq_limit == RECEIVES / 2);

    pthread_t threads[THREADS];
    for (uintptr_t thread = 0; thread < THREADS; thread++)
        CHECK(!pthread_create(&threads[thread], NULL, post, (void *)thread));
    uint32_t next[THREADS] = { 0 };
    int sent = 0, arrived = 0, kept = 0;
    struct pollfd event_ready = { .fd = context->async_fd, .events = POLLIN };
    while (sent < THREADS * MESSAGES || arrived < THREADS * MESSAGES) {
        struct ibv_wc wc[16];
        int count = ibv_poll_cq(cq, 16, wc);
        for (int i = 0; i < count; i++) {
            CHECK(wc[i].status == IBV_WC_SUCCESS);
            if (wc[i].wr_id == RECEIVES) {
                sent++;
                continue;
            }
            struct message *message = &received[wc[i].wr_id];
            CHECK(wc[i].opcode == IBV_WC_RECV && wc[i].qp_num == receiver->qp_num);
            CHECK(message->thread < THREADS && message->number == next[message->thread]);
            next[message->thread]++;
            arrived++;
            /* The first ones are kept back, until the limit is passed. */
            if (kept < RECEIVES / 2 + 1)
                kept++;
            else
                give(srq, mr, wc[i].wr_id);
        }
    }
    for (int thread = 0; thread < THREADS; thread++)
        CHECK(!pthread_join(threads[thread], NULL) && next[thread] == MESSAGES);
    CHECK(poll(&event_ready, 1, 20000) == 1);
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);

    CHECK(!ibv_destroy_qp(sender) && !ibv_destroy_qp(receiver));
    CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
