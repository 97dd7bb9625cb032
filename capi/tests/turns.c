/* Calls of several threads in one direction of a stream socket. While one sleeps, a call that must not wait
 * returns, signals and cancellation end one that waits for its turn, and each gets its turn in the end. The
 * argument is an address of the device. Says "ok" and ends with 0. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PORT = 7440, SHORT_MS = 20, ASLEEP_MS = 200, LIMIT_MS = 20000, LONG = 1 << 20 };
#include "streams.h"

static char block[LONG];

static void interrupted(int signal)
{
    (void)signal;
}

/* A call in a thread of its own. */
struct call {
    pthread_t thread;
    int fd, sends;
    size_t length;
    atomic_int is_back;
    ssize_t result;
    int error;
};

static void *make(void *given)
{
    struct call *call = given;
    char into[16];
    call->result = call->sends ? rsend(call->fd, block, call->length, 0) : rrecv(call->fd, into, call->length, 0);
    call->error = errno;
    call->is_back = 1;
    return NULL;
}

static void begin(struct call *call, int fd, int sends, size_t length)
{
    *call = (struct call){ .fd = fd, .sends = sends, .length = length };
    CHECK(!pthread_create(&call->thread, NULL, make, call));
    sleep_ms(ASLEEP_MS);
    CHECK(!call->is_back);
}

static void await(struct call *call)
{
    for (int waited = 0; !call->is_back; waited += SHORT_MS) {
        CHECK(waited < LIMIT_MS);
        sleep_ms(SHORT_MS);
    }
    CHECK(!pthread_join(call->thread, NULL));
}

/* A second call in the direction of one that sleeps. */
static void ends_in_each_way(int fd, int sends)
{
    struct call second;
    char byte;
    ssize_t result = sends ? rsend(fd, block, 1, MSG_DONTWAIT) : rrecv(fd, &byte, 1, MSG_DONTWAIT);
    CHECK(result == -1 && errno == EAGAIN);
    begin(&second, fd, sends, 1);
    for (int sent = 0; !second.is_back; sent++) {
        CHECK(sent < LIMIT_MS / SHORT_MS && !pthread_kill(second.thread, SIGUSR1));
        sleep_ms(SHORT_MS);
    }
    await(&second);
    CHECK(second.result == -1 && second.error == EINTR);
    begin(&second, fd, sends, 1);
    void *end;
    CHECK(!pthread_cancel(second.thread) && !pthread_join(second.thread, &end) && end == PTHREAD_CANCELED);
}

static void of_receivers(struct pair both)
{
    struct call first, second;
    begin(&first, both.near, 0, 1);
    ends_in_each_way(both.near, 0);
    begin(&second, both.near, 0, 1);
    CHECK(rsend(both.far, "12", 2, 0) == 2);
    await(&first);
    await(&second);
    CHECK(first.result == 1 && second.result == 1);
    /* Its own turn ended with the thread that was cancelled in it. */
    begin(&first, both.near, 0, 1);
    CHECK(!pthread_cancel(first.thread) && !pthread_join(first.thread, NULL));
    begin(&second, both.near, 0, 1);
    CHECK(rsend(both.far, "3", 1, 0) == 1);
    await(&second);
    CHECK(second.result == 1);
}

static void of_senders(struct pair both)
{
    size_t sent = 0, received = 0;
    ssize_t more;
    while ((more = rsend(both.near, block, LONG, MSG_DONTWAIT)) > 0)
        sent += more;
    CHECK(more == -1 && errno == EAGAIN);
    struct call first, second;
    begin(&first, both.near, 1, LONG);
    ends_in_each_way(both.near, 1);
    begin(&second, both.near, 1, LONG);
    sent += 2 * LONG;
    while (received < sent) {
        CHECK((more = rrecv(both.far, block, LONG, 0)) > 0);
        received += more;
    }
    await(&first);
    await(&second);
    CHECK(first.result == LONG && second.result == LONG && received == sent);
}

static void bad_counts(struct pair both)
{
    struct iovec vector = { block, 1 };
    CHECK(rreadv(both.near, &vector, -1) == -1 && errno == EINVAL);
    CHECK(rwritev(both.near, &vector, -1) == -1 && errno == EINVAL);
    struct timeval past = { .tv_sec = -1 };
    CHECK(rselect(0, NULL, NULL, NULL, &past) == -1 && errno == EINVAL);
    past = (struct timeval){ .tv_usec = -1 };
    CHECK(rselect(0, NULL, NULL, NULL, &past) == -1 && errno == EINVAL);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    address = words[1];
    struct sigaction how = { .sa_handler = interrupted };
    CHECK(!sigaction(SIGUSR1, &how, NULL));
    struct pair both;
    int listener = listening();
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, connect_one, &both.far));
    CHECK((both.near = raccept(listener, NULL, NULL)) >= 0 && !pthread_join(thread, NULL));
    of_receivers(both);
    of_senders(both);
    bad_counts(both);
    CHECK(!rclose(both.near) && !rclose(both.far) && !rclose(listener));
    puts("ok");
    return 0;
}
