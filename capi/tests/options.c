/* Options of sockets over RDMA, their backlog, and a second rconnect: as rdma-core has them.
 *
 *   options ADDRESS   an IPv4 address of the device
 */
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PORT 7431
#define CLIENTS 3

static struct sockaddr_in four(const char *text, int port)
{
    struct sockaddr_in all = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, text, &all.sin_addr) == 1);
    return all;
}

static struct sockaddr_in6 any_six(int port)
{
    struct sockaddr_in6 all = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    return all;
}

static int is_set(int fd, int level, int option, int number)
{
    return rsetsockopt(fd, level, option, &number, sizeof number);
}

static int value(int fd, int level, int option)
{
    int number = -5;
    socklen_t length = sizeof number;
    CHECK(rgetsockopt(fd, level, option, &number, &length) == 0 && length == sizeof number);
    return number;
}

/* One socket for each family listens at one port, as servers do that serve both. */
static void two_families(void)
{
    struct sockaddr_in own = four("0.0.0.0", PORT);
    struct sockaddr_in6 own_six = any_six(PORT);
    int six = rsocket(AF_INET6, SOCK_STREAM, 0), both = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(six >= 0 && both >= 0);
    CHECK(is_set(six, IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0 && value(six, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
    CHECK(rbind(six, (struct sockaddr *)&own_six, sizeof own_six) == 0);
    CHECK(rbind(both, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(rlisten(six, 0) == 0 && rlisten(both, 0) == 0);
    /* Too late: it listens. */
    CHECK(is_set(six, IPPROTO_IPV6, IPV6_V6ONLY, 0) == -1 && errno == EINVAL);
    CHECK(value(six, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
    CHECK(rclose(six) == 0 && rclose(both) == 0);
    /* Without the option the first one has the port for both. */
    six = rsocket(AF_INET6, SOCK_STREAM, 0);
    both = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rbind(six, (struct sockaddr *)&own_six, sizeof own_six) == 0);
    CHECK(rbind(both, (struct sockaddr *)&own, sizeof own) == -1 && errno == EADDRNOTAVAIL);
    CHECK(rclose(six) == 0 && rclose(both) == 0);
}

/* Two sockets have a port if both ask for that; once there is a port the option is only kept. */
static void shared_port(const char *text)
{
    struct sockaddr_in own = four(text, PORT + 1);
    int first = rsocket(AF_INET, SOCK_STREAM, 0), second = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(is_set(first, SOL_SOCKET, SO_REUSEADDR, 1) == 0 && is_set(second, SOL_SOCKET, SO_REUSEADDR, 256) == 0);
    CHECK(rbind(first, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(rbind(second, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(is_set(first, SOL_SOCKET, SO_REUSEADDR, 0) == 0 && value(first, SOL_SOCKET, SO_REUSEADDR) == 0);
    CHECK(rclose(first) == 0 && rclose(second) == 0);
}

/* False while a socket connects. */
static int has_connected(int fd, struct sockaddr_in *to)
{
    int is_done = !rconnect(fd, (struct sockaddr *)to, sizeof *to);
    CHECK(is_done || errno == EINPROGRESS);
    return is_done;
}

/* A backlog of 0, or less, is the largest: several clients connect before the first raccept. */
static void backlog(const char *text, int length, int port)
{
    struct sockaddr_in own = four(text, port), shown;
    struct pollfd one = { .events = POLLIN };
    struct tcp_info info;
    socklen_t bytes = sizeof shown;
    int clients[CLIENTS], served[CLIENTS], listener = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rgetsockname(listener, (struct sockaddr *)&shown, &bytes) == 0);
    CHECK(bytes == sizeof shown && shown.sin_family == AF_INET && !shown.sin_port);
    CHECK(rbind(listener, (struct sockaddr *)&own, sizeof own) == 0 && rlisten(listener, length) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK((clients[i] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
        has_connected(clients[i], &own);
        has_connected(clients[i], &own);
    }
    /* The connection manager asks again after 4.6 s for a request that was forgotten: none was. */
    for (int i = 0, left = 4000; i < CLIENTS; i++)
        for (; !has_connected(clients[i], &own); left--) {
            struct timespec pause = { .tv_nsec = 1000000 };
            CHECK(left > 0);
            nanosleep(&pause, NULL);
        }
    one.fd = listener;
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(rpoll(&one, 1, 4000) == 1);
        CHECK((served[i] = raccept(listener, NULL, NULL)) >= 0);
    }
    one.events = POLLOUT;
    for (int i = 0; i < CLIENTS; i++) {
        one.fd = clients[i];
        CHECK(rpoll(&one, 1, 20000) == 1 && one.revents == POLLOUT);
        CHECK(rconnect(clients[i], (struct sockaddr *)&own, sizeof own) == 0);
    }
    bytes = sizeof info;
    CHECK(rgetsockopt(clients[0], IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && bytes == sizeof info);
    CHECK(info.tcpi_state == TCP_ESTABLISHED && (int)info.tcpi_snd_cwnd == value(clients[0], SOL_RDMA, RDMA_SQSIZE));
    for (int i = 0; i < CLIENTS; i++)
        CHECK(rclose(clients[i]) == 0 && rclose(served[i]) == 0);
    CHECK(rclose(listener) == 0);
}

static void of_streams(void)
{
    struct linger linger = { .l_onoff = 0, .l_linger = 7 };
    struct tcp_info info;
    socklen_t bytes = sizeof linger;
    int fd = rsocket(AF_INET, SOCK_STREAM, 0), number = 0;
    unsigned char class = 0x20;
    CHECK(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &bytes) == 0 && bytes == sizeof linger);
    CHECK(linger.l_onoff == 1 && linger.l_linger == 0);
    linger.l_onoff = 0;
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &bytes) == 0 && linger.l_onoff == 0);
    CHECK(rsetsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0);
    CHECK(rsetsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, NULL, 0) == 0);
    CHECK(value(fd, IPPROTO_TCP, TCP_CONGESTION) == 1);
    CHECK(value(fd, SOL_SOCKET, SO_BROADCAST) == 0);
    CHECK(rsetsockopt(fd, IPPROTO_IP, IP_TOS, &class, 1) == 0 && value(fd, IPPROTO_IP, IP_TOS) == 0x20);
    memset(&info, 0xEE, sizeof info);
    bytes = sizeof info;
    CHECK(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && bytes == sizeof info);
    CHECK(info.tcpi_state == TCP_CLOSE && info.tcpi_rtt == 0);
    bytes = 8;
    memset(&info, 0xEE, sizeof info);
    CHECK(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && bytes == 8);
    CHECK(info.tcpi_state == TCP_CLOSE && info.tcpi_rto == 0xEEEEEEEE);
    bytes = sizeof number;
    CHECK(rgetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &number, &bytes) == -1 && errno == ENOTSUP);
    CHECK(rgetsockopt(fd, IPPROTO_IP, IP_TTL, &number, &bytes) == -1 && errno == ENOTSUP);
    CHECK(rgetsockopt(fd, IPPROTO_UDP, 1, &number, &bytes) == -1 && errno == ENOTSUP);
    CHECK(is_set(fd, SOL_SOCKET, SO_RCVTIMEO, 1) == -1 && errno == ENOTSUP);
    CHECK(rclose(fd) == 0);
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void of_datagrams(void)
{
    struct timeval limit = { .tv_usec = 150000 };
    int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
    char word[8];
    CHECK(value(fd, SOL_SOCKET, SO_BROADCAST) == 0);
    CHECK(is_set(fd, SOL_SOCKET, SO_BROADCAST, 1) == 0 && value(fd, SOL_SOCKET, SO_BROADCAST) == 1);
    /* A datagram counts for 2 KiB of a buffer, which is twice as large as was asked for. */
    CHECK(is_set(fd, SOL_SOCKET, SO_RCVBUF, 100000) == 0 && value(fd, SOL_RDMA, RDMA_RQSIZE) == 97);
    CHECK(is_set(fd, SOL_SOCKET, SO_SNDBUF, 50000) == 0 && value(fd, SOL_RDMA, RDMA_SQSIZE) == 48);
    /* The most that a buffer holds is what a queue takes. */
    int large = rsocket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("10.0.0.1") };
    CHECK(is_set(large, SOL_SOCKET, SO_SNDBUF, 8 << 20) == 0 && value(large, SOL_RDMA, RDMA_SQSIZE) == 4094);
    CHECK(is_set(large, SOL_SOCKET, SO_RCVBUF, 64 << 20) == 0 && value(large, SOL_RDMA, RDMA_RQSIZE) == 16384);
    CHECK(is_set(large, SOL_RDMA, RDMA_INLINE, 1 << 20) == 0);
    CHECK(rbind(large, (struct sockaddr *)&own, sizeof own) == 0 && rclose(large) == 0);
    CHECK(is_set(fd, IPPROTO_IP, IP_TTL, 3) == 0 && is_set(fd, IPPROTO_IP, IP_TTL, -1) == 0);
    CHECK(is_set(fd, IPPROTO_IP, IP_TTL, 0) == -1 && errno == EINVAL);
    CHECK(is_set(fd, IPPROTO_IP, IP_TTL, 256) == -1 && errno == EINVAL);
    CHECK(is_set(fd, IPPROTO_TCP, TCP_NODELAY, 1) == -1 && errno == ENOPROTOOPT);
    CHECK(is_set(fd, SOL_SOCKET, SO_SNDTIMEO, 1) == -1 && errno == EINVAL);
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    long before = milliseconds();
    CHECK(rrecv(fd, word, sizeof word, 0) == -1 && errno == EAGAIN);
    CHECK(milliseconds() - before >= 150);
    limit = (struct timeval) { .tv_usec = 1000000 };
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == -1 && errno == EDOM);
    CHECK(rclose(fd) == 0);
}

/* The name is the mapped form of an IPv4 address, which is returned. */
static struct sockaddr_in mapped_name(int (*name)(int, struct sockaddr *, socklen_t *), int fd)
{
    struct sockaddr_in6 six;
    struct sockaddr_in made = { .sin_family = AF_INET };
    socklen_t length = sizeof six;
    CHECK(name(fd, (struct sockaddr *)&six, &length) == 0);
    CHECK(length == sizeof six && six.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr));
    memcpy(&made.sin_addr, six.sin6_addr.s6_addr + 12, 4);
    made.sin_port = six.sin6_port;
    return made;
}

/* IPv6 sockets show mapped addresses, as they were given. */
static void mapped_names(const char *text)
{
    struct sockaddr_in own = four(text, PORT + 5), plain;
    struct sockaddr_in6 every = any_six(PORT + 5), mapped = any_six(PORT + 5), peer;
    socklen_t length = sizeof peer;
    memset(mapped.sin6_addr.s6_addr + 10, 0xFF, 2);
    memcpy(mapped.sin6_addr.s6_addr + 12, &own.sin_addr, 4);
    int listener = rsocket(AF_INET6, SOCK_STREAM, 0), near = rsocket(AF_INET6, SOCK_STREAM, 0);
    CHECK(rbind(listener, (struct sockaddr *)&every, sizeof every) == 0 && rlisten(listener, 2) == 0);
    CHECK(rconnect(near, (struct sockaddr *)&mapped, sizeof mapped) == 0);
    int far = raccept(listener, (struct sockaddr *)&peer, &length);
    CHECK(far >= 0 && length == sizeof peer && peer.sin6_family == AF_INET6);
    plain = mapped_name(rgetsockname, near);
    CHECK(!memcmp(&peer.sin6_addr, &mapped.sin6_addr, sizeof peer.sin6_addr) && peer.sin6_port == plain.sin_port);
    plain = mapped_name(rgetpeername, near);
    CHECK(plain.sin_addr.s_addr == own.sin_addr.s_addr && plain.sin_port == own.sin_port);
    plain = mapped_name(rgetsockname, far);
    CHECK(plain.sin_addr.s_addr == own.sin_addr.s_addr && plain.sin_port == own.sin_port);
    /* An IPv4 socket that connects to the same listener shows IPv4 addresses. */
    int four_near = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rconnect(four_near, (struct sockaddr *)&own, sizeof own) == 0);
    length = sizeof plain;
    CHECK(rgetpeername(four_near, (struct sockaddr *)&plain, &length) == 0 && length == sizeof plain);
    CHECK(plain.sin_family == AF_INET && plain.sin_addr.s_addr == own.sin_addr.s_addr);
    CHECK(rclose(four_near) == 0 && rclose(near) == 0 && rclose(far) == 0 && rclose(listener) == 0);
}

/* A connect that failed: the second call says only that. */
static void refused(const char *text)
{
    struct sockaddr_in none = four(text, PORT + 9);
    int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct pollfd one = { .fd = fd, .events = POLLOUT };
    CHECK(rconnect(fd, (struct sockaddr *)&none, sizeof none) == -1 && errno == EINPROGRESS);
    CHECK(rpoll(&one, 1, 20000) == 1 && one.revents & POLLERR);
    CHECK(rconnect(fd, (struct sockaddr *)&none, sizeof none) == -1 && errno == ENOTCONN);
    CHECK(value(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
    CHECK(value(fd, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(rclose(fd) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    two_families();
    mapped_names(words[1]);
    shared_port(words[1]);
    backlog(words[1], 0, PORT + 2);
    backlog(words[1], -1, PORT + 3);
    of_streams();
    of_datagrams();
    refused(words[1]);
    puts("ok");
    return 0;
}
