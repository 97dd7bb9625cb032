/* Interest lists of sockets and other descriptors: repoll_create, repoll_ctl, repoll_wait. They are looked up by name: only
 * the newest headers declare them. The argument is an address of the device. Says "ok" and ends with 0. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7460, LIMIT_MS = 20000, SHORT_MS = 40, MOST = 8 };
#include "streams.h"

static int (*create)(int);
static int (*control)(int, int, int, struct epoll_event *);
static int (*wait_for)(int, struct epoll_event *, int, int);
static long now_ms(void)
{
    struct timespec now;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &now));
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int change(int list, int operation, int fd, uint32_t events, uint64_t tag)
{
    struct epoll_event event = { .events = events, .data.u64 = tag };
    return control(list, operation, fd, &event);
}

/* Waits until exactly this is ready, with these events. */
static void expect(int list, uint64_t tag, uint32_t events)
{
    struct epoll_event ready[MOST];
    CHECK(wait_for(list, ready, MOST, LIMIT_MS) == 1);
    CHECK(ready[0].data.u64 == tag);
    CHECK(ready[0].events == events);
}

static void expect_nothing(int list)
{
    struct epoll_event ready[MOST];
    long began = now_ms();
    CHECK(wait_for(list, ready, MOST, 0) == 0);
    CHECK(wait_for(list, ready, MOST, SHORT_MS) == 0);
    CHECK(now_ms() - began >= SHORT_MS);
}

#define FAILS_WITH(call, error) CHECK((errno = 0, call) == -1 && errno == (error))

/* A connection, whose request the list reports. */
static struct pair connected(int list, int listener)
{
    struct pair both;
    pthread_t thread;
    CHECK(!change(list, EPOLL_CTL_ADD, listener, EPOLLIN, 1));
    expect_nothing(list);
    CHECK(!pthread_create(&thread, NULL, connect_one, &both.far));
    expect(list, 1, EPOLLIN);
    CHECK((both.near = raccept(listener, NULL, NULL)) >= 0);
    CHECK(!pthread_join(thread, NULL));
    CHECK(!control(list, EPOLL_CTL_DEL, listener, NULL));
    return both;
}

static void take(int fd, const char *wanted)
{
    char text[8];
    ssize_t length = strlen(wanted);
    CHECK(rrecv(fd, text, sizeof text, 0) == length && !memcmp(text, wanted, length));
}

static void wrong_calls(int list, int socket)
{
    struct epoll_event event = { .events = EPOLLIN };
    int pipes[2];
    CHECK(!pipe(pipes));
    FAILS_WITH(create(1), EINVAL);
    FAILS_WITH(control(list, EPOLL_CTL_ADD, socket, NULL), EFAULT);
    FAILS_WITH(control(list, EPOLL_CTL_MOD, socket, &event), ENOENT);
    FAILS_WITH(control(list, EPOLL_CTL_DEL, socket, NULL), ENOENT);
    FAILS_WITH(control(list, 77, socket, &event), EINVAL);
    FAILS_WITH(control(list, EPOLL_CTL_ADD, list, &event), EINVAL);
    FAILS_WITH(control(list, EPOLL_CTL_ADD, -1, &event), EBADF);
    FAILS_WITH(control(pipes[0], EPOLL_CTL_ADD, socket, &event), EINVAL);
    FAILS_WITH(control(-1, EPOLL_CTL_ADD, socket, &event), EBADF);
    CHECK(!control(list, EPOLL_CTL_ADD, socket, &event));
    FAILS_WITH(control(list, EPOLL_CTL_ADD, socket, &event), EEXIST);
    CHECK(!control(list, EPOLL_CTL_DEL, socket, NULL));
    event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    FAILS_WITH(control(list, EPOLL_CTL_ADD, socket, &event), EINVAL);
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    CHECK(!control(list, EPOLL_CTL_ADD, socket, &event));
    FAILS_WITH(control(list, EPOLL_CTL_MOD, socket, &event), EINVAL);
    CHECK(!control(list, EPOLL_CTL_DEL, socket, (struct epoll_event *)1)); /* which is not read */
    FAILS_WITH(wait_for(list, &event, 0, 0), EINVAL);
    FAILS_WITH(wait_for(list, NULL, 1, 0), EFAULT);
    FAILS_WITH(wait_for(pipes[0], &event, 1, 0), EINVAL);
    int other = create(EPOLL_CLOEXEC);
    CHECK(other >= 0 && rfcntl(other, F_GETFD) == FD_CLOEXEC);
    FAILS_WITH(control(list, EPOLL_CTL_ADD, other, &event), EINVAL);
    CHECK(!rclose(other) && !close(pipes[0]) && !close(pipes[1]));
    FAILS_WITH(wait_for(other, &event, 1, 0), EBADF);
}

static void levels(int list, struct pair both)
{
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLIN | EPOLLRDHUP, 2));
    expect_nothing(list);
    CHECK(rsend(both.far, "one", 3, 0) == 3);
    expect(list, 2, EPOLLIN);
    expect(list, 2, EPOLLIN); /* as long as it lasts */
    CHECK(!change(list, EPOLL_CTL_MOD, both.near, EPOLLIN | EPOLLOUT, 3));
    expect(list, 3, EPOLLIN | EPOLLOUT);
    take(both.near, "one");
    expect(list, 3, EPOLLOUT);
    CHECK(!change(list, EPOLL_CTL_MOD, both.near, EPOLLRDNORM, 4));
    expect_nothing(list);
    CHECK(rsend(both.far, "two", 3, 0) == 3);
    expect(list, 4, EPOLLRDNORM);
    take(both.near, "two");
    CHECK(!control(list, EPOLL_CTL_DEL, both.near, NULL));
}

/* With room for one event nobody is passed over: neither of two sockets, nor a pipe. */
static void turns(int list, struct pair both)
{
    struct epoll_event ready;
    int pipes[2], seen = 0;
    CHECK(!pipe(pipes) && write(pipes[1], "x", 1) == 1);
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLOUT, 0));
    CHECK(!change(list, EPOLL_CTL_ADD, both.far, EPOLLOUT, 1));
    CHECK(!change(list, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2));
    for (int turn = 0; turn < 4; turn++) {
        CHECK(wait_for(list, &ready, 1, LIMIT_MS) == 1);
        seen |= 1 << ready.data.u64;
    }
    CHECK(seen == 7);
    struct epoll_event all[MOST];
    CHECK(wait_for(list, all, MOST, LIMIT_MS) == 3);
    CHECK(!control(list, EPOLL_CTL_DEL, both.near, NULL) && !control(list, EPOLL_CTL_DEL, both.far, NULL));
    expect(list, 2, EPOLLIN);
    CHECK(!close(pipes[0]) && !close(pipes[1])); /* which takes it out */
    expect_nothing(list);
}

struct later {
    int list, fd;
    uint32_t events;
    pthread_t waiter;
};

static void *arm_later(void *given)
{
    struct later *later = given;
    sleep_ms(5 * SHORT_MS);
    CHECK(!change(later->list, EPOLL_CTL_MOD, later->fd, later->events, 6));
    return NULL;
}

static void *speak_later(void *given)
{
    struct later *later = given;
    sleep_ms(5 * SHORT_MS);
    CHECK(rsend(later->fd, "late", 4, 0) == 4);
    return NULL;
}

/* An event that is reported once, until the interest is changed; the change, in another thread, wakes the call that waits
 * well before its longest sleep is over. */
static void once(int list, struct pair both)
{
    struct later later = { .list = list, .fd = both.near, .events = EPOLLIN | EPOLLONESHOT };
    pthread_t thread;
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLIN | EPOLLONESHOT, 5));
    CHECK(rsend(both.far, "abc", 3, 0) == 3);
    expect(list, 5, EPOLLIN);
    expect_nothing(list);
    for (int turn = 0; turn < 5; turn++) {
        CHECK(!pthread_create(&thread, NULL, arm_later, &later));
        expect(list, 6, EPOLLIN);
        CHECK(!pthread_join(thread, NULL));
        expect_nothing(list);
    }
    take(both.near, "abc");
    CHECK(!control(list, EPOLL_CTL_DEL, both.near, NULL));
    /* A message wakes it, too. */
    later.fd = both.far;
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLIN | EPOLLET, 7));
    CHECK(!pthread_create(&thread, NULL, speak_later, &later));
    expect(list, 7, EPOLLIN);
    CHECK(!pthread_join(thread, NULL));
    take(both.near, "late");
    CHECK(!control(list, EPOLL_CTL_DEL, both.near, NULL));
}

static void ignore(int number)
{
    (void)number;
}

static void *signal_later(void *given)
{
    struct later *later = given;
    sleep_ms(5 * SHORT_MS);
    CHECK(!pthread_kill(later->waiter, SIGUSR1));
    return NULL;
}

static void *close_later(void *given)
{
    struct later *later = given;
    sleep_ms(5 * SHORT_MS);
    CHECK(!rclose(later->list));
    return NULL;
}

/* A handler of a signal ends a call that waits, and so does the end of the list. */
static void ends(struct pair both)
{
    struct sigaction how = { .sa_handler = ignore, .sa_flags = SA_RESTART };
    struct epoll_event ready;
    struct later later = { .list = create(0), .waiter = pthread_self() };
    pthread_t thread;
    CHECK(later.list >= 0 && !sigaction(SIGUSR1, &how, NULL));
    CHECK(!change(later.list, EPOLL_CTL_ADD, both.near, EPOLLIN, 8));
    CHECK(!pthread_create(&thread, NULL, signal_later, &later));
    FAILS_WITH(wait_for(later.list, &ready, 1, LIMIT_MS), EINTR);
    CHECK(!pthread_join(thread, NULL));
    CHECK(!pthread_create(&thread, NULL, close_later, &later));
    FAILS_WITH(wait_for(later.list, &ready, 1, LIMIT_MS), EBADF);
    CHECK(!pthread_join(thread, NULL));
}

static void datagrams(int list)
{
    struct sockaddr_in own = at(PORT + 1), from;
    socklen_t length = sizeof from;
    int first = rsocket(AF_INET, SOCK_DGRAM, 0), second = rsocket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    CHECK(first >= 0 && second >= 0 && !rbind(first, (struct sockaddr *)&own, sizeof own));
    CHECK(!change(list, EPOLL_CTL_ADD, first, EPOLLIN, 9));
    expect_nothing(list);
    CHECK(rsendto(second, "datagram", 8, 0, (struct sockaddr *)&own, sizeof own) == 8);
    expect(list, 9, EPOLLIN);
    CHECK(rrecvfrom(first, text, 8, 0, (struct sockaddr *)&from, &length) == 8);
    expect_nothing(list);
    CHECK(!rclose(first) && !rclose(second));
}

static long used_ms(void)
{
    struct timespec used;
    CHECK(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used));
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* Nothing that is waited for comes, and the wait sleeps. */
static void expect_sleep(int list)
{
    struct epoll_event ready;
    long used = used_ms();
    CHECK(wait_for(list, &ready, 1, 20 * SHORT_MS) == 0);
    CHECK(used_ms() - used < 10 * SHORT_MS);
}

/* A request for a connection waits at a listener, and the list does not wait for it. */
static void unwanted(int listener)
{
    enum { ASKING = BACKLOG + 1 };
    int list = create(0), near[ASKING], far[ASKING];
    struct sockaddr_in peer = at(PORT);
    CHECK(list >= 0 && !change(list, EPOLL_CTL_ADD, listener, EPOLLOUT, 12));
    for (int i = 0; i < ASKING; i++) {
        far[i] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(far[i] >= 0 && (!rconnect(far[i], (struct sockaddr *)&peer, sizeof peer) || errno == EINPROGRESS));
    }
    /* The last one finds no room. */
    struct pollfd request = { .fd = listener, .events = POLLIN };
    for (int left = LIMIT_MS; rpoll(&request, 1, 0) != 1 || poll(&request, 1, 0) != 1; left--) {
        CHECK(left > 0);
        sleep_ms(1);
    }
    expect_sleep(list);
    for (int i = 0; i < ASKING; i++)
        CHECK((near[i] = raccept(listener, NULL, NULL)) >= 0);
    for (int i = 0; i < ASKING; i++) {
        struct pollfd connects = { .fd = far[i], .events = POLLOUT };
        CHECK(rpoll(&connects, 1, LIMIT_MS) == 1 && connects.revents == POLLOUT);
        CHECK(!rclose(near[i]) && !rclose(far[i]));
    }
    CHECK(!rclose(list));
}

static void *wait_on(void *given)
{
    struct epoll_event ready;
    wait_for(*(int *)given, &ready, 1, -1);
    return NULL;
}

/* A thread is cancelled while it waits for a datagram; later waits sleep. */
static void cancelled(void)
{
    struct sockaddr_in own = at(PORT + 2);
    int first = rsocket(AF_INET, SOCK_DGRAM, 0), second = rsocket(AF_INET, SOCK_DGRAM, 0), list = create(0);
    char text[8];
    pthread_t thread;
    CHECK(first >= 0 && second >= 0 && list >= 0 && !rbind(first, (struct sockaddr *)&own, sizeof own));
    CHECK(!change(list, EPOLL_CTL_ADD, first, EPOLLIN, 13));
    for (int round = 0; round < 3; round++) {
        CHECK(!pthread_create(&thread, NULL, wait_on, &list));
        sleep_ms(SHORT_MS);
        CHECK(!pthread_cancel(thread) && !pthread_join(thread, NULL));
    }
    CHECK(rsendto(second, "datagram", 8, 0, (struct sockaddr *)&own, sizeof own) == 8);
    expect(list, 13, EPOLLIN);
    CHECK(rrecv(first, text, 8, 0) == 8);
    expect_sleep(list);
    CHECK(!rclose(first));
    FAILS_WITH(control(list, EPOLL_CTL_DEL, first, NULL), EBADF);
    CHECK(!rclose(second) && !rclose(list));
}

static int must_end;

static void *look_on(void *given)
{
    struct epoll_event ready;
    while (!__atomic_load_n(&must_end, __ATOMIC_RELAXED))
        CHECK(wait_for(*(int *)given, &ready, 1, 0) == 0);
    return NULL;
}

/* A child of a fork has no socket and no list of its parent, also if a thread of the parent looks at them. */
static void forked(int listener)
{
    int list = create(0);
    pthread_t thread;
    CHECK(list >= 0 && !change(list, EPOLL_CTL_ADD, listener, EPOLLIN, 14));
    CHECK(!pthread_create(&thread, NULL, look_on, &list));
    for (int round = 0; round < 20; round++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            struct epoll_event ready;
            alarm(LIMIT_MS / 1000);
            FAILS_WITH(wait_for(list, &ready, 1, LIMIT_MS), EINVAL);
            FAILS_WITH(rclose(listener), EBADF);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    }
    __atomic_store_n(&must_end, 1, __ATOMIC_RELAXED);
    CHECK(!pthread_join(thread, NULL) && !rclose(list));
}

/* A list that was closed by close(2): its number is a socket's or another list's then. */
static void closed_plainly(int listener)
{
    int list = create(0), held[MOST], count = 0;
    struct epoll_event ready;
    CHECK(list >= 0 && !change(list, EPOLL_CTL_ADD, listener, EPOLLIN, 15));
    /* No lower number is free. */
    do {
        CHECK(count < MOST);
        CHECK((held[count] = dup(0)) >= 0);
    } while (held[count++] < list);
    CHECK(!close(list));
    CHECK(rsocket(AF_INET, SOCK_STREAM, 0) == list);
    while (count > 0)
        CHECK(!close(held[--count]));
    CHECK(!rfcntl(list, F_SETFL, O_NONBLOCK) && rfcntl(list, F_GETFL) & O_NONBLOCK);
    FAILS_WITH(wait_for(list, &ready, 1, 0), EINVAL);
    CHECK(!rclose(list));
    FAILS_WITH(rclose(list), EBADF);
    list = create(0);
    CHECK(list >= 0 && !close(list) && create(0) == list && !rclose(list));
}

/* One side ends its direction; then data is left at the end of the connection, which the list does not wait for. */
static void half_closed(int list, int listener)
{
    struct pair both = connected(list, listener);
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLRDHUP, 16));
    expect_nothing(list);
    CHECK(rsend(both.far, "left", 4, 0) == 4 && !rshutdown(both.far, SHUT_WR));
    expect(list, 16, EPOLLRDHUP);
    CHECK(!change(list, EPOLL_CTL_MOD, both.near, 0, 17));
    expect_nothing(list);
    CHECK(!rclose(both.far));
    expect(list, 17, EPOLLHUP);
    CHECK(!change(list, EPOLL_CTL_MOD, both.near, EPOLLIN, 18));
    expect(list, 18, EPOLLIN);
    take(both.near, "left");
    expect(list, 18, EPOLLIN | EPOLLHUP);
    CHECK(!rclose(both.near));
}

/* The end of the peer; then a closed socket is in no list, and neither is a later one of the same number. 0 if a thread
 * of the library has taken the number for a descriptor of its own. */
static int hang_up(int list, struct pair both)
{
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLIN | EPOLLRDHUP, 10));
    CHECK(!rclose(both.far));
    expect(list, 10, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
    CHECK(!rclose(both.near));
    expect_nothing(list);
    /* Sockets take the lowest numbers that are free. */
    int next[MOST], made = 0;
    do {
        CHECK((next[made] = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    } while (next[made++] != both.near && made < MOST);
    int is_same = next[made - 1] == both.near;
    if (!is_same) {
        while (made > 0)
            CHECK(!rclose(next[--made]));
        return 0;
    }
    expect_nothing(list);
    FAILS_WITH(control(list, EPOLL_CTL_DEL, both.near, NULL), ENOENT);
    CHECK(!change(list, EPOLL_CTL_ADD, both.near, EPOLLOUT, 11));
    expect(list, 11, EPOLLHUP); /* not connected */
    while (made > 0)
        CHECK(!rclose(next[--made]));
    return 1;
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    address = arguments[1];
    void *library = dlopen("librdmacm.so.1", RTLD_NOW);
    CHECK(library);
    *(void **)&create = dlsym(library, "repoll_create");
    *(void **)&control = dlsym(library, "repoll_ctl");
    *(void **)&wait_for = dlsym(library, "repoll_wait");
    CHECK(create && control && wait_for);
    int listener = listening(), list = create(0);
    CHECK(list >= 0);
    wrong_calls(list, listener);
    struct pair both = connected(list, listener);
    levels(list, both);
    turns(list, both);
    once(list, both);
    ends(both);
    datagrams(list);
    for (int attempt = 0; !hang_up(list, both); attempt++) {
        CHECK(attempt < 5);
        both = connected(list, listener);
    }
    half_closed(list, listener);
    unwanted(listener);
    cancelled();
    forked(listener);
    closed_plainly(listener);
    CHECK(!rclose(list) && !rclose(listener));
    puts("ok");
    return 0;
}
