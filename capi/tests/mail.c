/* Random datagrams between sockets of one process, connected or not, of any length, received whole, in part or twice
 * (MSG_PEEK), with sockets that are closed and made anew on their ports while datagrams are under way. A datagram to a
 * socket that stays arrives once, whole, from its sender, in order; no other one does.
 * Arguments: an address, a seed, steps, threads. Says "ok" and ends with 0. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { SOCKETS = 4, LIVES = 3, PORT = 7600, MTU = 4096, PENDING = 64, SECONDS = 20 };

struct datagram {
    uint32_t number, length;
    int must;
};

struct list {
    struct datagram all[PENDING];
    unsigned count;
};

struct box {
    int fd, life, peer; /* of a connected socket, else -1 */
    /* the lives of both, once a datagram of this socket was received by another one */
    int met[SOCKETS], met_own[SOCKETS], known[SOCKETS];
    /* what comes to it, by sender and its life */
    struct list from[SOCKETS * LIVES];
};

struct thread {
    unsigned seed, steps, random, step;
    struct box boxes[SOCKETS];
    uint32_t next;
    unsigned long sent, received;
};

static struct in_addr own;

#include "random.h"

#define WANT(thread, what) WANT_AT(thread, -1, what)

/* The port of a thread's first socket. */
static int port_of(struct thread *thread)
{
    return PORT + (int)(thread - threads) * 16;
}

static struct sockaddr_in address_of(struct thread *thread, int box)
{
    return (struct sockaddr_in) { .sin_family = AF_INET, .sin_addr = own, .sin_port = htons(port_of(thread) + box) };
}

static void make(struct thread *thread, int at)
{
    struct box *box = &thread->boxes[at];
    struct sockaddr_in name = address_of(thread, at);
    WANT(thread, (box->fd = rsocket(AF_INET, SOCK_DGRAM, 0)) >= 0);
    WANT(thread, !rbind(box->fd, (struct sockaddr *)&name, sizeof name));
    box->life++;
    box->peer = -1;
    for (int b = 0; b < SOCKETS; b++)
        /* Others are as they are since before this one. */
        box->known[b] = thread->boxes[b].life;
}

static struct list *list_of(struct box *box, struct thread *thread, int sender)
{
    return &box->from[sender * LIVES + thread->boxes[sender].life % LIVES];
}

static void may_lose(struct list *list)
{
    for (unsigned i = 0; i < list->count; i++)
        list->all[i].must = 0;
}

static unsigned coming(struct box *box)
{
    unsigned all = 0;
    for (int i = 0; i < SOCKETS * LIVES; i++)
        all += box->from[i].count;
    return all;
}

/* A datagram was received: it is the next one of its sender, in one of its lives. */
static void arrived(struct thread *thread, int at, int sender, const unsigned char *data, uint32_t length, uint32_t got)
{
    static __thread unsigned char wanted[MTU];
    struct box *box = &thread->boxes[at];
    for (int life = 0; life < LIVES; life++) {
        int lives = (thread->boxes[sender].life + LIVES - life) % LIVES;
        struct list *list = &box->from[sender * LIVES + lives];
        for (unsigned i = 0; i < list->count; i++) {
            fill_numbered(wanted, list->all[i].number, list->all[i].length);
            if (list->all[i].length == length && !memcmp(wanted, data, got)) {
                list->count -= i + 1;
                memmove(list->all, list->all + i + 1, list->count * sizeof *list->all);
                if (!life) {
                    thread->boxes[sender].met[at] = box->life;
                    thread->boxes[sender].met_own[at] = thread->boxes[sender].life;
                }
                thread->received++;
                return;
            }
            if (list->all[i].must)
                break;
        }
    }
    fprintf(stderr, "box %d from %d: %u bytes, number %u; wanted", at, sender, length,
        got >= 4 ? data[0] | data[1] << 8 | data[2] << 16 | (unsigned)data[3] << 24 : 0);
    for (int i = 0; i < LIVES; i++)
        for (unsigned n = 0; n < box->from[sender * LIVES + i].count; n++)
            fprintf(stderr, " %u (%u bytes, %d)", box->from[sender * LIVES + i].all[n].number,
                box->from[sender * LIVES + i].all[n].length, box->from[sender * LIVES + i].all[n].must);
    fputs("\n", stderr);
    WANT(thread, !"a datagram that was sent");
}

/* Receives one, in one of the ways; false if there is none. */
static int take(struct thread *thread, int at)
{
    static __thread unsigned char data[MTU + 8], again[MTU + 8];
    struct box *box = &thread->boxes[at];
    struct sockaddr_in from, peeked;
    socklen_t length = sizeof from;
    struct pollfd ready = { .fd = box->fd, .events = POLLIN };
    size_t room = draw(thread, 4) ? MTU + 1 : draw(thread, 200);
    ssize_t all = -1, got, seen = -1;
    WANT(thread, rpoll(&ready, 1, 0) >= 0);
    if (draw(thread, 4) == 0) {
        seen = rrecvfrom(box->fd, again, sizeof again, MSG_DONTWAIT | MSG_PEEK, (struct sockaddr *)&peeked, &length);
        WANT(thread, seen >= 0 || errno == EAGAIN);
        length = sizeof from;
    }
    if (draw(thread, 2)) {
        all = got = rrecvfrom(box->fd, data, room, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &length);
        if (got > (ssize_t)room)
            got = room;
    } else {
        struct iovec parts[2] = { { data, room / 3 }, { data + room / 3, room - room / 3 } };
        struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = parts, .msg_iovlen = 2 };
        got = rrecvmsg(box->fd, &message, MSG_DONTWAIT);
        length = message.msg_namelen;
        if (got >= 0 && !(message.msg_flags & MSG_TRUNC))
            all = got;
    }
    if (got < 0) {
        WANT(thread, errno == EAGAIN && seen < 0 && !(ready.revents & POLLIN));
        return 0;
    }
    WANT(thread, length == sizeof from && from.sin_addr.s_addr == own.s_addr);
    int sender = ntohs(from.sin_port) - port_of(thread);
    WANT(thread, sender >= 0 && sender < SOCKETS);
    WANT(thread, seen < 0 || (all < 0 ? seen > got : seen == all));
    WANT(thread, seen < 0 || (!memcmp(data, again, got) && peeked.sin_port == from.sin_port));
    if (all < 0) {
        /* Its length is not known: that of the next one which begins so. */
        struct datagram *next = NULL;
        for (int life = 0; life < LIVES && !next; life++) {
            struct list *list = &box->from[sender * LIVES + (thread->boxes[sender].life + LIVES - life) % LIVES];
            for (unsigned i = 0; i < list->count && !next; i++) {
                unsigned char wanted[200];
                fill_numbered(wanted, list->all[i].number, got);
                if ((ssize_t)list->all[i].length > got && !memcmp(wanted, data, got))
                    next = &list->all[i];
                else if (list->all[i].must)
                    break;
            }
        }
        WANT(thread, next);
        all = next->length;
    }
    arrived(thread, at, sender, data, all, got);
    return 1;
}

static void post(struct thread *thread, int at, int to, uint32_t length)
{
    static __thread unsigned char data[MTU + 8];
    struct box *box = &thread->boxes[at], *receiver = &thread->boxes[to];
    struct list *list = list_of(receiver, thread, at);
    struct sockaddr_in name = address_of(thread, to);
    struct datagram one = { .number = thread->next++, .length = length };
    ssize_t sent;
    if (list->count >= PENDING || coming(receiver) >= 3 * PENDING)
        return;
    fill_numbered(data, one.number, length);
    if (draw(thread, 2)) {
        sent = rsendto(box->fd, data, length, MSG_DONTWAIT, (struct sockaddr *)&name, sizeof name);
    } else if (box->peer == to && draw(thread, 2)) {
        sent = rsend(box->fd, data, length, MSG_DONTWAIT);
    } else {
        struct iovec parts[2] = { { data, length / 3 }, { data + length / 3, length - length / 3 } };
        struct msghdr message = { .msg_name = &name, .msg_namelen = sizeof name, .msg_iov = parts, .msg_iovlen = 2 };
        sent = rsendmsg(box->fd, &message, MSG_DONTWAIT);
    }
    memset(data, 0xDD, length);
    if (sent < 0) {
        WANT(thread, errno == EAGAIN);
        return;
    }
    WANT(thread, sent == (ssize_t)length);
    thread->sent++;
    /* It arrives if the receiver is older than the sender, or they have met in these lives. */
    one.must = (receiver->peer < 0 || receiver->peer == at) && (box->known[to] == receiver->life ||
        (box->met[to] == receiver->life && box->met_own[to] == box->life));
    list->all[list->count++] = one;
}

static void settle(struct thread *thread)
{
    time_t end = time(NULL) + SECONDS;
    for (int at = 0; at < SOCKETS; at++)
        for (int i = 0; i < SOCKETS * LIVES; i++) {
            struct list *list = &thread->boxes[at].from[i];
            for (;;) {
                int must = -1;
                for (unsigned n = 0; n < list->count; n++)
                    if (list->all[n].must)
                        must = n;
                if (must < 0)
                    break;
                struct pollfd ready = { .fd = thread->boxes[at].fd, .events = POLLIN };
                WANT(thread, rpoll(&ready, 1, 1000) >= 0);
                take(thread, at);
                if (time(NULL) >= end)
                    fprintf(stderr, "from %d to %d: number %u of %u bytes\n", i / LIVES, at, list->all[must].number,
                        list->all[must].length);
                WANT(thread, time(NULL) < end);
            }
        }
}

/* Closes a socket and makes another one on its port. */
static void renew(struct thread *thread, int at)
{
    struct box *box = &thread->boxes[at];
    if (draw(thread, 2))
        settle(thread);
    /* What it was sent is lost with it; what it has sent arrives, or not if it was connected meanwhile. */
    for (int i = 0; i < SOCKETS * LIVES; i++)
        may_lose(&box->from[i]);
    /* A life from long ago has nothing under way any more: what the others have not read by then was lost. */
    for (int b = 0; b < SOCKETS; b++) {
        struct list *list = &thread->boxes[b].from[at * LIVES + (box->life + 1) % LIVES];
        if (list->count)
            settle(thread);
        while (list->count && take(thread, b))
            ;
        list->count = 0;
    }
    WANT(thread, !rclose(box->fd));
    make(thread, at);
    for (int b = 0; b < SOCKETS; b++)
        if (thread->boxes[b].peer == at)
            may_lose(&thread->boxes[b].from[at * LIVES + box->life % LIVES]);
}

static void connect_box(struct thread *thread, int at)
{
    struct box *box = &thread->boxes[at];
    int to = draw(thread, SOCKETS);
    struct sockaddr_in name = address_of(thread, to), none = { .sin_family = AF_UNSPEC };
    for (int i = 0; i < SOCKETS * LIVES; i++)
        may_lose(&box->from[i]);
    if (box->peer >= 0 && draw(thread, 2)) {
        WANT(thread, !rconnect(box->fd, (struct sockaddr *)&none, sizeof none));
        box->peer = -1;
        return;
    }
    WANT(thread, !rconnect(box->fd, (struct sockaddr *)&name, sizeof name));
    box->peer = to;
}

static void step(struct thread *thread)
{
    int at = draw(thread, SOCKETS), to = draw(thread, SOCKETS);
    unsigned what = draw(thread, 400);
    if (what < 200)
        post(thread, at, to, draw(thread, 3) ? draw(thread, 200) : draw(thread, 8) ? draw(thread, MTU + 1) : MTU);
    else if (what < 370)
        take(thread, at);
    else if (what < 380)
        settle(thread);
    else if (what < 390)
        connect_box(thread, at);
    else
        renew(thread, at);
}

static int has_done_enough(const struct thread *thread)
{
    return thread->sent > thread->steps / 4 && thread->received > thread->steps / 8;
}

static void *run(void *given)
{
    struct thread *thread = given;
    for (int i = 0; i < SOCKETS; i++)
        make(thread, i);
    for (thread->step = 0; has_steps(thread, has_done_enough(thread)); thread->step++)
        step(thread);
    settle(thread);
    for (int i = 0; i < SOCKETS; i++)
        WANT(thread, !rclose(thread->boxes[i].fd));
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count == 5 && inet_pton(AF_INET, words[1], &own) == 1);
    int number = run_threads(words + 2, run);
    for (int i = 0; i < number; i++)
        CHECK(has_done_enough(&threads[i]));
    puts("ok");
    return 0;
}
