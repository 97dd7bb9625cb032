/* Unread events: requests whose peers gave up, requests of a listener that moves to another
 * channel, a group that is left; receives for a queue pair that failed. Says "ok" and ends with 0. */
#include "connect.h"
#include "ids.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rdma_cm_id *listening(struct rdma_event_channel *channel, int port, int backlog)
{
    struct rdma_cm_id *id;
    struct sockaddr_in own = at("10.0.0.1", port);
    CHECK(!rdma_create_id(channel, &id, (void *)1, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own) && !rdma_listen(id, backlog));
    return id;
}

/* An id whose request is on its way. */
static struct rdma_cm_id *asking(struct rdma_event_channel *channel, int port)
{
    struct rdma_cm_id *id;
    struct sockaddr_in to = at("10.0.0.1", port);
    struct rdma_conn_param parameters = { .qp_num = 0xF00077, .retry_count = 7 };
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    rdma_ack_cm_event(expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(!rdma_resolve_route(id, 2000));
    rdma_ack_cm_event(expect_of(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    CHECK(!rdma_connect(id, &parameters));
    return id;
}

/* Callers that give up make room for others; their requests are read, as from Linux: a program that poll has told of one
 * must not sleep when it reads it. Messages arrive in order: once the next request is there, so is the end of this one. */
static void requests_that_ended(struct rdma_event_channel *server, struct rdma_event_channel *client)
{
    enum { TURNS = 20 };
    struct rdma_cm_id *listener = listening(server, 7001, 1), *asked[TURNS + 1];
    struct rdma_conn_param parameters = { .retry_count = 7 };
    for (int turn = 0; turn < TURNS; turn++) {
        struct rdma_cm_id *caller = asking(client, 7001);
        CHECK(is_readable(server->fd, SECONDS * 1000));
        CHECK(!rdma_destroy_id(caller));
    }
    struct rdma_cm_id *last = asking(client, 7001);
    for (int turn = 0; turn <= TURNS; turn++)
        CHECK(is_readable(server->fd, SECONDS * 1000) && (asked[turn] = request_of(server)));
    for (int turn = 0; turn < TURNS; turn++) {
        make_pair(asked[turn]);
        CHECK(rdma_accept(asked[turn], &parameters) == -1 && errno == EINVAL);
        rdma_destroy_qp(asked[turn]);
        CHECK(!rdma_destroy_id(asked[turn]));
    }
    CHECK(!rdma_reject(asked[TURNS], NULL, 0) && !rdma_destroy_id(asked[TURNS]));
    rdma_ack_cm_event(expect_of(client, RDMA_CM_EVENT_REJECTED));
    CHECK(!rdma_destroy_id(last));

    /* Those that are not read go with their listener. */
    struct rdma_cm_id *caller = asking(client, 7001);
    CHECK(is_readable(server->fd, SECONDS * 1000) && !rdma_destroy_id(caller));
    CHECK(!rdma_destroy_id(listener));
    CHECK(!is_readable(server->fd, 100));
}

/* A peer that leaves before its reply is read: the program is told of the failure alone, not of the end as well. */
static void reply_of_a_peer_that_left(struct rdma_event_channel *server, struct rdma_event_channel *client)
{
    struct rdma_event_channel *third = rdma_create_event_channel();
    struct rdma_cm_id *listener = listening(server, 7003, 4), *asked, *later;
    struct sockaddr_in to = at("10.0.0.1", 7003);
    struct rdma_conn_param parameters = { .retry_count = 7 };
    struct rdma_cm_event *event;
    struct rdma_cm_id *caller = routed_to(client, RDMA_PS_TCP, &to);
    make_pair(caller);
    CHECK(!rdma_connect(caller, &parameters) && (asked = request_of(server)));
    make_pair(asked);
    CHECK(!rdma_accept(asked, &parameters) && is_readable(client->fd, SECONDS * 1000));
    rdma_destroy_qp(asked);
    CHECK(!rdma_destroy_id(asked));
    /* Messages arrive in order: once this request is there, so is the end of the connection. */
    later = asking(third, 7003);
    CHECK(is_readable(server->fd, SECONDS * 1000));

    CHECK(!fcntl(client->fd, F_SETFL, O_NONBLOCK));
    pass(client, RDMA_CM_EVENT_CONNECT_ERROR);
    CHECK(rdma_get_cm_event(client, &event) == -1 && errno == EAGAIN);
    CHECK(!is_readable(client->fd, 0) && !fcntl(client->fd, F_SETFL, 0));
    rdma_destroy_qp(caller);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(later) && !rdma_destroy_id(listener));
    rdma_destroy_event_channel(third);
}

static void listener_that_moves(struct rdma_event_channel *client)
{
    struct rdma_event_channel *old = rdma_create_event_channel(), *new = rdma_create_event_channel();
    struct rdma_cm_id *listener = listening(old, 7002, 4), *caller = asking(client, 7002);
    CHECK(is_readable(old->fd, SECONDS * 1000));
    listener->context = (void *)2;
    CHECK(!rdma_migrate_id(listener, new));
    struct rdma_cm_event *event = expect_of(new, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *asked = event->id;
    CHECK(asked->channel == new && asked->context == (void *)2);
    rdma_ack_cm_event(event);
    CHECK(!rdma_reject(asked, NULL, 0));
    rdma_ack_cm_event(expect_of(client, RDMA_CM_EVENT_REJECTED));
    CHECK(!rdma_destroy_id(asked) && !rdma_destroy_id(caller) && !rdma_destroy_id(listener));
    rdma_destroy_event_channel(old);
    rdma_destroy_event_channel(new);
}

static void group_that_is_left(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id;
    struct sockaddr_in own = at("10.0.0.1", 0), group = at("239.1.2.3", 0), other = at("239.1.2.4", 0);
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own));
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, (void *)0x1234));
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&other, (void *)0x5678));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    struct rdma_cm_event *event = expect_of(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(event->param.ud.private_data == (void *)0x5678);
    rdma_ack_cm_event(event);
    CHECK(!is_readable(channel->fd, 0));
    CHECK(!rdma_destroy_id(id));
}

static void names(void)
{
    struct rdma_addrinfo hints = { .ai_family = AF_INET6, .ai_port_space = RDMA_PS_TCP }, *found;
    CHECK(rdma_getaddrinfo("127.0.0.1", "7", &hints, &found) != 0);
    hints.ai_family = AF_INET;
    CHECK(!rdma_getaddrinfo("127.0.0.1", "7", &hints, &found) && found->ai_family == AF_INET);
    rdma_freeaddrinfo(found);
    hints.ai_family = AF_IB;
    CHECK(!rdma_getaddrinfo("127.0.0.1", "7", &hints, &found) && found->ai_family == AF_INET);
    rdma_freeaddrinfo(found);
    /* Not for the address of a port, which is a GID. */
    hints.ai_flags = RAI_FAMILY | RAI_NUMERICHOST;
    CHECK(rdma_getaddrinfo("127.0.0.1", "7", &hints, &found) != 0);
    CHECK(rdma_getaddrinfo(NULL, NULL, NULL, &found) == -1 && errno == EINVAL);
}

/* Receives of a failed queue pair: as many as it holds, and an event only for who asked. */
static void receives_after_a_failure(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, channel, 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    to_init(qp, 0);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    struct ibv_recv_wr wanted = { .wr_id = 5 }, *refused = NULL;
    unsigned taken = 0;
    int error;
    while (!(error = ibv_post_recv(qp, &wanted, &refused)))
        CHECK(++taken <= init.cap.max_recv_wr);
    CHECK(error == ENOMEM && refused == &wanted && taken == init.cap.max_recv_wr);
    CHECK(!is_readable(channel->fd, 0));
    CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(next(cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_post_recv(qp, &wanted, &refused) && is_readable(channel->fd, SECONDS * 1000));
    struct ibv_cq *reported;
    void *given;
    CHECK(!ibv_get_cq_event(channel, &reported, &given) && reported == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* A child of a fork has none of the library's threads: calls for its parent's objects fail, and do not wait for
 * them. */
static void child_of_a_fork(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = GID_INDEX, .dgid = gid } };
    way.grh.dgid.raw[15] = 77;
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        alarm(20); /* ends it if it waits */
        int failed = !ibv_create_ah(pd, &way) && errno && !rdma_create_event_channel();
        _exit(failed && errno == ENODEV ? 7 : 8);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(!rdma_destroy_id(id));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

int main(void)
{
    struct rdma_event_channel *server = rdma_create_event_channel(), *client = rdma_create_event_channel();
    CHECK(server && client);
    requests_that_ended(server, client);
    reply_of_a_peer_that_left(server, client);
    listener_that_moves(client);
    group_that_is_left(client);
    names();
    receives_after_a_failure();
    child_of_a_fork();
    rdma_destroy_event_channel(server);
    rdma_destroy_event_channel(client);
    puts("ok");
    return 0;
}
