/* Ends of connections that were just accepted, and what rselect says of a connection that the peer has ended. The
 * argument is an address of the device. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

enum { PORT = 7482, ROUNDS = 30 };
#include "streams.h"

static int connected(int listener, int *far)
{
    pthread_t connects;
    CHECK(!pthread_create(&connects, NULL, connect_one, far));
    int near = raccept(listener, NULL, NULL);
    CHECK(near >= 0 && !pthread_join(connects, NULL));
    return near;
}

/* The server ends its direction at once; the client, which waits for that, reads the end. */
static void *wait_for_the_end(void *into)
{
    char byte;
    connect_one(into);
    CHECK(rrecv(*(int *)into, &byte, 1, 0) == 0);
    return NULL;
}

static void shutdown_at_once(int listener)
{
    for (int round = 0; round < ROUNDS; round++) {
        int far;
        char byte;
        pthread_t waits;
        CHECK(!pthread_create(&waits, NULL, wait_for_the_end, &far));
        int near = raccept(listener, NULL, NULL);
        CHECK(near >= 0 && !rshutdown(near, SHUT_WR));
        CHECK(!pthread_join(waits, NULL));
        CHECK(rsend(far, "x", 1, 0) == 1 && rrecv(near, &byte, 1, 0) == 1);
        CHECK(!rclose(far) && !rclose(near));
    }
}

static void close_at_once(int listener)
{
    for (int round = 0; round < ROUNDS; round++) {
        int far;
        pthread_t waits;
        CHECK(!pthread_create(&waits, NULL, wait_for_the_end, &far));
        int near = raccept(listener, NULL, NULL);
        CHECK(near >= 0 && !rclose(near));
        CHECK(!pthread_join(waits, NULL) && !rclose(far));
    }
}

static int writable(int fd)
{
    struct timeval limit = { .tv_sec = 1 };
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    int found = rselect(fd + 1, NULL, &set, NULL, &limit);
    CHECK(found >= 0 && found == !!FD_ISSET(fd, &set));
    return found;
}

/* A send returns at once in both cases: it is not waited for. */
static void ended_is_writable(int listener)
{
    int far, near = connected(listener, &far);
    CHECK(!rshutdown(near, SHUT_WR) && writable(near));
    CHECK(rsend(near, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    CHECK(!rclose(near) && !rclose(far));

    near = connected(listener, &far);
    struct pollfd end = { .fd = near, .events = POLLIN };
    CHECK(!rclose(far) && rpoll(&end, 1, 20000) == 1 && end.revents & POLLHUP);
    CHECK(writable(near) && rsend(near, "x", 1, MSG_NOSIGNAL) == -1);
    CHECK(!rclose(near));
}

int main(int count, char **given)
{
    CHECK(count == 2);
    address = given[1];
    int listener = listening();
    shutdown_at_once(listener);
    close_at_once(listener);
    ended_is_writable(listener);
    CHECK(!rclose(listener));
    puts("ok");
    return 0;
}
