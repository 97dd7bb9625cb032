/* Threads that are cancelled while a call of the library sleeps: each ends, and what they used works afterwards.
 * Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <time.h>
#include <unistd.h>

static struct ibv_context *context;
static struct ibv_comp_channel *completions;
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;
static int stream, datagram;

static struct sockaddr_in at(const char *address, int port)
{
    struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, address, &made.sin_addr) == 1);
    return made;
}

static void *get_completion(void *unused)
{
    struct ibv_cq *cq;
    void *program;
    ibv_get_cq_event(completions, &cq, &program);
    return unused;
}

static void *get_event(void *unused)
{
    struct rdma_cm_event *event;
    rdma_get_cm_event(events, &event);
    return unused;
}

static void *get_report(void *unused)
{
    struct ibv_async_event event;
    ibv_get_async_event(context, &event);
    return unused;
}

static void *get_request(void *unused)
{
    struct rdma_cm_id *id;
    rdma_get_request(listener, &id);
    return unused;
}

static void *accept_one(void *unused)
{
    raccept(stream, NULL, NULL);
    return unused;
}

static void *poll_both(void *unused)
{
    struct pollfd both[2] = { { stream, POLLIN, 0 }, { datagram, POLLIN, 0 } };
    rpoll(both, 2, -1);
    return unused;
}

static void *select_one(void *unused)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(datagram, &set);
    rselect(datagram + 1, &set, NULL, NULL, NULL);
    return unused;
}

static void *receive(void *unused)
{
    char byte;
    rrecv(datagram, &byte, 1, 0);
    return unused;
}

/* Nobody has that address. */
static void *connect_nowhere(void *unused)
{
    struct sockaddr_in nowhere = at("10.0.0.77", 7000);
    int one = rsocket(AF_INET, SOCK_STREAM, 0);
    rconnect(one, (struct sockaddr *)&nowhere, sizeof nowhere);
    return unused;
}

/* A program that cancels no thread in the library, by its own state. */
static void *disabled(void *unused)
{
    int before;
    struct pollfd one = { datagram, POLLIN, 0 };
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
    CHECK(rpoll(&one, 1, 500) == 0);
    CHECK(!pthread_setcancelstate(before, NULL) && before == PTHREAD_CANCEL_ENABLE);
    pthread_testcancel();
    return unused;
}

static void *serve(void *made)
{
    *(int *)made = raccept(stream, NULL, NULL);
    return made;
}

int main(void)
{
    void *(*calls[])(void *) = { get_completion, get_event, get_report, get_request, accept_one, poll_both, select_one,
        receive, connect_nowhere, disabled };
    union ibv_gid gid;
    struct sockaddr_in any = at("10.0.0.1", 0), service = at("10.0.0.1", 7471);
    context = open_first(&gid);
    CHECK(completions = ibv_create_comp_channel(context));
    CHECK(events = rdma_create_event_channel());
    CHECK(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&any) && !rdma_listen(listener, 1));
    stream = rsocket(AF_INET, SOCK_STREAM, 0);
    datagram = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(!rbind(stream, (struct sockaddr *)&service, sizeof service) && !rlisten(stream, 1));
    CHECK(!rbind(datagram, (struct sockaddr *)&any, sizeof any));
    for (size_t call = 0; call < sizeof calls / sizeof calls[0]; call++)
        for (int round = 0; round < 3; round++) {
            pthread_t thread;
            void *result;
            struct timespec limit;
            CHECK(!pthread_create(&thread, NULL, calls[call], &gid));
            usleep(round * 60000); /* before its first sleep, and in it */
            CHECK(!pthread_cancel(thread));
            CHECK(!clock_gettime(CLOCK_REALTIME, &limit));
            limit.tv_sec += 30;
            CHECK(!pthread_timedjoin_np(thread, &result, &limit) && result == PTHREAD_CANCELED);
        }
    /* Locks were given up, and the sockets serve. */
    struct pollfd one = { stream, POLLIN, 0 };
    CHECK(rpoll(&one, 1, 0) == 0);
    int client = rsocket(AF_INET, SOCK_STREAM, 0), server = -1;
    pthread_t accepting;
    CHECK(!pthread_create(&accepting, NULL, serve, &server));
    CHECK(!rconnect(client, (struct sockaddr *)&service, sizeof service) && !pthread_join(accepting, NULL));
    char byte = 7;
    CHECK(server >= 0 && rsend(client, &byte, 1, 0) == 1 && rrecv(server, &byte, 1, 0) == 1 && byte == 7);
    CHECK(!rclose(client) && !rclose(server) && !rclose(stream) && !rclose(datagram));
    rdma_destroy_event_channel(events);
    CHECK(!rdma_destroy_id(listener) && !ibv_destroy_comp_channel(completions) && !ibv_close_device(context));
    puts("ok");
}
