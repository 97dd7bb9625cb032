/* Stream sockets of one device, connected with each other. PORT is defined before. */
#ifndef STREAMS_H
#define STREAMS_H
#include "check.h"
#include <arpa/inet.h>
#include <rdma/rsocket.h>
#include <time.h>

static const char *address;
enum { BACKLOG = 4 };

static struct sockaddr_in at(int port)
{
    struct sockaddr_in all = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, address, &all.sin_addr) == 1);
    return all;
}

static int listening_for(int backlog)
{
    struct sockaddr_in own = at(PORT);
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !rbind(fd, (struct sockaddr *)&own, sizeof own) && !rlisten(fd, backlog));
    return fd;
}

static int listening(void)
{
    return listening_for(BACKLOG);
}

static void *connect_one(void *into)
{
    struct sockaddr_in peer = at(PORT);
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !rconnect(fd, (struct sockaddr *)&peer, sizeof peer));
    *(int *)into = fd;
    return NULL;
}

struct pair {
    int near, far;
};

static inline void sleep_ms(long ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
}

#endif
