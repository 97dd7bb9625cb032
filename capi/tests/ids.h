/* What programs with ids of librdmacm share: addresses, and events that are expected. */
#ifndef IDS_H
#define IDS_H
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

enum { EVENT_MS = 40000 };

static inline struct sockaddr_in at(const char *address, int port)
{
    struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, address, &made.sin_addr) == 1);
    return made;
}

static inline int is_readable(int fd, int milliseconds)
{
    struct pollfd one = { .fd = fd, .events = POLLIN };
    return poll(&one, 1, milliseconds) == 1;
}

/* The next event of a channel, which is of that kind. */
static inline struct rdma_cm_event *expect_of(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    if (!is_readable(channel->fd, EVENT_MS)) {
        fprintf(stderr, "no %s\n", rdma_event_str(kind));
        exit(1);
    }
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != kind)
        fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(kind));
    CHECK(event->event == kind);
    return event;
}

/* The same, acknowledged. */
static inline void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
    CHECK(!rdma_ack_cm_event(expect_of(channel, kind)));
}

/* An id that listens at an address. */
static inline struct rdma_cm_id *listening_at(struct rdma_event_channel *channel, enum rdma_port_space space,
    struct sockaddr_in *own, int backlog)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, space) && !rdma_bind_addr(id, (struct sockaddr *)own));
    CHECK(!rdma_listen(id, backlog));
    return id;
}

/* An id with a route to an address. */
static inline struct rdma_cm_id *routed_to(struct rdma_event_channel *channel, enum rdma_port_space space,
    struct sockaddr_in *to)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, space));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)to, EVENT_MS));
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(id, EVENT_MS));
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

/* The id of the next request of a channel. */
static inline struct rdma_cm_id *request_of(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event = expect_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    CHECK(!rdma_ack_cm_event(event));
    return id;
}

/* Gives an id a queue pair with queues of the library's own. */
static inline void make_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr wanted = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = id->qp_type };
    CHECK(!rdma_create_qp(id, NULL, &wanted));
}

#endif
