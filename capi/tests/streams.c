/* Stream sockets of several threads that send pieces of any length, close one direction or all, early or late.
 * The first word of a stream says what it is for. Arguments: see roles.h. Says "ok" and ends with 0. */
#include "roles.h"
#include <fcntl.h>
#include <rdma/rsocket.h>

enum { PORT = 7460, LIMIT_MS = 20000, LONGEST = 300000, PIECE = 40000 };

enum plan {
    ECHOES,          /* all comes back; the client ends its direction, the server follows */
    POLLS,           /* the same, with sockets that do not wait */
    CLIENT_LEAVES,   /* the client closes while the echo is under way */
    SERVER_LEAVES,   /* the server closes after a part */
    BRIEF,           /* the client closes after the greeting */
    PLANS,
    LAST = PLANS     /* the clients have ended */
};
static const char *names[] = { "echoes", "polls", "client leaves", "server leaves", "brief", "last" };

struct greeting {
    uint32_t plan, length, part;
};

static atomic_int served;
static __thread const char *doing = "begins";

#define EXPECT(what)                                                                     \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "line %d, %s: %s (errno %d)\n", __LINE__, doing, #what, errno); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static unsigned char pattern(uint32_t length, size_t place)
{
    return (unsigned char)(length + place * 31 + place / 251);
}

static int is_over(int error)
{
    return error == ECONNRESET || error == EPIPE || error == ENOTCONN || error == ECONNABORTED;
}

static void wait_for(int fd, int events)
{
    struct pollfd one = { .fd = fd, .events = events };
    EXPECT(rpoll(&one, 1, LIMIT_MS) == 1);
}

/* The server's side of one connection. */
static void *serve_one(void *given)
{
    int fd = (int)(intptr_t)given;
    static __thread unsigned char block[PIECE];
    struct greeting greeting;
    size_t total = 0;
    doing = "a connection of the server";
    ssize_t got = rrecv(fd, &greeting, sizeof greeting, MSG_WAITALL);
    EXPECT(got == sizeof greeting && greeting.plan <= LAST);
    if (greeting.plan == LAST)
        is_last = 1;
    doing = names[greeting.plan];
    unsigned state = greeting.length;
    for (;;) {
        size_t room = 1 + rand_r(&state) % PIECE;
        got = rrecv(fd, block, room, 0);
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got; i++)
            EXPECT(block[i] == pattern(greeting.length, total + i));
        total += got;
        if (greeting.plan == SERVER_LEAVES && total >= greeting.part)
            break;
        ssize_t sent = 0, more = 0;
        for (; sent < got; sent += more)
            if ((more = rsend(fd, block + sent, got - sent, 0)) < 0)
                break;
        if (more < 0) {
            EXPECT(greeting.plan == CLIENT_LEAVES && is_over(errno));
            break;
        }
    }
    EXPECT(got >= 0 || (greeting.plan == CLIENT_LEAVES && is_over(errno)));
    if (greeting.plan == ECHOES || greeting.plan == POLLS)
        EXPECT(total == greeting.length);
    EXPECT(!rclose(fd));
    served--;
    return NULL;
}

static void *serve(void *unused)
{
    (void)unused;
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    doing = "the listener";
    EXPECT(listener >= 0 && !rbind(listener, (struct sockaddr *)&own, sizeof own));
    EXPECT(!rlisten(listener, 32) && !rfcntl(listener, F_SETFL, O_NONBLOCK));
    is_listening = 1;
    while (!is_last) {
        struct pollfd one = { .fd = listener, .events = POLLIN };
        if (rpoll(&one, 1, 50) != 1)
            continue;
        int fd = raccept(listener, NULL, NULL);
        if (fd < 0) {
            EXPECT(errno == EAGAIN);
            continue;
        }
        EXPECT(!rfcntl(fd, F_SETFL, 0));
        pthread_t thread;
        served++;
        EXPECT(!pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd));
        EXPECT(!pthread_detach(thread));
    }
    for (int waited = 0; served; waited += 10) {
        EXPECT(waited < LIMIT_MS);
        poll(NULL, 0, 10);
    }
    EXPECT(!rclose(listener));
    return NULL;
}

/* Takes what has come back; returns 0 at the end of the stream. */
static int take(int fd, struct greeting *greeting, size_t *back, int flags)
{
    static __thread unsigned char in[PIECE];
    ssize_t got = rrecv(fd, in, sizeof in, flags);
    if (got < 0) {
        EXPECT(errno == EAGAIN || (greeting->plan == SERVER_LEAVES && is_over(errno)));
        return errno == EAGAIN;
    }
    for (ssize_t i = 0; i < got; i++)
        EXPECT(in[i] == pattern(greeting->length, *back + i));
    *back += got;
    return got > 0;
}

/* A thread that reads while another one writes. */
struct reading {
    int fd;
    struct greeting *greeting;
    size_t back;
};

static void *read_all(void *given)
{
    struct reading *reading = given;
    doing = names[reading->greeting->plan];
    while (take(reading->fd, reading->greeting, &reading->back, 0))
        ;
    return NULL;
}

static void ask_once(struct greeting greeting, unsigned *state)
{
    static __thread unsigned char out[LONGEST];
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    size_t done = 0;
    EXPECT(fd >= 0 && !rconnect(fd, (struct sockaddr *)&own, sizeof own));
    for (size_t i = 0; i < greeting.length; i++)
        out[i] = pattern(greeting.length, i);
    EXPECT(rsend(fd, &greeting, sizeof greeting, 0) == sizeof greeting);
    struct reading reading = { fd, &greeting, 0 };
    pthread_t reader;
    int reads = greeting.plan == ECHOES || greeting.plan == SERVER_LEAVES;
    if (reads)
        EXPECT(!pthread_create(&reader, NULL, read_all, &reading));
    if (greeting.plan == POLLS)
        EXPECT(!rfcntl(fd, F_SETFL, O_NONBLOCK));
    while (greeting.plan != BRIEF && done < greeting.length) {
        size_t piece = 1 + rand_r(state) % PIECE;
        if (piece > greeting.length - done)
            piece = greeting.length - done;
        ssize_t sent = rsend(fd, out + done, piece, 0);
        if (sent >= 0)
            done += sent;
        else if (errno == EAGAIN && greeting.plan == POLLS)
            wait_for(fd, POLLIN | POLLOUT);
        else {
            EXPECT(greeting.plan == SERVER_LEAVES && is_over(errno));
            break;
        }
        if (greeting.plan == POLLS)
            while (reading.back < done && rrecv(fd, &(char){ 0 }, 1, MSG_PEEK) == 1)
                EXPECT(take(fd, &greeting, &reading.back, 0));
        if (greeting.plan == CLIENT_LEAVES && done > greeting.part)
            break;
    }
    if (greeting.plan == ECHOES || greeting.plan == POLLS) {
        EXPECT(!rshutdown(fd, SHUT_WR));
        EXPECT(rsend(fd, out, 1, 0) == -1 && errno == EPIPE);
    }
    if (greeting.plan == POLLS)
        while (take(fd, &greeting, &reading.back, 0))
            wait_for(fd, POLLIN);
    if (reads)
        EXPECT(!pthread_join(reader, NULL));
    if (greeting.plan == ECHOES || greeting.plan == POLLS)
        EXPECT(reading.back == greeting.length);
    EXPECT(!rclose(fd));
}

static void *ask(void *which)
{
    unsigned state = seed * 31 + (unsigned)(uintptr_t)which;
    for (unsigned round = 0; round < rounds; round++) {
        struct greeting greeting = { .plan = rand_r(&state) % PLANS };
        greeting.length = 1 + rand_r(&state) % (rand_r(&state) % 4 ? 2000 : LONGEST);
        /* A client that does not read must not send more than both sides' buffers hold. */
        if (greeting.plan == CLIENT_LEAVES)
            greeting.length = 1 + greeting.length % PIECE;
        greeting.part = rand_r(&state) % greeting.length;
        doing = names[greeting.plan];
        ask_once(greeting, &state);
    }
    return NULL;
}

static void tell_of_the_end(void)
{
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    struct greeting greeting = { .plan = LAST };
    CHECK(fd >= 0 && !rconnect(fd, (struct sockaddr *)&own, sizeof own));
    CHECK(rsend(fd, &greeting, sizeof greeting, 0) == sizeof greeting && !rclose(fd));
}

int main(int count, char **words)
{
    return run_roles(count, words, PORT, serve, ask, tell_of_the_end);
}
