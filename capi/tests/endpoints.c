/* Endpoints whose ids have shared receive queues of their own: both ends of a connection in one process, on one device.
 * UD and XRC endpoints are made or refused as by rdma-core on irdma. */
#include "check.h"
#include <infiniband/verbs.h>
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
static struct ibv_mr *share(struct rdma_cm_id *id, char *buffer)
{
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
    struct ibv_qp_init_attr wanted = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = { .max_send_wr = 2, .max_send_sge = 1, .max_inline_data = 0 } };
    CHECK(!rdma_create_srq(id, NULL, &receives) && id->srq);
    CHECK(rdma_create_srq(id, NULL, &receives) == -1 && errno == EINVAL);
    CHECK(!rdma_create_qp(id, NULL, &wanted) && id->qp && id->qp->srq == id->srq);
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
    struct ibv_mr *mr = share(id, buffer);
    CHECK(!rdma_accept(id, NULL));
    for (int i = 0; i < ROUNDS; i++)
        tell(id, mr, buffer, next(id, mr));
    rdma_disconnect(id);
    CHECK(!rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
    return NULL;
}

static void ask(void)
{
    struct rdma_addrinfo *list = found(0, IBV_QPT_RC, RDMA_PS_TCP);
    static char buffer[(RECEIVES + 1) * SIZE];
    struct rdma_cm_id *id;
    CHECK(!rdma_create_ep(&id, list, NULL, NULL) && id->verbs && !id->qp);
    struct ibv_mr *mr = share(id, buffer);
    CHECK(!rdma_connect(id, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        tell(id, mr, buffer, i);
        CHECK(next(id, mr) == i);
    }
    rdma_disconnect(id);
    CHECK(!rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
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

int main(void)
{
    struct rdma_addrinfo *list = found(RAI_PASSIVE, IBV_QPT_RC, RDMA_PS_TCP);
    struct rdma_cm_id *listener;
    pthread_t server;
    CHECK(!rdma_create_ep(&listener, list, NULL, NULL) && !rdma_listen(listener, 4));
    CHECK(!pthread_create(&server, NULL, serve, listener));
    ask();
    CHECK(!pthread_join(server, NULL));
    rdma_destroy_ep(listener);
    rdma_freeaddrinfo(list);
    others();
    serve_datagrams();
    puts("ok");
    return 0;
}
