/* Peers that do not answer: calls return at once, and events or socket errors come in time. Arguments: an
 * address of the device, one of its network that no station has, and one to which there is no route.
 * Says "ok" and ends with 0. */
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <time.h>

/* The stack asks for a neighbour for three seconds. */
enum { PORT = 7440, SHORT_MS = 300, MIDDLE_MS = 1500, LONG_MS = 20000, LIMIT_MS = 20000, IDS = 8 };

static struct sockaddr_in own, silent, nowhere;

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static struct sockaddr_in address(const char *text)
{
    struct sockaddr_in all = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    CHECK(inet_pton(AF_INET, text, &all.sin_addr) == 1);
    return all;
}

static int resolve(struct rdma_cm_id *id, struct sockaddr_in *to, int milliseconds)
{
    return rdma_resolve_addr(id, NULL, (struct sockaddr *)to, milliseconds);
}

static int has_event(struct rdma_event_channel *channel, int milliseconds)
{
    struct pollfd one = { .fd = channel->fd, .events = POLLIN };
    return poll(&one, 1, milliseconds);
}

static void expect(struct rdma_event_channel *channel, struct rdma_cm_id *id, int kind, int status)
{
    struct rdma_cm_event *event;
    CHECK(has_event(channel, LIMIT_MS) == 1 && !rdma_get_cm_event(channel, &event));
    if (event->event != (enum rdma_cm_event_type)kind || event->status != status) {
        fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
        exit(1);
    }
    CHECK(event->id == id && !rdma_ack_cm_event(event));
}

static void of_one_id(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));

    double began = now_ms();
    CHECK(!resolve(id, &silent, MIDDLE_MS));
    CHECK(!has_event(channel, 0));
    CHECK(resolve(id, &silent, SHORT_MS) == -1 && errno == EINVAL);
    CHECK(rdma_resolve_route(id, SHORT_MS) == -1 && errno == EINVAL);
    CHECK(rdma_listen(id, 1) == -1 && errno == EINVAL);
    expect(channel, id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    CHECK(now_ms() - began >= MIDDLE_MS);

    CHECK(!resolve(id, &nowhere, SHORT_MS));
    expect(channel, id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
    /* The stack stops asking before this time is over. */
    CHECK(!resolve(id, &silent, LONG_MS));
    expect(channel, id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    /* Another address may be tried. */
    CHECK(!resolve(id, &own, LONG_MS));
    expect(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK(!has_event(channel, 2 * SHORT_MS));
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

/* Localhost is any address, for peers as for bindings. An id that is bound to it has no device yet, but may listen. */
static void of_localhost(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in here = address("127.0.0.1");
    struct rdma_cm_id *id, *listener;
    CHECK(channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&here) && !listener->verbs);
    CHECK(((struct sockaddr_in *)rdma_get_local_addr(listener))->sin_addr.s_addr == here.sin_addr.s_addr);
    CHECK(rdma_get_src_port(listener) == here.sin_port && !rdma_listen(listener, 1));
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&own) == -1 && errno == EADDRNOTAVAIL);
    CHECK(!resolve(id, &here, LONG_MS));
    expect(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(id);
    CHECK(id->verbs && peer->sin_addr.s_addr == own.sin_addr.s_addr && peer->sin_port == own.sin_port);
    CHECK(!rdma_resolve_route(id, SHORT_MS));
    expect(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
}

/* Several at a time, of which some are destroyed while they wait. */
static void of_many(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *ids[IDS], *other;
    for (int i = 0; i < IDS; i++) {
        struct sockaddr_in to = silent;
        to.sin_addr.s_addr += htonl(i + 1);
        CHECK(!rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP));
        CHECK(!resolve(ids[i], &to, MIDDLE_MS + 100 * i));
    }
    CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
    CHECK(!resolve(other, &own, LONG_MS));
    expect(channel, other, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    for (int i = 0; i < IDS; i += 2)
        CHECK(!rdma_destroy_id(ids[i]));
    for (int i = 1; i < IDS; i += 2)
        expect(channel, ids[i], RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    CHECK(!has_event(channel, 2 * SHORT_MS));
    for (int i = 1; i < IDS; i += 2)
        CHECK(!rdma_destroy_id(ids[i]));
    CHECK(!rdma_destroy_id(other));
    rdma_destroy_event_channel(channel);
}

static void without_a_channel(void)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    CHECK(resolve(id, &silent, SHORT_MS) == -1 && errno == ETIMEDOUT);
    CHECK(!resolve(id, &own, LONG_MS));
    CHECK(!rdma_destroy_id(id));
}

static void of_sockets(void)
{
    int fd = rsocket(AF_INET, SOCK_STREAM, 0), error = 0;
    struct pollfd one = { .fd = fd, .events = POLLOUT };
    socklen_t length = sizeof error;
    CHECK(fd >= 0 && !rfcntl(fd, F_SETFL, O_NONBLOCK));
    double began = now_ms();
    CHECK(rconnect(fd, (struct sockaddr *)&silent, sizeof silent) == -1 && errno == EINPROGRESS);
    /* The neighbour is asked for seconds. */
    CHECK(!rpoll(&one, 1, 0) && now_ms() - began < 2000);
    CHECK(rpoll(&one, 1, LIMIT_MS) == 1 && one.revents & POLLERR);
    CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) && error == ETIMEDOUT);
    CHECK(!rclose(fd));

    /* Closed while it asks. */
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !rfcntl(fd, F_SETFL, O_NONBLOCK));
    silent.sin_addr.s_addr += htonl(20);
    CHECK(rconnect(fd, (struct sockaddr *)&silent, sizeof silent) == -1 && errno == EINPROGRESS);
    CHECK(!rclose(fd));
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rconnect(fd, (struct sockaddr *)&silent, sizeof silent) == -1 && errno == ETIMEDOUT);
    CHECK(!rclose(fd));
}

int main(int count, char **words)
{
    CHECK(count == 4);
    own = address(words[1]);
    silent = address(words[2]);
    nowhere = address(words[3]);
    of_one_id();
    of_localhost();
    of_many();
    without_a_channel();
    of_sockets();
    puts("ok");
    return 0;
}
