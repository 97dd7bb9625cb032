/* A child of a fork that uses its parent's objects, as the destructors of a program or a collector of garbage do: each
 * call is refused, also where other threads of the parent made and destroyed objects at that moment, and the parent
 * has its events afterwards. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 200 };

static struct joined made;
static struct ibv_comp_channel *channel;
static struct ibv_cq *told;
static struct rdma_event_channel *events;
static struct ibv_pd *kept;
static atomic_bool is_over;

static int is_readable(int descriptor, int milliseconds)
{
    struct pollfd one = { descriptor, POLLIN, 0 };
    return poll(&one, 1, milliseconds) == 1;
}

/* Runs `body` in a child, which ends with 0 in time. */
static void in_child(void (*body)(void))
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        alarm(SECONDS);
        body();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status)
        fprintf(stderr, "the child ended with %#x\n", status);
    CHECK(!status);
}

/* The parent has no ids, so that the child may have some: their events go to a channel of its own. */
static void make_id(void)
{
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == -1 && errno == EIO);
    struct rdma_event_channel *own = rdma_create_event_channel();
    CHECK(own && !rdma_create_id(own, &id, NULL, RDMA_PS_TCP));
    CHECK(rdma_migrate_id(id, events) == -1 && errno == EIO);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(own);
}

static void take_events(void)
{
    struct ibv_cq *cq;
    void *program;
    struct rdma_cm_event *event;
    struct ibv_async_event reported;
    CHECK(ibv_get_cq_event(channel, &cq, &program) == -1 && errno == EIO);
    CHECK(rdma_get_cm_event(events, &event) == -1 && errno == EIO);
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == -1 && errno == ENODEV); /* the parent has ids */
    CHECK(ibv_get_async_event(made.context, &reported) == -1 && errno == EIO);
}

static void destroy_all(void)
{
    CHECK(ibv_destroy_qp(made.one) == EINVAL && ibv_destroy_qp(made.two) == EINVAL);
    CHECK(ibv_destroy_cq(told) == EINVAL && ibv_destroy_cq(made.cq) == EINVAL);
    CHECK(ibv_dealloc_pd(made.pd) == EINVAL);
}

static void close_all(void)
{
    CHECK(ibv_close_device(made.context) == -1 && errno == EINVAL);
}

static void free_one(void)
{
    CHECK(ibv_dealloc_pd(kept) == EINVAL);
}

static void open_own(void)
{
    union ibv_gid gid;
    struct ibv_context *own = open_first(&gid);
    write_to_itself(own, &gid);
    CHECK(!ibv_close_device(own));
}

static void *make_and_destroy(void *unused)
{
    while (!is_over) {
        struct ibv_pd *pd = ibv_alloc_pd(made.context);
        CHECK(pd && !ibv_dealloc_pd(pd));
    }
    return unused;
}

/* A completion of `two`, and an address of this device that was found, each with an event that is not read. */
static void leave_events(void)
{
    static char byte;
    struct ibv_mr *mr = ibv_reg_mr(made.pd, &byte, 1, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_sge data = { (uintptr_t)&byte, 1, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &data, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
    CHECK(!ibv_req_notify_cq(told, 0));
    CHECK(!ibv_post_recv(made.two, &receive, &bad_receive) && !ibv_post_send(made.one, &send, &bad));
    struct rdma_cm_id *id;
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7777) };
    CHECK(inet_pton(AF_INET, "10.0.0.1", &own.sin_addr) == 1);
    CHECK(!rdma_create_id(events, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, 1000));
    CHECK(is_readable(channel->fd, SECONDS * 1000) && is_readable(events->fd, SECONDS * 1000));
}

static void set_up(void)
{
    union ibv_gid gid;
    made.context = open_first(&gid);
    CHECK((made.pd = ibv_alloc_pd(made.context)) && (kept = ibv_alloc_pd(made.context)));
    CHECK((channel = ibv_create_comp_channel(made.context)) && (events = rdma_create_event_channel()));
    CHECK(made.cq = ibv_create_cq(made.context, 8, NULL, NULL, 0));
    CHECK(told = ibv_create_cq(made.context, 8, NULL, channel, 0));
    struct ibv_qp_init_attr init = { .send_cq = made.cq, .recv_cq = told, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK((made.one = ibv_create_qp(made.pd, &init)) && (made.two = ibv_create_qp(made.pd, &init)));
    join(made.one, made.two, &gid);
    /* A channel is of the process that made its first id. */
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(events, &id, NULL, RDMA_PS_TCP) && !rdma_destroy_id(id));
}

int main(void)
{
    static void (*const bodies[])(void) = { take_events, destroy_all, close_all, open_own };
    set_up();
    in_child(make_id);
    leave_events();
    for (size_t body = 0; body < sizeof bodies / sizeof *bodies; body++) {
        in_child(bodies[body]);
        CHECK(is_readable(channel->fd, 0) && is_readable(events->fd, 0));
    }
    CHECK(takes_event(channel, 0) && next(told).wr_id == 1);
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(events, &event) && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_ack_cm_event(event));
    pthread_t threads[2];
    for (int thread = 0; thread < 2; thread++)
        CHECK(!pthread_create(&threads[thread], NULL, make_and_destroy, NULL));
    for (int turn = 0; turn < FORKS; turn++)
        in_child(turn % 40 == 39 ? open_own : free_one);
    is_over = 1;
    for (int thread = 0; thread < 2; thread++)
        CHECK(!pthread_join(threads[thread], NULL));
    CHECK(!ibv_destroy_qp(made.one) && !ibv_destroy_qp(made.two) && !ibv_dealloc_pd(kept));
    puts("ok");
    return 0;
}
