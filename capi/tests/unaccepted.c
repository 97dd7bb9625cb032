/* Connections that stand before the program calls raccept, and sockets that connect without a call of the program: the
 * argument is an address of the device. Says "ok" and ends with 0. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 7470, LIMIT_MS = 20000, ROUNDS = 3, ROOM = 2, CLIENTS = 4 };
#include "streams.h"
#include "open_descriptors.h"

static int connected(void)
{
    int fd;
    connect_one(&fd);
    return fd;
}

static int asking(void)
{
    struct sockaddr_in peer = at(PORT);
    int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    CHECK(!rconnect(fd, (struct sockaddr *)&peer, sizeof peer) || errno == EINPROGRESS);
    return fd;
}

static void wait_for(int fd, short events)
{
    struct pollfd one = { .fd = fd, .events = events };
    CHECK(rpoll(&one, 1, LIMIT_MS) == 1 && one.revents == events);
}

static void say(int fd, char word)
{
    wait_for(fd, POLLOUT);
    CHECK(rsend(fd, &word, 1, 0) == 1);
}

static void hear(int fd, char word)
{
    char heard = 0;
    wait_for(fd, POLLIN);
    CHECK(rrecv(fd, &heard, 1, 0) == 1 && heard == word);
}

/* One thread connects to its own listener, and accepts after that. */
static void connects_before_it_accepts(void)
{
    int listener = listening(), near = connected(), far;
    CHECK(rsend(near, "early", 5, 0) == 5);
    CHECK(!rfcntl(listener, F_SETFL, O_NONBLOCK));
    far = raccept(listener, NULL, NULL);
    CHECK(far >= 0 && rfcntl(far, F_GETFL) == (O_RDWR | O_NONBLOCK));
    CHECK(!rfcntl(near, F_GETFD) && !rfcntl(listener, F_GETFD) && !rfcntl(far, F_GETFD));
    int closes = rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = connected();
    CHECK(closes >= 0 && rfcntl(closes, F_GETFD) == FD_CLOEXEC && !rclose(closes));
    CHECK(!rfcntl(listener, F_SETFD, FD_CLOEXEC));
    wait_for(listener, POLLIN);
    closes = raccept(listener, NULL, NULL);
    CHECK(closes >= 0 && rfcntl(closes, F_GETFD) == FD_CLOEXEC && !rclose(closes) && !rclose(next));
    char text[6] = "";
    wait_for(far, POLLIN);
    CHECK(rrecv(far, text, sizeof text, 0) == 5 && !strcmp(text, "early"));
    say(far, 'a');
    hear(near, 'a');
    errno = 0;
    CHECK(raccept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    CHECK(!rclose(near) && !rclose(far) && !rclose(listener));
}

/* The peer says something and ends before the program accepts. */
static void ends_before_it_is_accepted(void)
{
    int listener = listening(), near = connected();
    CHECK(rsend(near, "x", 1, 0) == 1 && !rclose(near));
    int far = raccept(listener, NULL, NULL);
    hear(far, 'x');
    char more;
    CHECK(rrecv(far, &more, 1, 0) == 0);
    CHECK(!rclose(far) && !rclose(listener));
}

/* Nothing but raccept is called while a socket connects; then nothing at all. */
static void connects_between_calls(void)
{
    int listener = listening(), near = asking(), far = raccept(listener, NULL, NULL);
    CHECK(far >= 0);
    say(far, 'b');
    hear(near, 'b');
    CHECK(!rclose(far));
    near = (rclose(near), asking());
    /* The descriptor of a listener reports requests that nothing has answered. */
    wait_for(listener, POLLIN);
    sleep_ms(100);
    struct sockaddr_in peer = at(PORT);
    CHECK(!rconnect(near, (struct sockaddr *)&peer, sizeof peer));
    far = raccept(listener, NULL, NULL);
    say(near, 'c');
    hear(far, 'c');
    CHECK(!rclose(near) && !rclose(far) && !rclose(listener));
}

/* More ask than there is room for: the listener has the backlog, and so has the connection manager. It
 * forgets further requests for some seconds. Each is accepted once, in order. */
static void waits_for_room(void)
{
    int listener = listening_for(ROOM), clients[CLIENTS], servers[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = asking();
        if (i < ROOM)
            wait_for(clients[i], POLLOUT);
        else
            sleep_ms(50);
    }
    struct pollfd last = { .fd = clients[ROOM], .events = POLLOUT };
    CHECK(rpoll(&last, 1, 0) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        servers[i] = raccept(listener, NULL, NULL);
        CHECK(servers[i] >= 0);
        /* The one that is accepted makes room for the next, which needs no call of the program. */
        if (i == 0)
            wait_for(clients[ROOM], POLLOUT);
        say(clients[i], (char)('0' + i));
    }
    for (int i = 0; i < CLIENTS; i++)
        hear(servers[i], (char)('0' + i));
    for (int i = 0; i < CLIENTS; i++)
        CHECK(!rclose(clients[i]) && !rclose(servers[i]));
    CHECK(!rclose(listener));
}

/* The listener ends with a connection that was not accepted: the peer learns it. */
static void ends_with_its_listener(void)
{
    int listener = listening(), near = connected();
    CHECK(!rclose(listener));
    char word;
    ssize_t got = rrecv(near, &word, 1, 0);
    CHECK(got == 0 || (got == -1 && errno == ECONNRESET));
    CHECK(!rclose(near));
    /* Its port is free again. */
    CHECK(!rclose(listening()));
}

/* A socket that connects is closed. */
static void is_closed_while_it_connects(void)
{
    enum { CLOSED = 4 };
    /* Those that were asked for before their sockets were closed may need room. */
    int listener = listening_for(CLOSED + 1);
    for (int i = 0; i < CLOSED; i++) {
        int near = asking();
        sleep_ms(i);
        CHECK(!rclose(near));
    }
    int near = connected();
    CHECK(!rclose(near) && !rclose(listener));
}

/* A program closes a socket by close(2): the next one may have its number, and works. */
static void closed_plainly(void)
{
    int old = listening(), fd, near;
    struct sockaddr_in own = at(PORT + 1);
    CHECK(!close(old));
    fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd == old);
    CHECK(!rbind(fd, (struct sockaddr *)&own, sizeof own) && !rlisten(fd, 1));
    near = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(near >= 0 && !rconnect(near, (struct sockaddr *)&own, sizeof own));
    wait_for(fd, POLLIN);
    CHECK((old = raccept(fd, NULL, NULL)) >= 0);
    say(old, 'd');
    hear(near, 'd');
    CHECK(!rclose(near) && !rclose(old) && !rclose(fd));
}

/* Closes a socket by close(2); returns a new one that has its number. */
static int in_place_of(int old, int kind)
{
    int held[64], count = 0, fd;
    do
        CHECK(count < 64 && (held[count] = dup(STDERR_FILENO)) >= 0);
    while (held[count++] < old);
    CHECK(!close(old));
    fd = rsocket(AF_INET, kind, 0);
    CHECK(fd == old);
    while (count)
        CHECK(!close(held[--count]));
    return fd;
}

/* Its peer reads what was sent, and learns the end. */
static void closed_while_connected(void)
{
    int listener = listening(), near = connected(), far = raccept(listener, NULL, NULL), next;
    struct pollfd end = { .fd = far, .events = POLLIN };
    char more;
    CHECK(far >= 0);
    say(near, 'f');
    next = in_place_of(near, SOCK_STREAM);
    hear(far, 'f');
    CHECK(rpoll(&end, 1, LIMIT_MS) == 1);
    ssize_t got = rrecv(far, &more, 1, 0);
    CHECK(got == 0 || (got == -1 && errno == ECONNRESET));
    CHECK(!rclose(next) && !rclose(far) && !rclose(listener));
}

/* Its port is free. A connection that was not accepted ends with its listener. */
static void closed_with_a_port(int kind)
{
    struct sockaddr_in own = at(PORT);
    struct pollfd end = { .events = POLLIN };
    int old = rsocket(AF_INET, kind, 0), next;
    CHECK(old >= 0 && !rbind(old, (struct sockaddr *)&own, sizeof own));
    if (kind == SOCK_STREAM) {
        CHECK(!rlisten(old, BACKLOG));
        end.fd = connected();
    }
    next = in_place_of(old, kind);
    CHECK(!rbind(next, (struct sockaddr *)&own, sizeof own));
    if (kind == SOCK_STREAM) {
        CHECK(!rlisten(next, BACKLOG) && rpoll(&end, 1, LIMIT_MS) == 1);
        CHECK(rrecv(end.fd, &(char){ 0 }, 1, 0) <= 0 && !rclose(end.fd));
    }
    CHECK(!rclose(next));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    address = words[1];
    /* A call that waits without end ends the program. */
    alarm(100);
    int before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        connects_before_it_accepts();
        ends_before_it_is_accepted();
        connects_between_calls();
        waits_for_room();
        ends_with_its_listener();
        is_closed_while_it_connects();
        if (i == 0)
            before = open_descriptors();
    }
    CHECK(open_descriptors() <= before);
    closed_plainly();
    closed_while_connected();
    closed_with_a_port(SOCK_STREAM);
    closed_with_a_port(SOCK_DGRAM);
    puts("ok");
    return 0;
}
