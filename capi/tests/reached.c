/* Sockets of the kernel that meet by addresses of a model's ports. The program on port 0 serves, that on port 1 connects.
 *
 * reached server NUMBER   TCP and UDP at that number of a port
 * reached client NUMBER
 * reached own WORD        whether the own address can be bound: "no", "kernel" or "loopback" */
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SERVER "10.0.0.1"
#define CLIENT "10.0.0.2"
enum { WAIT_MS = 20000 };

static struct sockaddr_in four(const char *text, int port)
{
    struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, text, &made.sin_addr) == 1);
    return made;
}

static struct sockaddr_in6 six(const char *text, int port)
{
    struct sockaddr_in6 made = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    char mapped[64];
    snprintf(mapped, sizeof(mapped), "::ffff:%s", text);
    CHECK(inet_pton(AF_INET6, mapped, &made.sin6_addr) == 1);
    return made;
}

/* The address is that one, in the family of the socket; the port too, unless it is 0. */
static void is_at(const struct sockaddr_storage *told, const char *text, int port)
{
    char shown[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_in *told4 = (const void *)told;
    const struct sockaddr_in6 *told6 = (const void *)told;
    const char *from = shown;
    if (told->ss_family == AF_INET) {
        CHECK(inet_ntop(AF_INET, &told4->sin_addr, shown, sizeof(shown)));
    } else {
        CHECK(told->ss_family == AF_INET6 && inet_ntop(AF_INET6, &told6->sin6_addr, shown, sizeof(shown)));
        CHECK(!strncmp(shown, "::ffff:", 7));
        from += 7;
    }
    if (strcmp(from, text))
        fprintf(stderr, "%s, not %s\n", from, text);
    CHECK(!strcmp(from, text) && (!port || ntohs(told4->sin_port) == port));
}

static void ends_are(int fd, const char *own, const char *peer, int peer_port)
{
    struct sockaddr_storage told;
    socklen_t length = sizeof(told);
    CHECK(!getsockname(fd, (void *)&told, &length));
    is_at(&told, own, 0);
    length = sizeof(told);
    CHECK(!getpeername(fd, (void *)&told, &length));
    is_at(&told, peer, peer_port);
}

static void wait_for(int fd, int what)
{
    struct pollfd watched = { .fd = fd, .events = what };
    CHECK(poll(&watched, 1, WAIT_MS) == 1);
}

static void say(int fd, char octet)
{
    CHECK(send(fd, &octet, 1, 0) == 1);
}

static void hear(int fd, char octet)
{
    char heard;
    wait_for(fd, POLLIN);
    CHECK(recv(fd, &heard, 1, 0) == 1 && heard == octet);
}

/* A listener on all addresses, and one at the own address; each accepts one connection. */
static void serve_streams(int port)
{
    int yes = 1;
    int every = socket(AF_INET6, SOCK_STREAM, 0), own = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    struct sockaddr_in one = four(SERVER, port + 1);
    struct sockaddr_storage told;
    socklen_t length = sizeof(told);
    CHECK(!setsockopt(every, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
    CHECK(!setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
    CHECK(!bind(own, (void *)&one, sizeof(one)) && !listen(own, 4));
    CHECK(!getsockname(own, (void *)&told, &length));
    is_at(&told, SERVER, port + 1);
    /* The client begins with this one. */
    CHECK(!bind(every, (void *)&any, sizeof(any)) && !listen(every, 4));
    wait_for(every, POLLIN);
    length = sizeof(told);
    int first = accept(every, (void *)&told, &length);
    CHECK(first >= 0);
    is_at(&told, CLIENT, 0);
    ends_are(first, SERVER, CLIENT, 0);
    hear(first, 'a');
    wait_for(own, POLLIN);
    length = sizeof(told);
    int second = accept4(own, (void *)&told, &length, SOCK_CLOEXEC);
    CHECK(second >= 0);
    is_at(&told, CLIENT, 0);
    hear(second, 'b');
    say(second, 'c');
    CHECK(!close(first) && !close(second) && !close(every) && !close(own));
}

static void ask_streams(int port)
{
    struct sockaddr_in to = four(SERVER, port), absent = four(SERVER, port + 9);
    struct sockaddr_in6 mapped = six(SERVER, port + 1);
    struct sockaddr_in other = four("10.0.0.3", 0), own = four(CLIENT, 0);
    int first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int third = socket(AF_INET, SOCK_STREAM, 0);
    int error = -1;
    socklen_t length = sizeof(error);
    CHECK(!connect(first, (void *)&to, sizeof(to)));
    ends_are(first, CLIENT, SERVER, port);
    say(first, 'a');
    CHECK(!connect(second, (void *)&mapped, sizeof(mapped)) || errno == EINPROGRESS);
    wait_for(second, POLLOUT);
    CHECK(!getsockopt(second, SOL_SOCKET, SO_ERROR, &error, &length) && error == 0);
    ends_are(second, CLIENT, SERVER, port + 1);
    say(second, 'b');
    hear(second, 'c');
    CHECK(connect(third, (void *)&absent, sizeof(absent)) == -1 && errno == ECONNREFUSED);
    CHECK(!close(third));
    /* A program has the address of its own port only. */
    third = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(third, (void *)&other, sizeof(other)) == -1 && errno == EADDRNOTAVAIL);
    CHECK(!bind(third, (void *)&own, sizeof(own)));
    to.sin_port = htons(port + 9);
    CHECK(connect(third, (void *)&to, sizeof(to)) == -1 && errno == ECONNREFUSED);
    CHECK(!close(third) && !close(second) && !close(first));
}

/* Answers every datagram to its source, until the last one. */
static void serve_datagrams(int port)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(!bind(fd, (void *)&any, sizeof(any)));
    for (char heard = 0; heard != 'f';) {
        struct sockaddr_storage from;
        socklen_t length = sizeof(from);
        wait_for(fd, POLLIN);
        CHECK(recvfrom(fd, &heard, 1, 0, (void *)&from, &length) == 1);
        is_at(&from, CLIENT, 0);
        CHECK(sendto(fd, &heard, 1, 0, (void *)&from, length) == 1);
    }
    CHECK(!close(fd));
}

/* The socket of the server may come later: a datagram is repeated until it is answered. */
static void asked_by(int fd, const struct sockaddr *to, socklen_t length, char octet, int by_many)
{
    struct pollfd watched = { .fd = fd, .events = POLLIN };
    char heard = 0;
    struct sockaddr_storage from;
    struct iovec out = { &octet, 1 }, in = { &heard, 1 };
    struct msghdr sent = { .msg_name = (void *)to, .msg_namelen = length, .msg_iov = &out, .msg_iovlen = 1 };
    struct msghdr got = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &in, .msg_iovlen = 1 };
    for (int turn = 0; turn < WAIT_MS / 100; turn++) {
        struct mmsghdr many[1] = { { .msg_hdr = sent } };
        int is_sent = by_many ? sendmmsg(fd, many, 1, 0) == 1 && many[0].msg_len == 1 : sendmsg(fd, &sent, 0) == 1;
        if (is_sent && poll(&watched, 1, 100) == 1 && recv(fd, &heard, 1, MSG_PEEK) == 1)
            break;
    }
    if (by_many) {
        struct mmsghdr many[2] = { { .msg_hdr = got }, { .msg_hdr = got } };
        CHECK(recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL) >= 1 && many[0].msg_len == 1 && heard == octet);
    } else {
        CHECK(recvmsg(fd, &got, MSG_DONTWAIT) == 1 && heard == octet);
    }
    is_at(&from, SERVER, 0);
}

static void asked(int fd, const struct sockaddr *to, socklen_t length, char octet)
{
    asked_by(fd, to, length, octet, 0);
}

static void ask_datagrams(int port)
{
    struct sockaddr_in to = four(SERVER, port);
    struct sockaddr_in6 mapped = six(SERVER, port);
    int first = socket(AF_INET, SOCK_DGRAM, 0), second = socket(AF_INET6, SOCK_DGRAM, 0), third = socket(AF_INET, SOCK_DGRAM, 0);
    int fourth = socket(AF_INET, SOCK_DGRAM, 0);
    asked(first, (void *)&to, sizeof(to), 'd');
    asked(second, (void *)&mapped, sizeof(mapped), 'e');
    asked_by(fourth, (void *)&to, sizeof(to), 'g', 1);
    CHECK(!connect(third, (void *)&to, sizeof(to)));
    ends_are(third, CLIENT, SERVER, port);
    asked(third, NULL, 0, 'f');
    CHECK(!close(first) && !close(second) && !close(third) && !close(fourth));
}

/* The own address, as this library tells it and as the kernel does. */
static void own(const char *word)
{
    struct sockaddr_in wanted = four(SERVER, 0);
    struct sockaddr_storage told;
    socklen_t length = sizeof(told);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int bound = !bind(fd, (void *)&wanted, sizeof(wanted));
    CHECK(bound || errno == EADDRNOTAVAIL);
    CHECK(bound == !!strcmp(word, "no"));
    if (bound) {
        CHECK(!getsockname(fd, (void *)&told, &length));
        is_at(&told, SERVER, 0);
        length = sizeof(told);
        CHECK(!syscall(SYS_getsockname, fd, &told, &length));
        is_at(&told, strcmp(word, "kernel") ? "127.232.0.1" : SERVER, 0);
    }
    CHECK(!close(fd));
}

int main(int count, char **words)
{
    CHECK(count == 3);
    int port = atoi(words[2]);
    if (!strcmp(words[1], "server")) {
        serve_streams(port);
        serve_datagrams(port + 2);
    } else if (!strcmp(words[1], "client")) {
        ask_streams(port);
        ask_datagrams(port + 2);
    } else {
        own(words[2]);
    }
    puts("ok");
    return 0;
}
