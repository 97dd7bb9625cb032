/* What programs do with ids and rdma-core allows: a channel that goes before its ids, queues that the program puts
 * into an id, a queue pair that it destroys by itself, a group that is joined before there is a queue pair, no limit
 * of time, and a clean-up after main. Argument: an address of the network that no host has. Says "ok" and ends with 0. */
#include "ids.h"
#include <string.h>
#include <time.h>

enum { PORT = 7455, BYTES = 64, ROUTE = 40, ROUNDS = 300 };

static struct sockaddr_in own;
static struct rdma_event_channel *server, *client;
static struct rdma_cm_id *last;

/* Connects two ids, each with a queue pair; returns the asking one. */
static struct rdma_cm_id *connected(struct rdma_event_channel *asks, struct rdma_cm_id **request)
{
    struct rdma_cm_id *caller = routed_to(asks, RDMA_PS_TCP, &own);
    make_pair(caller);
    CHECK(!rdma_connect(caller, NULL));
    *request = request_of(server);
    make_pair(*request);
    CHECK(!rdma_accept(*request, NULL));
    pass(asks, RDMA_CM_EVENT_ESTABLISHED);
    pass(server, RDMA_CM_EVENT_ESTABLISHED);
    return caller;
}

/* The peers of a channel's connections hear of their end; what is left of its ids can be destroyed, and nothing else. */
static void channel_goes_before_its_ids(void)
{
    struct rdma_event_channel *early = rdma_create_event_channel();
    CHECK(early);
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 4), *request, *unread, *caller = connected(early, &request), *other;
    struct sockaddr_in next = own;
    next.sin_port = htons(PORT + 1);
    CHECK(!rdma_create_id(early, &other, NULL, RDMA_PS_TCP) && !rdma_bind_addr(other, (struct sockaddr *)&next));
    CHECK(!rdma_listen(other, 4));
    /* A request that nobody reads. */
    CHECK(!rdma_create_id(client, &unread, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(unread, NULL, (struct sockaddr *)&next, EVENT_MS));
    pass(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(unread, EVENT_MS));
    pass(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct rdma_conn_param wanted = { .qp_num = 0xF00077, .retry_count = 7 };
    CHECK(!rdma_connect(unread, &wanted) && is_readable(early->fd, EVENT_MS));

    rdma_destroy_event_channel(early);
    pass(server, RDMA_CM_EVENT_DISCONNECTED);
    pass(client, RDMA_CM_EVENT_REJECTED);
    CHECK(rdma_disconnect(caller) == -1 && rdma_listen(caller, 1) == -1);
    rdma_destroy_qp(caller);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(other) && !rdma_destroy_id(unread));
    rdma_destroy_qp(request);
    CHECK(!rdma_disconnect(request) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
    /* Its port is free. */
    CHECK(!rdma_create_id(client, &other, NULL, RDMA_PS_TCP) && !rdma_bind_addr(other, (struct sockaddr *)&next));
    CHECK(!rdma_destroy_id(other));
    while (is_readable(server->fd, 0))
        pass(server, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

/* More often than there is room for them: the queues of an id go with its queue pair, whoever made them. */
static void queues_of_the_program(void)
{
    struct rdma_cm_id *id = routed_to(client, RDMA_PS_TCP, &own);
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_qp_init_attr wanted = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
        id->recv_cq_channel = ibv_create_comp_channel(id->verbs);
        id->recv_cq = ibv_create_cq(id->verbs, 8, id, id->recv_cq_channel, 0);
        id->send_cq_channel = round % 2 ? id->recv_cq_channel : ibv_create_comp_channel(id->verbs);
        id->send_cq = round % 2 ? id->recv_cq : ibv_create_cq(id->verbs, 8, id, id->send_cq_channel, 0);
        CHECK(id->recv_cq_channel && id->recv_cq && id->send_cq_channel && id->send_cq);
        struct ibv_cq *mine = id->recv_cq;
        if (round < 2) {
            struct ibv_cq *foreign = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
            wanted.recv_cq = foreign;
            CHECK(foreign && rdma_create_qp(id, NULL, &wanted) == -1 && errno == EINVAL && !ibv_destroy_cq(foreign));
            wanted.recv_cq = NULL;
        } else if (round % 3) {
            wanted.recv_cq = mine;
        }
        CHECK(!rdma_create_qp(id, NULL, &wanted));
        CHECK(id->recv_cq == mine && id->qp->recv_cq == mine && id->qp->send_cq == id->send_cq);
        rdma_destroy_qp(id);
        CHECK(!id->qp && !id->recv_cq && !id->send_cq && !id->recv_cq_channel && !id->send_cq_channel);
    }
    CHECK(!rdma_destroy_id(id));
}

/* The id still names the queue pair that the program has destroyed. */
static void queue_pair_goes_first(void)
{
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 4), *request, *caller = connected(client, &request);
    CHECK(!ibv_destroy_qp(caller->qp));
    CHECK(!rdma_disconnect(caller));
    pass(server, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(!rdma_disconnect(request));
    pass(client, RDMA_CM_EVENT_DISCONNECTED);
    caller->qp = NULL;
    rdma_destroy_qp(caller);
    rdma_destroy_qp(request);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
}

/* The queue pair that there is when the event is read receives from the group. */
static void joins_before_there_is_a_queue_pair(void)
{
    static char memory[2][ROUTE + BYTES];
    struct sockaddr_in group = at("239.7.7.7", 0);
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_UDP) && !rdma_bind_addr(id, (struct sockaddr *)&own));
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
    make_pair(id);
    struct rdma_cm_event *joined = expect_of(client, RDMA_CM_EVENT_MULTICAST_JOIN);
    struct ibv_ah *handle = ibv_create_ah(id->pd, &joined->param.ud.ah_attr);
    struct ibv_mr *region = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(handle && region);
    struct ibv_sge from = { (uintptr_t)memory[0], BYTES, region->lkey },
        into = { (uintptr_t)memory[1], ROUTE + BYTES, region->lkey };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = { handle, joined->param.ud.qp_num, joined->param.ud.qkey } }, *bad;
    strcpy(memory[0], "to all of the group");
    CHECK(!ibv_post_recv(id->qp, &receive, &bad_receive) && !ibv_post_send(id->qp, &send, &bad));
    struct ibv_wc wc;
    time_t end = time(NULL) + EVENT_MS / 1000;
    while (!ibv_poll_cq(id->recv_cq, 1, &wc))
        CHECK(time(NULL) < end);
    CHECK(wc.status == IBV_WC_SUCCESS && !strcmp(memory[1] + ROUTE, memory[0]));
    CHECK(!rdma_ack_cm_event(joined) && !ibv_destroy_ah(handle) && !ibv_dereg_mr(region));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
}

/* -1 is no limit; the peer is named from the beginning. */
static void resolves_without_a_limit(struct sockaddr_in *silent)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)silent, -1));
    struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(id);
    CHECK(peer->sin_addr.s_addr == silent->sin_addr.s_addr && rdma_get_dst_port(id) == silent->sin_port);
    /* A limit that has passed would be told at once. */
    CHECK(!is_readable(client->fd, 50));
    CHECK(!rdma_destroy_id(id));
}

static void after_main(void)
{
    CHECK(!rdma_disconnect(last));
    pass(client, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(last) == -1);
    puts("ok");
    fflush(stdout);
}

int main(int count, char **words)
{
    CHECK(count == 2 && !atexit(after_main));
    own = at("10.0.0.1", PORT);
    struct sockaddr_in silent = at(words[1], PORT);
    CHECK((server = rdma_create_event_channel()) && (client = rdma_create_event_channel()));
    channel_goes_before_its_ids();
    queues_of_the_program();
    queue_pair_goes_first();
    joins_before_there_is_a_queue_pair();
    resolves_without_a_limit(&silent);
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 4), *request;
    last = connected(client, &request);
    (void)listener;
    return 0;
}
