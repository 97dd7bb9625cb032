/* A program over the C interface, built against rdma-core's headers: two queue pairs of one device,
 * memory of its own (heap, stack, static), every operation, events, a wrong key, an orderly end.
 * Says "ok" and ends with 0 if all is as verbs promises. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { BYTES = 100000, GID_INDEX = 1 };

static char in_data_segment[BYTES];

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2,
                 .max_inline_data = 64 },
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && init.cap.max_send_wr >= 16 && init.cap.max_inline_data >= 64);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    CHECK(qp->state == IBV_QPS_INIT);
    return qp;
}

static void join(struct ibv_qp *qp, uint32_t peer, uint32_t receive_psn, uint32_t send_psn, union ibv_gid *gid)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
        .rq_psn = receive_psn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .sq_psn = send_psn, .max_rd_atomic = 1 };
    CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    CHECK(qp->state == IBV_QPS_RTS);
}

static struct ibv_wc next(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int count = 0;
    for (long turn = 0; turn < 2000000000L && !(count = ibv_poll_cq(cq, 1, &wc)); turn++)
        ;
    CHECK(count == 1);
    return wc;
}

int main(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    CHECK(ibv_query_port(context, 2, &port) == EINVAL);
    struct ibv_device_attr_ex all;
    CHECK(!ibv_query_device_ex(context, NULL, &all) && all.phys_port_cnt_ex == 1);
    union ibv_gid gid, none;
    CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    CHECK(ibv_query_gid(context, 1, 99, &none) == -1);

    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(pd && channel);
    int room = 64;
    struct ibv_cq *cq = ibv_create_cq(context, room, &room, channel, 0);
    CHECK(cq && cq->cqe >= 64 && !ibv_create_cq(context, 0, NULL, NULL, 0));

    char on_stack[BYTES], *on_heap = malloc(BYTES + 1);
    struct ibv_mr *stack = ibv_reg_mr(pd, on_stack, BYTES, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *heap = ibv_reg_mr(pd, on_heap + 1, BYTES,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    struct ibv_mr *data = ibv_reg_mr(pd, in_data_segment, BYTES, 0);
    CHECK(stack && heap && data);
    CHECK(!ibv_reg_mr(pd, on_heap, BYTES, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);

    struct ibv_qp *one = make(pd, cq), *two = make(pd, cq);
    CHECK(ibv_destroy_cq(cq) == EBUSY);
    join(one, two->qp_num, 111, 222, &gid);
    join(two, one->qp_num, 222, 111, &gid);

    /* A send from the data segment to the heap, with an event. */
    for (int i = 0; i < BYTES; i++)
        in_data_segment[i] = (char)(i * 7);
    struct ibv_sge into = { (uintptr_t)on_heap + 1, BYTES, heap->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &into, .num_sge = 1 }, *bad_receive;
    CHECK(!ibv_post_recv(two, &receive, &bad_receive));
    CHECK(!ibv_req_notify_cq(cq, 0));
    struct ibv_sge from = { (uintptr_t)in_data_segment, BYTES, data->lkey };
    struct ibv_send_wr send = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED, .imm_data = 0x78563412 }, *bad;
    CHECK(!ibv_post_send(one, &send, &bad));
    struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
    CHECK(poll(&ready, 1, 20000) == 1);
    struct ibv_cq *event_cq;
    void *event_context;
    CHECK(!ibv_get_cq_event(channel, &event_cq, &event_context));
    CHECK(event_cq == cq && event_context == &room);
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(ibv_get_cq_event(channel, &event_cq, &event_context) == -1 && errno == EAGAIN);
    for (int done = 0; done < 2; done++) {
        struct ibv_wc wc = next(cq);
        CHECK(wc.status == IBV_WC_SUCCESS);
        if (wc.wr_id == 1)
            CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == BYTES && wc.imm_data == 0x78563412 &&
                (wc.wc_flags & IBV_WC_WITH_IMM) && wc.qp_num == two->qp_num);
        else
            CHECK(wc.wr_id == 2 && wc.opcode == IBV_WC_SEND && wc.qp_num == one->qp_num);
    }
    CHECK(!memcmp(on_heap + 1, in_data_segment, BYTES));

    /* A read of the heap to the stack, and an inline write back. */
    struct ibv_sge local = { (uintptr_t)on_stack, BYTES, stack->lkey };
    struct ibv_send_wr get = { .wr_id = 3, .sg_list = &local, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)on_heap + 1, heap->rkey } };
    CHECK(!ibv_post_send(one, &get, &bad));
    struct ibv_wc wc = next(cq);
    CHECK(wc.wr_id == 3 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ);
    CHECK(!memcmp(on_stack, in_data_segment, BYTES));
    char text[] = "written inline";
    struct ibv_sge unregistered = { (uintptr_t)text, sizeof text, 0 };
    struct ibv_send_wr put = { .wr_id = 4, .sg_list = &unregistered, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.rdma = { (uintptr_t)on_heap + 100, heap->rkey } };
    CHECK(!ibv_post_send(one, &put, &bad));
    wc = next(cq);
    CHECK(wc.wr_id == 4 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
    CHECK(!strcmp(on_heap + 100, text));

    /* What verbs refuses. */
    struct ibv_sge piece = { (uintptr_t)on_heap, 1, heap->lkey }, many[3] = { piece, piece, piece };
    put.send_flags = IBV_SEND_SIGNALED;
    put.sg_list = many;
    for (put.num_sge = 100; put.num_sge; put.num_sge = put.num_sge == 100 ? 3 : 0) {
        bad = NULL;
        CHECK(ibv_post_send(one, &put, &bad) == EINVAL && bad == &put);
    }
    struct ibv_recv_wr take = { .sg_list = many, .num_sge = 3 }, *refused = NULL;
    CHECK(ibv_post_recv(one, &take, &refused) == EINVAL && refused == &take);
    /* Inline data beyond what was asked for, in one piece and in two. */
    put.send_flags |= IBV_SEND_INLINE;
    many[0].length = 65;
    many[1].length = 0;
    for (put.num_sge = 1; put.num_sge < 3; put.num_sge++) {
        bad = NULL;
        CHECK(ibv_post_send(one, &put, &bad) == EINVAL && bad == &put);
        many[0].length = 64;
        many[1].length = 1;
    }
    put.sg_list = &unregistered;
    put.num_sge = 1;

    /* A wrong key fails the queue pair: poll alone says so, and later requests are flushed. */
    put.wr.rdma.rkey ^= 0x5500;
    put.wr_id = 5;
    CHECK(!ibv_post_send(one, &put, &bad));
    wc = next(cq);
    CHECK(wc.wr_id == 5 && wc.status == IBV_WC_REM_ACCESS_ERR);
    struct ibv_qp_attr now;
    struct ibv_qp_init_attr made;
    for (long turn = 0; turn < 100000000L; turn++)
        if (!ibv_query_qp(one, &now, IBV_QP_STATE, &made) && now.qp_state == IBV_QPS_ERR)
            break;
    CHECK(now.qp_state == IBV_QPS_ERR && made.cap.max_send_wr >= 16);
    put.wr_id = 6;
    CHECK(!ibv_post_send(one, &put, &bad));
    wc = next(cq);
    CHECK(wc.wr_id == 6 && wc.status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.element.qp == one || event.element.qp == two);
    CHECK(!event.element.qp->events_completed);
    ibv_ack_async_event(&event);
    CHECK(event.element.qp->events_completed == 1);

    ibv_ack_cq_events(cq, 1);
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
    CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
    CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dereg_mr(stack) && !ibv_dereg_mr(heap) && !ibv_dereg_mr(data));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    free(on_heap);
    puts("ok");
    return 0;
}
