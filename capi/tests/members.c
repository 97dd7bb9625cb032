/* Members of a group: who leaves it waits for the acknowledgement of the event of joining, which names a value of the
 * program. Says "ok" and ends with 0. */
#include "ids.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { QUIET_MS = 200 };

static struct sockaddr_in own, peer, group;
static atomic_int has_left;

static void *leave(void *id)
{
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    has_left = 1;
    return NULL;
}

/* The event was read: its value may be freed once the call returns. */
static void read_events(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    pthread_t thread;
    int value;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, EVENT_MS));
    struct rdma_cm_event *resolved = expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, &value));
    struct rdma_cm_event *event = expect_of(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(event->param.ud.private_data == &value && event->param.ud.qp_num == 0xFFFFFF);
    CHECK(!pthread_create(&thread, NULL, leave, id));
    CHECK(!is_readable(channel->fd, QUIET_MS) && !has_left);
    CHECK(!rdma_ack_cm_event(event) && !pthread_join(thread, NULL) && has_left);
    /* An event of the id, not of the group, is not waited for; an unread one is discarded. */
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, &value));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    CHECK(!is_readable(channel->fd, 0));
    CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group) == -1 && errno == EADDRNOTAVAIL);
    CHECK(!rdma_ack_cm_event(resolved) && !rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

/* An id without a channel keeps the event itself. */
static void kept_events(void)
{
    struct rdma_cm_id *id;
    int value;
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, EVENT_MS));
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, &value));
    CHECK(id->event->event == RDMA_CM_EVENT_MULTICAST_JOIN && id->event->param.ud.private_data == &value);
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group) && !id->event);
    CHECK(!rdma_destroy_id(id));
}

/* A queue pair that was made after the event was read, and that the program attached, leaves the group, too. */
static void attached_members(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own));
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
    struct rdma_cm_event *event = expect_of(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    struct ibv_ah_attr way = event->param.ud.ah_attr;
    CHECK(!rdma_ack_cm_event(event));
    make_pair(id);
    CHECK(!ibv_attach_mcast(id->qp, &way.grh.dgid, way.dlid));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    CHECK(ibv_detach_mcast(id->qp, &way.grh.dgid, way.dlid) == EINVAL);
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

/* The port of an id is that of its address once it has one: another address has it, too. */
static void ports_of_addresses(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id, *other;
    union ibv_gid gid;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, EVENT_MS));
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!ibv_query_gid(id->verbs, 1, 0, &gid));
    struct sockaddr_in same = own;
    struct sockaddr_in6 link_local = { .sin6_family = AF_INET6, .sin6_scope_id = 1 };
    memcpy(&link_local.sin6_addr, &gid, sizeof gid);
    same.sin_port = link_local.sin6_port = rdma_get_src_port(id);
    CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
    CHECK(rdma_bind_addr(other, (struct sockaddr *)&same) == -1 && errno == EADDRINUSE);
    CHECK(!rdma_bind_addr(other, (struct sockaddr *)&link_local));
    CHECK(!rdma_destroy_id(other) && !rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    own = at("10.0.0.1", 0);
    peer = at("10.0.0.1", 7107);
    group = at("239.1.2.3", 0);
    read_events();
    kept_events();
    attached_members();
    ports_of_addresses();
    puts("ok");
    return 0;
}
