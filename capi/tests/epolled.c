/* One epoll descriptor that waits for completions, asynchronous events and events of connections, by level and by
 * edge, with channels that do not block. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <unistd.h>

enum source { COMPLETION, ASYNCHRONOUS, CONNECTION, SOURCES };

static int descriptors[SOURCES];

/* Waits until exactly this source is ready. */
static void expect(int epoll, enum source wanted)
{
    struct epoll_event ready[SOURCES];
    CHECK(epoll_wait(epoll, ready, SOURCES, SECONDS * 1000) == 1);
    CHECK(ready[0].data.u32 == wanted && ready[0].events == EPOLLIN);
}

static void expect_nothing(int epoll)
{
    struct epoll_event ready[SOURCES];
    CHECK(epoll_wait(epoll, ready, SOURCES, 20) == 0);
}

static int watching(int flags)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    for (int i = 0; i < SOURCES; i++) {
        struct epoll_event wanted = { .events = EPOLLIN | flags, .data.u32 = i };
        CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, descriptors[i], &wanted));
    }
    return epoll;
}

struct queues {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *one, *two;
};

static void completions(int epoll, int is_edge, struct queues *all)
{
    struct ibv_cq *from;
    void *tag;
    for (int turn = 0; turn < 3; turn++) {
        CHECK(!ibv_req_notify_cq(all->cq, 0));
        CHECK(ibv_get_cq_event(all->channel, &from, &tag) == -1 && errno == EAGAIN);
        expect_nothing(epoll);
        struct ibv_sge data = { (uintptr_t)"x", 1, 0 };
        struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
        struct ibv_send_wr send = { .sg_list = &data, .num_sge = 0, .opcode = IBV_WR_SEND }, *bad;
        CHECK(!ibv_post_recv(all->two, &receive, &bad_receive) && !ibv_post_send(all->one, &send, &bad));
        expect(epoll, COMPLETION);
        if (is_edge) /* told once */
            expect_nothing(epoll);
        else /* told as long as it is not taken */
            expect(epoll, COMPLETION);
        CHECK(!ibv_get_cq_event(all->channel, &from, &tag) && from == all->cq && tag == all);
        ibv_ack_cq_events(from, 1);
        CHECK(next(all->cq).status == IBV_WC_SUCCESS);
    }
}

static void failures(int epoll, struct queues *all)
{
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(all->context, &event) == -1 && errno == EAGAIN);
    /* A write with a key of no region: the responder fails, then the requester. */
    struct ibv_send_wr write = { .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED |
        IBV_SEND_INLINE, .wr.rdma = { 4096, 0x1234500 } }, *bad;
    struct ibv_sge data = { (uintptr_t)"x", 1, 0 };
    write.sg_list = &data;
    CHECK(!ibv_post_send(all->one, &write, &bad));
    CHECK(next(all->cq).status == IBV_WC_REM_ACCESS_ERR);
    expect(epoll, ASYNCHRONOUS);
    time_t end = time(NULL) + SECONDS;
    int seen = 0;
    while (!seen || !ibv_get_async_event(all->context, &event)) {
        if (!seen)
            CHECK(!ibv_get_async_event(all->context, &event));
        CHECK(event.element.qp == all->one || event.element.qp == all->two);
        ibv_ack_async_event(&event);
        seen++;
        CHECK(time(NULL) < end);
    }
    CHECK(errno == EAGAIN);
}

static void connections(int epoll, struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    struct sockaddr_in own = { .sin_family = AF_INET };
    CHECK(inet_pton(AF_INET, "10.0.0.1", &own.sin_addr) == 1);
    CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EAGAIN);
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, 1000));
    expect(epoll, CONNECTION);
    CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_ack_cm_event(event));
    CHECK(!rdma_resolve_route(id, 1000));
    expect(epoll, CONNECTION);
    CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
    CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EAGAIN);
}

static void round_of(int flags, struct ibv_context *context, union ibv_gid *gid, struct rdma_event_channel *channel)
{
    struct queues all = { .context = context };
    CHECK((all.channel = ibv_create_comp_channel(context)) && (all.pd = ibv_alloc_pd(context)));
    CHECK(all.cq = ibv_create_cq(context, 16, &all, all.channel, 0));
    struct ibv_qp_init_attr init = { .send_cq = all.cq, .recv_cq = all.cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    CHECK((all.one = ibv_create_qp(all.pd, &init)) && (all.two = ibv_create_qp(all.pd, &init)));
    join(all.one, all.two, gid);
    descriptors[COMPLETION] = all.channel->fd;
    descriptors[ASYNCHRONOUS] = context->async_fd;
    descriptors[CONNECTION] = channel->fd;
    for (int i = 0; i < SOURCES; i++)
        CHECK(!fcntl(descriptors[i], F_SETFL, fcntl(descriptors[i], F_GETFL) | O_NONBLOCK));
    int epoll = watching(flags);
    expect_nothing(epoll);
    completions(epoll, !!flags, &all);
    connections(epoll, channel);
    failures(epoll, &all);
    CHECK(!close(epoll));
    CHECK(!ibv_destroy_qp(all.one) && !ibv_destroy_qp(all.two) && !ibv_destroy_cq(all.cq));
    CHECK(!ibv_destroy_comp_channel(all.channel) && !ibv_dealloc_pd(all.pd));
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    round_of(0, context, &gid, channel);
    round_of(EPOLLET, context, &gid, channel);
    rdma_destroy_event_channel(channel);
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
