/* Signals during calls of sockets. A handler without SA_RESTART ends a call that waits, one with
 * SA_RESTART only rpoll; a storm of signals loses nothing. The argument is an address of the device. Says
 * "ok" and ends with 0. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7430, BETWEEN_MS = 20, LIMIT_MS = 20000, LONG = 1 << 20, MOST_SIGNALS = 500, ROUNDS = 10 };
#include "streams.h"

static atomic_int handled;

static void handle(int number)
{
    (void)number;
    handled++;
}

static void install(int flags)
{
    struct sigaction how = { .sa_handler = handle, .sa_flags = flags };
    CHECK(!sigaction(SIGUSR1, &how, NULL));
    handled = 0;
}

/* A thread that signals another one until it is told to end. */
struct storm {
    pthread_t thread, target;
    atomic_int is_over;
    long between_ms;
};

static void *rage(void *given)
{
    struct storm *storm = given;
    for (int sent = 0; !storm->is_over; sent++) {
        /* A call that no signal ends would hang without this limit. */
        CHECK(storm->between_ms < BETWEEN_MS || sent < MOST_SIGNALS);
        sleep_ms(storm->between_ms);
        if (!storm->is_over)
            CHECK(!pthread_kill(storm->target, SIGUSR1));
    }
    return NULL;
}

static void begin(struct storm *storm, pthread_t target, long between_ms)
{
    storm->target = target;
    storm->is_over = 0;
    storm->between_ms = between_ms;
    CHECK(!pthread_create(&storm->thread, NULL, rage, storm));
}

static void end(struct storm *storm)
{
    storm->is_over = 1;
    CHECK(!pthread_join(storm->thread, NULL));
}

#define ENDS_WITH_EINTR(call)                                       \
    do {                                                            \
        struct storm storm;                                         \
        begin(&storm, pthread_self(), BETWEEN_MS);                  \
        int handled_before = handled;                               \
        long result = (call);                                       \
        int error = errno;                                          \
        end(&storm);                                                \
        errno = error;                                              \
        CHECK(result == -1 && errno == EINTR);                      \
        CHECK(handled > handled_before);                            \
    } while (0)

static struct pair connected(int listener)
{
    struct pair both;
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, connect_one, &both.far));
    CHECK((both.near = raccept(listener, NULL, NULL)) >= 0);
    CHECK(!pthread_join(thread, NULL));
    return both;
}

static void *speak_later(void *given)
{
    /* The handler runs while the call waits, and not only at its end. */
    while (handled <= 5)
        sleep_ms(BETWEEN_MS);
    CHECK(rsend(*(int *)given, "later", 5, 0) == 5);
    return NULL;
}

/* Sends what fits in the peer's buffer; then a call that can send nothing ends. Returns the bytes. A signal may end a
 * call before the buffer is full: then the next one sends more. */
static ssize_t send_until_full(int fd)
{
    static char block[LONG];
    struct storm storm;
    ssize_t sent = 0, more;
    int error, handled_before;
    do {
        begin(&storm, pthread_self(), BETWEEN_MS);
        handled_before = handled;
        more = rsend(fd, block, LONG, 0);
        error = errno;
        end(&storm);
        if (more > 0)
            sent += more;
        CHECK(sent < LONG);
    } while (more > 0);
    CHECK(more == -1 && error == EINTR && handled > handled_before && sent > 0);
    return sent;
}

/* A handler with SA_RESTART: a call that receives goes on, one that polls ends. */
static void with_restart(struct pair both)
{
    struct pollfd one = { .fd = both.near, .events = POLLIN };
    struct storm storm;
    pthread_t speaker;
    char text[5];
    install(SA_RESTART);
    CHECK(!pthread_create(&speaker, NULL, speak_later, &both.far));
    begin(&storm, pthread_self(), BETWEEN_MS);
    CHECK(rrecv(both.near, text, 5, MSG_WAITALL) == 5 && !memcmp(text, "later", 5));
    end(&storm);
    CHECK(!pthread_join(speaker, NULL));
    ENDS_WITH_EINTR(rpoll(&one, 1, LIMIT_MS));
}

static void without_restart(int listener, struct pair both)
{
    static char block[LONG];
    struct pollfd one = { .fd = both.near, .events = POLLIN };
    struct timeval limit = { .tv_sec = LIMIT_MS / 1000 };
    char text[8];
    fd_set reads;
    install(0);
    FD_ZERO(&reads);
    FD_SET(both.near, &reads);
    ENDS_WITH_EINTR(rrecv(both.near, text, 5, 0));
    ENDS_WITH_EINTR(rread(both.near, text, 5));
    ENDS_WITH_EINTR(rpoll(&one, 1, LIMIT_MS));
    ENDS_WITH_EINTR(rselect(both.near + 1, &reads, NULL, NULL, &limit));
    ENDS_WITH_EINTR(raccept(listener, NULL, NULL));

    /* What has arrived is returned, although more was wanted. */
    struct storm storm;
    CHECK(rsend(both.far, "abc", 3, 0) == 3);
    begin(&storm, pthread_self(), BETWEEN_MS);
    CHECK(rrecv(both.near, text, 8, MSG_WAITALL) == 3 && !memcmp(text, "abc", 3));
    end(&storm);
    ssize_t sent = send_until_full(both.far);
    for (ssize_t got = 0, more; got < sent; got += more)
        CHECK((more = rrecv(both.near, block, sent - got, 0)) > 0);
    CHECK(rrecv(both.near, block, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static void datagrams(void)
{
    struct sockaddr_in own = at(PORT + 1), from;
    socklen_t length = sizeof from;
    int first = rsocket(AF_INET, SOCK_DGRAM, 0), second = rsocket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    CHECK(first >= 0 && second >= 0 && !rbind(first, (struct sockaddr *)&own, sizeof own));
    install(0);
    ENDS_WITH_EINTR(rrecvfrom(first, text, 8, 0, (struct sockaddr *)&from, &length));
    CHECK(rsendto(second, "datagram", 8, 0, (struct sockaddr *)&own, sizeof own) == 8);
    CHECK(rrecvfrom(first, text, 8, 0, (struct sockaddr *)&from, &length) == 8);
    CHECK(!memcmp(text, "datagram", 8));
    CHECK(!rclose(first) && !rclose(second));
}

/* The waiter whose sleep another thread's sleep in the same socket delays. */
static void *receive_too(void *given)
{
    char byte;
    ENDS_WITH_EINTR(rrecv(*(int *)given, &byte, 1, 0));
    return NULL;
}

static void *send_too(void *given)
{
    send_until_full(*(int *)given);
    return NULL;
}

static void two_threads_of_one_socket(int listener)
{
    struct pair both = connected(listener);
    pthread_t sender, receiver;
    install(0);
    CHECK(!pthread_create(&sender, NULL, send_too, &both.near));
    CHECK(!pthread_create(&receiver, NULL, receive_too, &both.near));
    CHECK(!pthread_join(receiver, NULL) && !pthread_join(sender, NULL));
    CHECK(!rclose(both.far) && !rclose(both.near));
}

static unsigned char pattern(size_t place)
{
    return (unsigned char)(place * 31 + place / 251);
}

static void *receive_all(void *given)
{
    static unsigned char block[5000];
    size_t total = 0;
    for (;;) {
        ssize_t got = rrecv(*(int *)given, block, sizeof block, 0);
        if (got == -1 && errno == EINTR)
            continue;
        CHECK(got >= 0);
        for (ssize_t i = 0; i < got; i++)
            CHECK(block[i] == pattern(total + i));
        total += got;
        if (!got)
            break;
    }
    CHECK(total == LONG);
    CHECK(!rclose(*(int *)given));
    return NULL;
}

/* Sender, receiver and both rclose under signals. */
static void a_storm_loses_nothing(int listener)
{
    static unsigned char block[LONG];
    for (size_t i = 0; i < LONG; i++)
        block[i] = pattern(i);
    install(0);
    for (int round = 0; round < ROUNDS; round++) {
        struct pair both = connected(listener);
        struct storm near, far;
        pthread_t receiver;
        CHECK(!pthread_create(&receiver, NULL, receive_all, &both.near));
        begin(&near, receiver, 1);
        begin(&far, pthread_self(), 0);
        for (size_t done = 0; done < LONG;) {
            ssize_t sent = rsend(both.far, block + done, LONG - done, 0);
            CHECK(sent > 0 || (sent == -1 && errno == EINTR));
            done += sent > 0 ? sent : 0;
        }
        CHECK(!rclose(both.far));
        end(&far);
        /* The receiver's thread is a target until it is joined. */
        end(&near);
        CHECK(!pthread_join(receiver, NULL));
    }
    CHECK(handled > ROUNDS);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    address = words[1];
    int listener = listening();
    struct pair both = connected(listener);
    with_restart(both);
    without_restart(listener, both);
    CHECK(!rclose(both.far) && !rclose(both.near));
    datagrams();
    two_threads_of_one_socket(listener);
    a_storm_loses_nothing(listener);
    CHECK(!rclose(listener));
    puts("ok");
    return 0;
}
