/* Completion queues on several vectors: each takes its own, threads sleep on the channels of two at the same time, and
 * one channel serves queues of both. A vector that the device does not have is refused. Says "ok" and ends with 0. */
#include "connect.h"
#include <poll.h>
#include <pthread.h>

enum { LANES = 2, ROUNDS = 300 };

struct lane {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *pair;
    int woken;
};

static struct ibv_mr *mr;
static char text[8], memory[8];

/* Sleeps until the channel has the queue's event. */
static void sleep_on(struct ibv_comp_channel *channel, struct ibv_cq *expected)
{
    struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
    struct ibv_cq *cq;
    void *context;
    CHECK(poll(&ready, 1, SECONDS * 1000) == 1);
    CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == expected && context == &text[0]);
    ibv_ack_cq_events(cq, 1);
}

static void write_one(struct ibv_qp *pair)
{
    struct ibv_sge data = { (uintptr_t)text, sizeof text, 0 };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = (uintptr_t)memory, .rkey = mr->rkey } }, *bad;
    CHECK(!ibv_post_send(pair, &write, &bad));
}

/* Each round sleeps once: the queue is armed before its request is posted. */
static void *run(void *argument)
{
    struct lane *lane = argument;
    struct ibv_wc wc;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(!ibv_req_notify_cq(lane->cq, 0));
        write_one(lane->pair);
        sleep_on(lane->channel, lane->cq);
        lane->woken++;
        CHECK(ibv_poll_cq(lane->cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
        CHECK(ibv_poll_cq(lane->cq, 1, &wc) == 0);
    }
    return NULL;
}

static void refused(struct ibv_context *context)
{
    int wrong[] = { context->num_comp_vectors, context->num_comp_vectors + 1, 65536, -1 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        CHECK(!ibv_create_cq(context, 4, NULL, NULL, wrong[i]) && errno == EINVAL);
        struct ibv_cq_init_attr_ex init = { .cqe = 4, .comp_vector = (uint32_t)wrong[i] };
        errno = 0;
        CHECK(!ibv_create_cq_ex(context, &init) && errno == EINVAL);
    }
}

static struct ibv_cq *queue_on(struct ibv_context *context, int vector, struct ibv_comp_channel *channel)
{
    if (vector == 0)
        return ibv_create_cq(context, 64, text, channel, vector);
    struct ibv_cq_init_attr_ex init = { .cqe = 64, .cq_context = text, .channel = channel, .comp_vector = vector };
    struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &init);
    CHECK(extended);
    return ibv_cq_ex_to_cq(extended);
}

int main(int count, char **arguments)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct lane lanes[LANES] = { 0 };
    pthread_t threads[LANES];
    CHECK(count == 2 && context->num_comp_vectors == atoi(arguments[1]));
    refused(context);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(pd && mr);
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &lanes[i];
        CHECK((lane->channel = ibv_create_comp_channel(context)));
        CHECK((lane->cq = queue_on(context, i * (context->num_comp_vectors - 1), lane->channel)));
        struct ibv_qp_init_attr init = { .send_cq = lane->cq, .recv_cq = lane->cq, .qp_type = IBV_QPT_RC,
            .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
        CHECK((lane->pair = ibv_create_qp(pd, &init)));
    }
    join(lanes[0].pair, lanes[1].pair, &gid);
    for (int i = 0; i < LANES; i++)
        CHECK(!pthread_create(&threads[i], NULL, run, &lanes[i]));
    for (int i = 0; i < LANES; i++)
        CHECK(!pthread_join(threads[i], NULL) && lanes[i].woken == ROUNDS);
    for (int i = 0; i < LANES; i++)
        CHECK(!ibv_destroy_qp(lanes[i].pair) && !ibv_destroy_cq(lanes[i].cq));
    /* One channel for queues on both vectors. */
    struct ibv_comp_channel *both = lanes[0].channel;
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &lanes[i];
        CHECK((lane->cq = queue_on(context, i * (context->num_comp_vectors - 1), both)));
        struct ibv_qp_init_attr init = { .send_cq = lane->cq, .recv_cq = lane->cq, .qp_type = IBV_QPT_RC,
            .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
        CHECK((lane->pair = ibv_create_qp(pd, &init)));
    }
    join(lanes[0].pair, lanes[1].pair, &gid);
    for (int i = 0; i < LANES; i++) {
        CHECK(!ibv_req_notify_cq(lanes[i].cq, 0));
        write_one(lanes[i].pair);
        sleep_on(both, lanes[i].cq);
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(lanes[i].cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    }
    for (int i = 0; i < LANES; i++)
        CHECK(!ibv_destroy_qp(lanes[i].pair) && !ibv_destroy_cq(lanes[i].cq));
    for (int i = 0; i < LANES; i++)
        CHECK(!ibv_destroy_comp_channel(lanes[i].channel));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
