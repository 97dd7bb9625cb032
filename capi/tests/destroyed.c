/* A handler still works on an id that another thread destroys: it has read an event and not acknowledged it, so the id is
 * there, and its calls fail with ENOENT. Nothing of the id is left afterwards. Says "ok" and ends with 0. */
#include "ids.h"
#include <pthread.h>
#include <stdatomic.h>

enum { PORT = 7105, OTHER_PORT, QUIET_MS = 200, ROUNDS = 100 };

static struct sockaddr_in peer, own, nothing, group;
static struct rdma_event_channel *channel, *other;

static atomic_int has_begun, spins;

static void *destroy(void *id)
{
    has_begun = 1;
    for (int left = spins; left; left--)
        __asm__ volatile("");
    CHECK(!rdma_destroy_id(id));
    return NULL;
}

/* Begins to destroy an id whose event is not acknowledged; returns once its calls fail. */
static pthread_t destroying(struct rdma_cm_id *id)
{
    pthread_t thread;
    uint8_t tos = 0;
    struct timespec pause = { .tv_nsec = 1000000 };
    int left = EVENT_MS;
    CHECK(!pthread_create(&thread, NULL, destroy, id));
    while (!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1)) {
        CHECK(left--);
        nanosleep(&pause, NULL);
    }
    CHECK(errno == ENOENT);
    return thread;
}

#define IS_GONE(call) CHECK((errno = 0, (call) == -1) && errno == ENOENT)

static void calls_fail(struct rdma_cm_id *id)
{
    struct rdma_conn_param wanted = { .qp_num = 7, .retry_count = 7 };
    struct ibv_qp_init_attr pair = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = id->qp_type };
    struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT };
    int mask;
    IS_GONE(rdma_bind_addr(id, (struct sockaddr *)&own));
    IS_GONE(rdma_listen(id, 4));
    IS_GONE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, EVENT_MS));
    IS_GONE(rdma_resolve_route(id, EVENT_MS));
    IS_GONE(rdma_connect(id, &wanted));
    IS_GONE(rdma_accept(id, &wanted));
    IS_GONE(rdma_reject(id, NULL, 0));
    IS_GONE(rdma_establish(id));
    IS_GONE(rdma_notify(id, IBV_EVENT_COMM_EST));
    IS_GONE(rdma_disconnect(id));
    IS_GONE(rdma_migrate_id(id, other));
    IS_GONE(rdma_migrate_id(id, NULL));
    IS_GONE(rdma_init_qp_attr(id, &state, &mask));
    if (id->verbs)
        IS_GONE(rdma_create_qp(id, NULL, &pair));
    if (id->qp_type == IBV_QPT_UD)
        IS_GONE(rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
    IS_GONE(rdma_leave_multicast(id, (struct sockaddr *)&group));
}

/* The id of an event is destroyed, and its calls fail until that is acknowledged. */
static void ends(struct rdma_cm_event *event)
{
    struct rdma_cm_id *id = event->id;
    pthread_t thread = destroying(id);
    calls_fail(id);
    CHECK(!rdma_ack_cm_event(event) && !pthread_join(thread, NULL));
    CHECK(!is_readable(channel->fd, QUIET_MS) && !is_readable(other->fd, 0));
}

/* An id that resolves an address. */
static struct rdma_cm_id *resolving(enum rdma_port_space space, struct sockaddr_in *to, int milliseconds)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, space));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)to, milliseconds));
    return id;
}

static void handlers(void)
{
    resolving(RDMA_PS_TCP, &peer, EVENT_MS);
    ends(expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    resolving(RDMA_PS_UDP, &peer, EVENT_MS);
    ends(expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    /* It would look for its peer again. */
    resolving(RDMA_PS_TCP, &nothing, 50);
    ends(expect_of(channel, RDMA_CM_EVENT_ADDR_ERROR));
    struct rdma_cm_id *id = resolving(RDMA_PS_TCP, &peer, EVENT_MS);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(id, EVENT_MS));
    ends(expect_of(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
}

/* A group that was joined, and an event that names the program's value, end with the id. */
static void joined(void)
{
    struct rdma_cm_id *id = resolving(RDMA_PS_UDP, &peer, EVENT_MS);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
    ends(expect_of(channel, RDMA_CM_EVENT_MULTICAST_JOIN));
}

/* Requests to a port that no id has any more are refused, and the port is free. */
static void ports(void)
{
    struct rdma_cm_id *id = listening_at(channel, RDMA_PS_TCP, &own, 4);
    struct rdma_conn_param wanted = { .qp_num = 7, .retry_count = 7 };
    struct rdma_cm_id *caller = routed_to(other, RDMA_PS_TCP, &own);
    CHECK(!rdma_connect(caller, &wanted));
    struct rdma_cm_event *event = expect_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(!rdma_destroy_id(event->id));
    pass(other, RDMA_CM_EVENT_REJECTED);
    CHECK(!rdma_destroy_id(caller));
    CHECK(event->listen_id == id);
    event->id = id;
    ends(event);
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, (struct sockaddr *)&own));
    CHECK(!rdma_destroy_id(id));
}

/* The call and the destruction at one time: the call is first, or fails; no event comes afterwards. */
static void races(void)
{
    int first = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        struct rdma_cm_id *id = resolving(RDMA_PS_TCP, &peer, EVENT_MS);
        struct rdma_cm_event *event = expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        has_begun = 0;
        spins = i % 10 * 10000;
        CHECK(!pthread_create(&thread, NULL, destroy, id));
        while (!has_begun)
            sched_yield();
        if (!rdma_resolve_route(id, EVENT_MS))
            first++;
        else
            CHECK(errno == ENOENT);
        CHECK(!rdma_ack_cm_event(event) && !pthread_join(thread, NULL));
    }
    CHECK(!is_readable(channel->fd, QUIET_MS));
    fprintf(stderr, "%d of %d calls were first\n", first, ROUNDS);
}

int main(void)
{
    peer = at("10.0.0.1", PORT);
    own = at("10.0.0.1", OTHER_PORT);
    nothing = at("10.0.0.99", PORT);
    group = at("239.1.2.3", 0);
    channel = rdma_create_event_channel();
    other = rdma_create_event_channel();
    CHECK(channel && other);
    handlers();
    joined();
    ports();
    races();
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(other);
    puts("ok");
    return 0;
}
