/* What the programs of this folder share: a check that ends them, and two queue pairs of one device that
 * are connected to each other. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { GID_INDEX = 1, SECONDS = 40 };

static inline void to_init(struct ibv_qp *qp, int access)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static inline void to_rtr(struct ibv_qp *qp, uint32_t peer, union ibv_gid *gid, uint32_t psn)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
        .rq_psn = psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1,
            .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64, .traffic_class = 8 } } };
    errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    CHECK(!errno);
}

static inline void to_rts(struct ibv_qp *qp, uint32_t psn)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 7,
        .sq_psn = psn, .max_rd_atomic = 3 };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void join(struct ibv_qp *one, struct ibv_qp *two, union ibv_gid *gid)
{
    int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    to_init(one, access);
    to_init(two, access);
    to_rtr(one, two->qp_num, gid, 0x111);
    to_rtr(two, one->qp_num, gid, 0xFFFFF0); /* sequence numbers wrap soon */
    to_rts(one, 0xFFFFF0);
    to_rts(two, 0x111);
}

static inline struct ibv_context *open_first(union ibv_gid *gid)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(context && !ibv_query_gid(context, 1, GID_INDEX, gid));
    return context;
}

/* Two connected queue pairs of one completion queue, with room for 4 requests each. */
struct joined {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *one, *two;
};

static inline struct joined open_joined(void)
{
    union ibv_gid gid;
    struct joined made = { .context = open_first(&gid) };
    CHECK((made.pd = ibv_alloc_pd(made.context)) && (made.cq = ibv_create_cq(made.context, 8, NULL, NULL, 0)));
    struct ibv_qp_init_attr init = { .send_cq = made.cq, .recv_cq = made.cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK((made.one = ibv_create_qp(made.pd, &init)) && (made.two = ibv_create_qp(made.pd, &init)));
    join(made.one, made.two, &gid);
    return made;
}

static inline void close_joined(struct joined *made)
{
    CHECK(!ibv_destroy_qp(made->one) && !ibv_destroy_qp(made->two));
    CHECK(!ibv_destroy_cq(made->cq) && !ibv_dealloc_pd(made->pd) && !ibv_close_device(made->context));
}

/* The next completion; ends the program after 40 seconds without one. */
static inline struct ibv_wc next(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    time_t end = time(NULL) + SECONDS;
    int count;
    while (!(count = ibv_poll_cq(cq, 1, &wc)))
        CHECK(time(NULL) < end);
    CHECK(count == 1);
    return wc;
}

/* Takes and acknowledges an event of a channel. False if there was none in time. */
static inline int takes_event(struct ibv_comp_channel *channel, int milliseconds)
{
    struct pollfd one = { .fd = channel->fd, .events = POLLIN };
    struct ibv_cq *cq;
    void *context;
    if (poll(&one, 1, milliseconds) != 1)
        return 0;
    CHECK(!ibv_get_cq_event(channel, &cq, &context));
    ibv_ack_cq_events(cq, 1);
    return 1;
}

/* Writes from one queue pair of a context to another, and leaves nothing behind. */
static inline void write_to_itself(struct ibv_context *context, union ibv_gid *gid)
{
    enum { BYTES = 64 };
    char *memory = calloc(1, BYTES);
    CHECK(memory);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(one && two && mr);
    join(one, two, gid);
    struct ibv_sge data = { (uintptr_t)"ringside", 8, 0 };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.rdma = { (uintptr_t)memory, mr->rkey } }, *bad;
    CHECK(!ibv_post_send(one, &write, &bad));
    CHECK(next(cq).status == IBV_WC_SUCCESS && !memcmp(memory, "ringside", 8));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    free(memory);
}
