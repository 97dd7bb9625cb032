/* Vectors of many pieces on a stream socket: they go as one transfer, so that a call that does not wait takes them all
 * while the peer reads nothing; empty pieces have no address. Argument: an IPv4 address of the device.
 * Says "ok" and ends with 0. */
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/uio.h>

enum { PORT = 7433, MOST = 1024, LONGEST = 24 };

static char out[MOST * LONGEST], in[sizeof out];

/* Both ends of a connection; the first one does not wait. */
static void connected(const char *text, int ends[2])
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    CHECK(inet_pton(AF_INET, text, &own.sin_addr) == 1);
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rbind(listener, (struct sockaddr *)&own, sizeof own) == 0 && rlisten(listener, 1) == 0);
    ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rfcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(!rconnect(ends[0], (struct sockaddr *)&own, sizeof own) || errno == EINPROGRESS);
    ends[1] = raccept(listener, NULL, NULL);
    struct pollfd made = { .fd = ends[0], .events = POLLOUT };
    CHECK(ends[1] >= 0 && rpoll(&made, 1, 40000) == 1 && made.revents == POLLOUT);
    CHECK(rclose(listener) == 0);
}

/* Sends `count` pieces of up to `longest` bytes, every third one empty, and reads them. */
static void send_pieces(const int ends[2], int count, int longest)
{
    static struct iovec pieces[MOST];
    ssize_t all = 0;
    for (int i = 0; i < count; i++) {
        size_t length = i % 3 == 2 ? 0 : 1 + (size_t)i % (size_t)longest;
        pieces[i] = (struct iovec){ length ? out + all : NULL, length };
        all += (ssize_t)length;
    }
    for (ssize_t i = 0; i < all; i++)
        out[i] = (char)(i * 7 + count);
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
    CHECK(rsendmsg(ends[0], &message, MSG_DONTWAIT) == all);
    memset(in, 0, sizeof in);
    CHECK(rrecv(ends[1], in, (size_t)all, MSG_WAITALL) == all);
    CHECK(!memcmp(in, out, (size_t)all));
}

int main(int count, char **arguments)
{
    int ends[2];
    CHECK(count == 2);
    connected(arguments[1], ends);
    for (int pieces = 1; pieces <= MOST; pieces = pieces * 3 / 2 + 1) {
        send_pieces(ends, pieces, 1);
        send_pieces(ends, pieces, LONGEST);
    }
    send_pieces(ends, MOST, 1);
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
    puts("ok");
    return 0;
}
