/* Endpoints whose ids have shared receive queues of their own: both ends of a connection in one process, on one device.
 * UD and XRC endpoints are made or refused as by rdma-core on irdma. */
#include "check.h"
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#define ADDRESS "10.0.0.1"
#define SERVICE "7491"
enum { RECEIVES = 4, SIZE = 64, ROUNDS = 20 };

static struct rdma_addrinfo *found(int flags, enum ibv_qp_type kind, enum rdma_port_space space)
{
    struct rdma_addrinfo hints = { .ai_flags = flags, .ai_qp_type = kind, .ai_port_space = space }, *list = NULL;
    int error = rdma_getaddrinfo(flags & RAI_PASSIVE ? NULL : ADDRESS, SERVICE, &hints, &list);
    if (error)
        fprintf(stderr, "rdma_getaddrinfo: %d\n", error);
    CHECK(!error && list);
    return list;
}

/* Gives an id a shared receive queue, and a queue pair that uses it, without naming it. */
static void give_queues(struct rdma_cm_id *id, struct ibv_pd *pd)
{
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
    struct ibv_qp_init_attr wanted = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = { .max_send_wr = 2, .max_send_sge = 1, .max_inline_data = 0 } };
    CHECK(!rdma_create_srq(id, pd, &receives) && id->srq);
    CHECK(rdma_create_srq(id, pd, &receives) == -1 && errno == EINVAL);
    CHECK(!rdma_create_qp(id, pd, &wanted) && id->qp && id->qp->srq == id->srq);
}

static struct ibv_mr *post_receives(struct rdma_cm_id *id, char *buffer)
{
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer, (RECEIVES + 1) * SIZE);
    CHECK(mr);
    for (int i = 0; i < RECEIVES; i++)
        CHECK(!rdma_post_recv(id, buffer + i * SIZE, buffer + i * SIZE, SIZE, mr));
    return mr;
}

/* Takes the next message, and posts its receive again. */
static int next(struct rdma_cm_id *id, struct ibv_mr *mr)
{
    struct ibv_wc done;
    CHECK(rdma_get_recv_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS && done.byte_len == SIZE);
    char *place = (char *)(uintptr_t)done.wr_id;
    int number = place[0];
    CHECK(place[SIZE - 1] == number);
    CHECK(!rdma_post_recv(id, place, place, SIZE, mr));
    return number;
}

static void tell(struct rdma_cm_id *id, struct ibv_mr *mr, char *buffer, int number)
{
    struct ibv_wc done;
    memset(buffer + RECEIVES * SIZE, number, SIZE);
    CHECK(!rdma_post_send(id, NULL, buffer + RECEIVES * SIZE, SIZE, mr, 0));
    CHECK(rdma_get_send_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS);
}

static void *serve(void *argument)
{
    struct rdma_cm_id *listener = argument, *id;
    static char buffer[(RECEIVES + 1) * SIZE];
    CHECK(!rdma_get_request(listener, &id));
    give_queues(id, NULL);
    struct ibv_mr *mr = post_receives(id, buffer);
    CHECK(!rdma_accept(id, NULL));
    for (int i = 0; i < ROUNDS; i++)
        tell(id, mr, buffer, next(id, mr));
    rdma_disconnect(id);
    CHECK(!rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
    return NULL;
}

/* Connects an id that has a route and queues, and ends it. */
static void ask(struct rdma_cm_id *id)
{
    static char buffer[(RECEIVES + 1) * SIZE];
    struct ibv_mr *mr = post_receives(id, buffer);
    CHECK(!rdma_connect(id, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        tell(id, mr, buffer, i);
        CHECK(next(id, mr) == i);
    }
    rdma_disconnect(id);
    CHECK(!rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
}

static void ask_from_an_endpoint(void)
{
    struct rdma_addrinfo *list = found(0, IBV_QPT_RC, RDMA_PS_TCP);
    struct rdma_cm_id *id;
    CHECK(!rdma_create_ep(&id, list, NULL, NULL) && id->verbs && !id->qp);
    give_queues(id, NULL);
    ask(id);
    rdma_freeaddrinfo(list);
}

/* An id that is bound, and has queues of a protection domain of the program, keeps the domain when it looks for its peer. */
static void ask_from_a_bound_id(void)
{
    struct rdma_addrinfo *list = found(0, IBV_QPT_RC, RDMA_PS_TCP);
    struct sockaddr_in own = { .sin_family = AF_INET };
    struct rdma_cm_id *id;
    CHECK(inet_pton(AF_INET, ADDRESS, &own.sin_addr) == 1);
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, (struct sockaddr *)&own));
    struct ibv_context *context = id->verbs;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd && pd != id->pd);
    give_queues(id, pd);
    CHECK(id->pd == pd);
    CHECK(!rdma_resolve_addr(id, NULL, list->ai_dst_addr, 2000));
    CHECK(id->verbs == context && id->pd == pd && id->qp->pd == pd);
    CHECK(!rdma_resolve_route(id, 2000) && id->pd == pd);
    ask(id);
    CHECK(!ibv_dealloc_pd(pd));
    rdma_freeaddrinfo(list);
}

/* Kinds of endpoints that the card does not have are refused when their queue pair is made. */
static void others(void)
{
    static const struct ibv_qp_cap one = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 };
    struct ibv_qp_init_attr wanted = { .cap = one, .qp_type = IBV_QPT_XRC_SEND };
    struct rdma_addrinfo *list = found(0, IBV_QPT_XRC_SEND, RDMA_PS_IB);
    struct rdma_cm_id *id = NULL;
    CHECK(rdma_create_ep(&id, list, NULL, &wanted) == -1 && errno == EOPNOTSUPP);
    rdma_freeaddrinfo(list);
    list = found(0, IBV_QPT_UD, RDMA_PS_UDP);
    wanted = (struct ibv_qp_init_attr) { .cap = one, .qp_type = IBV_QPT_UD };
    CHECK(!rdma_create_ep(&id, list, NULL, &wanted) && id->qp && id->qp->qp_type == IBV_QPT_UD);
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(list);
}

static const struct ibv_qp_init_attr datagrams = { .qp_type = IBV_QPT_UD,
    .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };

static void *look_up(void *unused)
{
    struct rdma_addrinfo *list = found(0, IBV_QPT_UD, RDMA_PS_UDP);
    struct ibv_qp_init_attr wanted = datagrams;
    struct rdma_cm_id *id;
    CHECK(!rdma_create_ep(&id, list, NULL, &wanted) && !rdma_connect(id, NULL));
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(list);
    return unused;
}

/* A datagram service whose listener ends before the id that was accepted. */
static void serve_datagrams(void)
{
    struct rdma_addrinfo *list = found(RAI_PASSIVE, IBV_QPT_UD, RDMA_PS_UDP);
    struct ibv_qp_init_attr wanted = datagrams;
    struct rdma_cm_id *listener, *id;
    pthread_t client;
    CHECK(!rdma_create_ep(&listener, list, NULL, &wanted) && !rdma_listen(listener, 4));
    CHECK(!pthread_create(&client, NULL, look_up, NULL) && !rdma_get_request(listener, &id));
    struct rdma_conn_param accepted = { .qp_num = id->qp->qp_num };
    CHECK(!rdma_accept(id, &accepted) && !id->event);
    CHECK(!pthread_join(client, NULL));
    rdma_destroy_ep(listener);
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(list);
}

/* Data for a connection goes before the private data, in the first request. */
static void connection_data(void)
{
    static const char expected[] = "of the list, of the call";
    struct rdma_addrinfo *list = found(RAI_PASSIVE, IBV_QPT_RC, RDMA_PS_TCP), *called = found(0, IBV_QPT_RC, RDMA_PS_TCP);
    struct ibv_qp_init_attr wanted = { .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct rdma_conn_param data = { .private_data = "of the call", .private_data_len = 11 };
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_event *event;
    struct rdma_cm_id *listener, *id;
    called->ai_connect = strdup("of the list, ");
    called->ai_connect_len = 13;
    CHECK(channel && called->ai_connect && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, list->ai_src_addr) && !rdma_listen(listener, 4));
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        CHECK(!rdma_create_ep(&id, called, NULL, &wanted));
        wanted.send_cq = wanted.recv_cq = NULL;
        CHECK(!rdma_migrate_id(id, channel) && !rdma_connect(id, is_alone ? NULL : &data));
        CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
        const char *got = event->param.conn.private_data;
        size_t length = is_alone ? called->ai_connect_len : sizeof expected - 1;
        CHECK(!memcmp(got, expected, length) && !got[length]);
        CHECK(!rdma_reject(event->id, NULL, 0) && !rdma_destroy_id(event->id) && !rdma_ack_cm_event(event));
        CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_REJECTED);
        CHECK(!rdma_ack_cm_event(event));
        rdma_destroy_ep(id);
    }
    CHECK(!rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
    rdma_freeaddrinfo(list);
    rdma_freeaddrinfo(called);
}

/* A list is freed with all that the program has put into it. */
static void lists(void)
{
    enum { LISTS = 1000, BYTES = 1000, MOST = 100000 };
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < LISTS; i++) {
        struct rdma_addrinfo *list = found(0, IBV_QPT_RC, RDMA_PS_TCP);
        CHECK((list->ai_connect = malloc(BYTES)) && (list->ai_route = malloc(BYTES)));
        CHECK((list->ai_src_canonname = malloc(BYTES)) && (list->ai_dst_canonname = malloc(BYTES)));
        CHECK((list->ai_next = calloc(1, sizeof *list)));
        rdma_freeaddrinfo(list);
    }
    rdma_freeaddrinfo(NULL);
    CHECK(mallinfo2().uordblks < before + MOST);
}

/* Asks a service of RDMA_PS_IB whose listener has queue pairs of the other kind. */
static void other_kinds(void)
{
    static const enum ibv_qp_type kinds[] = { IBV_QPT_RC, IBV_QPT_UD };
    enum { CONSUMER = 28, REJECTED = 2 };
    for (int i = 0; i < 2; i++) {
        struct rdma_addrinfo *list = found(RAI_PASSIVE, kinds[i], RDMA_PS_IB), *called = found(0, kinds[!i], RDMA_PS_IB);
        struct ibv_qp_init_attr wanted = { .cap = datagrams.cap };
        struct rdma_cm_id *listener, *id;
        CHECK(!rdma_create_ep(&listener, list, NULL, NULL) && !rdma_listen(listener, 4));
        CHECK(!rdma_create_ep(&id, called, NULL, &wanted) && rdma_connect(id, NULL) == -1);
        CHECK(id->event->event == (i ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE));
        CHECK(id->event->status == (i ? CONSUMER : REJECTED));
        rdma_destroy_ep(id);
        rdma_destroy_ep(listener);
        rdma_freeaddrinfo(list);
        rdma_freeaddrinfo(called);
    }
}

int main(void)
{
    struct rdma_addrinfo *list = found(RAI_PASSIVE, IBV_QPT_RC, RDMA_PS_TCP);
    void (*const clients[])(void) = { ask_from_an_endpoint, ask_from_a_bound_id };
    struct rdma_cm_id *listener;
    CHECK(!rdma_create_ep(&listener, list, NULL, NULL) && !rdma_listen(listener, 4));
    for (int i = 0; i < 2; i++) {
        pthread_t server;
        CHECK(!pthread_create(&server, NULL, serve, listener));
        clients[i]();
        CHECK(!pthread_join(server, NULL));
    }
    rdma_destroy_ep(listener);
    rdma_freeaddrinfo(list);
    others();
    serve_datagrams();
    connection_data();
    other_kinds();
    lists();
    puts("ok");
    return 0;
}
