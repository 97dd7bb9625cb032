/* Requests and their ids, as rdma-core and Linux have them: a request that ends before it is accepted, listeners
 * without a channel, port spaces, families, the program's own events, addresses that are looked up, and rights.
 * Argument: an address without a route. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "ids.h"
#include <dlfcn.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

enum { PORT = 7441, ADDRINFO_RESOLVED = 16, USER = 18, QUIET_MS = 400, BEYOND = 200 };

static struct sockaddr_in own;
static struct rdma_event_channel *server, *client;

static struct rdma_cm_id *asking(enum rdma_port_space space)
{
    struct rdma_conn_param wanted = { .qp_num = 0xF00077, .retry_count = 7, .initiator_depth = 2 };
    struct rdma_cm_id *id = routed_to(client, space, &own);
    CHECK(!rdma_connect(id, &wanted));
    return id;
}

/* The peer gives up before the program accepts: no event, and the accept fails. */
static void ends_before_it_is_accepted(void)
{
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 0), *caller = asking(RDMA_PS_TCP);
    struct rdma_cm_id *request = request_of(server);
    struct rdma_conn_param wanted = { .qp_num = 0xF00078 };
    CHECK(!rdma_destroy_id(caller));
    CHECK(!is_readable(server->fd, QUIET_MS));
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    CHECK(!is_readable(server->fd, QUIET_MS));
    CHECK(!rdma_destroy_id(request) && !rdma_destroy_id(listener));
}

/* An id that was accepted has its events; what the device cannot do is refused before that, and can be asked again. */
static void accepted(enum rdma_port_space space)
{
    struct rdma_cm_id *listener = listening_at(server, space, &own, 0), *caller = asking(space), *request = request_of(server);
    struct rdma_conn_param wanted = { .responder_resources = BEYOND };
    struct ibv_ece ece;
    CHECK(!rdma_get_remote_ece(request, &ece) && !ece.vendor_id);
    CHECK(rdma_get_remote_ece(NULL, &ece) == -1 && errno == EINVAL);
    make_pair(request);
    CHECK(rdma_get_remote_ece(request, &ece) == -1 && errno == EINVAL);
    CHECK(request->qp_type == IBV_QPT_RC && caller->qp_type == IBV_QPT_RC);
    CHECK(rdma_notify(request, IBV_EVENT_COMM_EST) == -1 && errno == EINVAL);
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    wanted = (struct rdma_conn_param) { .initiator_depth = BEYOND };
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    CHECK(!rdma_accept(request, NULL));
    pass(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(!rdma_notify(request, IBV_EVENT_COMM_EST));
    pass(server, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_notify(request, IBV_EVENT_COMM_EST) == -1 && errno == EISCONN);
    CHECK(rdma_notify(request, IBV_EVENT_PATH_MIG) == -1 && errno == EINVAL);
    CHECK(!rdma_establish(caller) && !rdma_disconnect(caller));
    pass(server, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(!rdma_disconnect(request));
    pass(client, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(request);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
    /* The ends of their timewaits may have been told. */
    for (int i = 0; i < 2; i++) {
        struct rdma_event_channel *channel = i ? server : client;
        CHECK(!is_readable(channel->fd, 0));
    }
}

/* The rights of a new queue pair: none before there is a peer, and reads only if some are answered. */
static void rights(void)
{
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 0), *caller = routed_to(client, RDMA_PS_TCP, &own), *request;
    struct rdma_conn_param wanted = { .retry_count = 7 };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    struct ibv_qp_init_attr init;
    int mask = 0;
    struct rdma_cm_id *bare;
    CHECK(!rdma_create_id(client, &bare, NULL, RDMA_PS_TCP));
    CHECK(rdma_init_qp_attr(bare, &attr, &mask) == -1 && errno == EINVAL && !rdma_destroy_id(bare));
    make_pair(caller);
    CHECK(!ibv_query_qp(caller->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &init));
    CHECK(attr.qp_state == IBV_QPS_INIT && !attr.qp_access_flags);
    attr.qp_access_flags = 0xFF;
    CHECK(!rdma_init_qp_attr(caller, &attr, &mask) && mask & IBV_QP_ACCESS_FLAGS && !attr.qp_access_flags);
    /* Steps that need a peer have the attributes of the first one, until there is a connection without one. */
    enum { FIRST = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS };
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!rdma_init_qp_attr(caller, &attr, &mask) && mask == FIRST && attr.qp_state == IBV_QPS_RTR && attr.port_num == 1);
    attr.qp_state = IBV_QPS_ERR + 1;
    CHECK(rdma_init_qp_attr(caller, &attr, &mask) == -1 && errno == EINVAL);
    CHECK(!rdma_connect(caller, &wanted));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(rdma_init_qp_attr(caller, &attr, &mask) == -1 && errno == EINVAL);
    request = request_of(server);
    attr.qp_state = IBV_QPS_INIT;
    CHECK(!rdma_init_qp_attr(request, &attr, &mask) && attr.qp_access_flags == IBV_ACCESS_REMOTE_WRITE);
    make_pair(request);
    wanted.responder_resources = 1;
    CHECK(!rdma_accept(request, &wanted));
    pass(client, RDMA_CM_EVENT_ESTABLISHED);
    pass(server, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(!ibv_query_qp(request->qp, &attr, IBV_QP_ACCESS_FLAGS, &init));
    CHECK(attr.qp_access_flags == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
    CHECK(!ibv_query_qp(caller->qp, &attr, IBV_QP_ACCESS_FLAGS, &init));
    CHECK(attr.qp_access_flags == IBV_ACCESS_REMOTE_WRITE);
    rdma_destroy_qp(caller);
    rdma_destroy_qp(request);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
}

/* The side that accepts reads, although the other one has offered no reads: its answer says that it will. */
static void more_reads_than_offered(void)
{
    enum { READS = 2, BYTES = 65536 };
    static char from[READS * BYTES], to[READS * BYTES];
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 0), *caller = routed_to(client, RDMA_PS_TCP, &own), *request;
    struct rdma_conn_param wanted = { .retry_count = 7, .rnr_retry_count = 7 };
    make_pair(caller);
    CHECK(!rdma_connect(caller, &wanted));
    request = request_of(server);
    make_pair(request);
    wanted.initiator_depth = READS;
    CHECK(!rdma_accept(request, &wanted));
    struct rdma_cm_event *established = expect_of(client, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(established->param.conn.responder_resources == READS && !rdma_ack_cm_event(established));
    pass(server, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_mr *source = rdma_reg_read(caller, from, sizeof from), *target = rdma_reg_msgs(request, to, sizeof to);
    CHECK(source && target);
    memset(from, 7, sizeof from);
    for (int i = 0; i < READS; i++) {
        char *place = to + i * BYTES;
        CHECK(!rdma_post_read(request, NULL, place, BYTES, target, IBV_SEND_SIGNALED, (uintptr_t)(from + i * BYTES), source->rkey));
    }
    struct ibv_wc done;
    for (int i = 0; i < READS; i++)
        CHECK(rdma_get_send_comp(request, &done) == 1 && done.status == IBV_WC_SUCCESS);
    CHECK(!memcmp(from, to, sizeof from));
    CHECK(!rdma_dereg_mr(source) && !rdma_dereg_mr(target));
    rdma_destroy_qp(caller);
    rdma_destroy_qp(request);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
}

/* A listener without a channel gives its requests one each, also if the program reads its events itself. */
static void without_a_channel(void)
{
    struct rdma_cm_id *listener = listening_at(NULL, RDMA_PS_TCP, &own, 0), *caller = asking(RDMA_PS_TCP), *request;
    CHECK(rdma_migrate_id(listener, NULL) == -1 && errno == EINVAL);
    request = request_of(listener->channel);
    CHECK(request->channel && request->channel != listener->channel);
    CHECK(rdma_migrate_id(request, NULL) == -1 && errno == EINVAL);
    CHECK(!rdma_reject(request, NULL, 0));
    pass(client, RDMA_CM_EVENT_REJECTED);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(request));
    caller = asking(RDMA_PS_TCP);
    CHECK(!rdma_get_request(listener, &request) && request->channel != listener->channel);
    CHECK(request->event && request->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(!rdma_destroy_id(caller) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
}

/* The kind of queue pairs of RDMA_PS_IB is the program's. */
static void endpoints(void)
{
    struct rdma_addrinfo wanted = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_UD,
        .ai_src_addr = (struct sockaddr *)&own, .ai_src_len = sizeof own };
    struct rdma_cm_id *id;
    CHECK(!rdma_create_ep(&id, &wanted, NULL, NULL) && id->qp_type == IBV_QPT_UD && id->ps == RDMA_PS_IB);
    rdma_destroy_ep(id);
    wanted.ai_qp_type = IBV_QPT_RC;
    CHECK(!rdma_create_ep(&id, &wanted, NULL, NULL) && id->qp_type == IBV_QPT_RC);
    rdma_destroy_ep(id);
}

/* Source and destination are of one family. A failure leaves the address open: the next peer may be elsewhere. */
static void families(struct sockaddr_in *nowhere)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) }, local = six;
    struct sockaddr_in any = { .sin_family = AF_INET }, *shown;
    struct rdma_cm_id *id;
    CHECK(inet_pton(AF_INET6, "fe80::1", &six.sin6_addr) == 1);
    for (int bound = 0; bound < 2; bound++) {
        CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_TCP));
        CHECK(!bound || !rdma_bind_addr(id, (struct sockaddr *)&any));
        CHECK(rdma_resolve_addr(id, bound ? NULL : (struct sockaddr *)&any, (struct sockaddr *)&six, 100) == -1);
        CHECK(errno == EINVAL && !is_readable(client->fd, 0) && !rdma_destroy_id(id));
    }
    CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_TCP));
    local.sin6_port = 0;
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&local));
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, 100) == -1 && errno == EINVAL && !rdma_destroy_id(id));

    CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)nowhere, EVENT_MS));
    struct rdma_cm_event *event = expect_of(client, RDMA_CM_EVENT_ADDR_ERROR);
    CHECK(event->status == -EHOSTUNREACH && !rdma_ack_cm_event(event));
    shown = (struct sockaddr_in *)rdma_get_local_addr(id);
    CHECK(shown->sin_family == AF_INET && !shown->sin_addr.s_addr && !id->verbs);
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, EVENT_MS));
    pass(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(shown->sin_addr.s_addr == own.sin_addr.s_addr && !rdma_destroy_id(id));
}

static void *newest(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    CHECK(found);
    return found;
}

/* Calls of release 65, which older headers do not declare. */
static void asynchronous(void)
{
    int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) = newest("rdma_write_cm_event");
    int (*look_up)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *) =
        newest("rdma_resolve_addrinfo");
    int (*fetch)(struct rdma_cm_id *, struct rdma_addrinfo **) = newest("rdma_query_addrinfo");
    struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP }, *found = NULL;
    struct rdma_cm_id *id;
    uint64_t argument;
    CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_TCP));
    CHECK(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 1) == -1 && errno == EINVAL);
    CHECK(!write_event(id, USER, -7, 0x123456789ABCDEF0));
    struct rdma_cm_event *event = expect_of(client, (enum rdma_cm_event_type)USER);
    memcpy(&argument, &event->param, sizeof argument);
    CHECK(event->id == id && event->status == -7 && argument == 0x123456789ABCDEF0 && !rdma_ack_cm_event(event));

    CHECK(fetch(id, &found) == -1 && errno == ENOENT);
    CHECK(look_up(id, "not an address", "7471", &hints) == -1);
    CHECK(!look_up(id, "10.0.0.1", "7471", &hints));
    CHECK(look_up(id, "10.0.0.1", "7471", &hints) == -1 && errno == EBUSY);
    pass(client, (enum rdma_cm_event_type)ADDRINFO_RESOLVED);
    CHECK(!fetch(id, &found) && found->ai_dst_len == sizeof own && found->ai_qp_type == IBV_QPT_RC);
    rdma_freeaddrinfo(found);
    CHECK(fetch(id, &found) == -1 && errno == ENOENT);
    hints.ai_flags = 0x30;
    CHECK(look_up(id, NULL, "7471", &hints) == -1 && errno == ENOTSUP);
    hints.ai_flags = RAI_NUMERICHOST;
    CHECK(!look_up(id, "10.0.0.1", "7471", &hints) && !rdma_destroy_id(id)); /* what was not fetched goes with it */
    CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)ADDRINFO_RESOLVED), "RDMA_CM_EVENT_ADDRINFO_RESOLVED"));
}

/* The device's speed, and the way to a peer. */
static void port(void)
{
    int (*query_speed)(struct ibv_context *, uint32_t, uint64_t *) = newest("ibv_query_port_speed");
    int count;
    struct ibv_context **contexts = rdma_get_devices(&count);
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } };
    uint64_t speed = 0;
    uint8_t mac[6] = { 0 };
    uint16_t vlan = 0;
    CHECK(contexts && count == 1 && !query_speed(contexts[0], 1, &speed) && speed == 1000);
    CHECK(query_speed(contexts[0], 2, &speed) == EINVAL);
    CHECK(!ibv_query_gid(contexts[0], 1, 1, &to.grh.dgid));
    CHECK(!ibv_resolve_eth_l2_from_gid(contexts[0], &to, mac, &vlan) && vlan == 0xFFFF);
    CHECK(mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5]);
    to.grh.sgid_index = 99;
    CHECK(ibv_resolve_eth_l2_from_gid(contexts[0], &to, mac, NULL) < 0);
    rdma_free_devices(contexts);
}

static void groups(void)
{
    struct rdma_cm_join_mc_attr_ex wanted = { .comp_mask = 7, .addr = (struct sockaddr *)&own };
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_UDP));
    CHECK(rdma_join_multicast_ex(id, &wanted, NULL) == -1 && errno == ENOTSUP);
    wanted.comp_mask = 1;
    CHECK(rdma_join_multicast_ex(id, &wanted, NULL) == -1 && errno == EINVAL);
    CHECK(!rdma_destroy_id(id));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    own = at("10.0.0.1", PORT);
    struct sockaddr_in nowhere = at(words[1], PORT);
    server = rdma_create_event_channel();
    client = rdma_create_event_channel();
    CHECK(server && client);
    ends_before_it_is_accepted();
    accepted(RDMA_PS_TCP);
    accepted(RDMA_PS_IB);
    rights();
    more_reads_than_offered();
    without_a_channel();
    endpoints();
    families(&nowhere);
    asynchronous();
    port();
    groups();
    puts("ok");
    return 0;
}
