/* Sockets of a process without descriptors: connecting and accepting fail with EMFILE, and go on once there
 * are some. Says "ok" and ends with 0. */
#include "open_descriptors.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SECONDS = 100, MOST = 200, OF_A_SOCKET = 4, OF_MEMORY = 2 };

static int taken[MOST], taken_count;

/* Takes all descriptors but `left`. */
static void exhaust(int left)
{
    int made;
    while ((made = dup(STDIN_FILENO)) >= 0) {
        CHECK(taken_count < MOST);
        taken[taken_count++] = made;
    }
    CHECK(errno == EMFILE);
    while (left--)
        CHECK(!close(taken[--taken_count]));
}

static void give_back(void)
{
    while (taken_count)
        CHECK(!close(taken[--taken_count]));
}

/* A socket that connects, and does not wait. */
static int asking(struct sockaddr_in *to)
{
    int made = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(made >= 0);
    CHECK(!rconnect(made, (struct sockaddr *)to, sizeof(*to)) || errno == EINPROGRESS);
    return made;
}

static void wait_for(int socket, int events, int other)
{
    struct pollfd both[] = { { .fd = socket, .events = events }, { .fd = other } };
    CHECK(rpoll(both, 2, SECONDS * 1000) > 0 && both[0].revents == events);
}

static void talk(int from, int to)
{
    char text[4] = "abc", heard[4];
    wait_for(from, POLLOUT, to);
    CHECK(rsend(from, text, sizeof(text), 0) == sizeof(text));
    wait_for(to, POLLIN, from);
    CHECK(rrecv(to, heard, sizeof(heard), 0) == sizeof(heard) && !memcmp(text, heard, sizeof(text)));
}

static void limit_descriptors(void)
{
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = MOST;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
}

/* A request that has gone when there are descriptors again does not silence the listener. */
static void gone_meanwhile(int listener, struct sockaddr_in *own)
{
    int first = asking(own);
    wait_for(listener, POLLIN, first);
    int second = asking(own);
    struct pollfd request = { .fd = listener, .events = POLLIN };
    CHECK(poll(&request, 1, SECONDS * 1000) == 1);
    exhaust(0);
    int server = raccept(listener, NULL, NULL);
    CHECK(server >= 0);
    wait_for(listener, POLLIN, second);
    CHECK(!rclose(second));
    give_back();
    CHECK(!rfcntl(listener, F_SETFL, O_NONBLOCK));
    for (int left = SECONDS * 10; raccept(listener, NULL, NULL) >= 0; left--)
        CHECK(left > 0);
    CHECK(errno == EAGAIN);
    second = asking(own);
    wait_for(listener, POLLIN, second);
    int last = raccept(listener, NULL, NULL);
    CHECK(last >= 0);
    talk(second, last);
    CHECK(!rclose(first) && !rclose(server) && !rclose(second) && !rclose(last));
}

int main(void)
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7201), .sin_addr.s_addr = inet_addr("10.0.0.1") };
    /* A call that waits without end ends the program. */
    alarm(2 * SECONDS);
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && !rbind(listener, (struct sockaddr *)&own, sizeof(own)) && !rlisten(listener, 1));
    /* The backlog has room for the first. The request of the second waits. */
    int first = asking(&own);
    wait_for(listener, POLLIN, first);
    int client = asking(&own);
    struct pollfd request = { .fd = listener, .events = POLLIN };
    CHECK(poll(&request, 1, SECONDS * 1000) == 1);
    limit_descriptors();
    exhaust(0);
    int server_of_first = raccept(listener, NULL, NULL);
    CHECK(server_of_first >= 0);
    wait_for(listener, POLLIN, client);
    give_back();
    for (int left = 0; left < OF_A_SOCKET; left++) {
        exhaust(left);
        errno = 0;
        CHECK(raccept(listener, NULL, NULL) == -1 && errno == EMFILE);
        wait_for(listener, POLLIN, client);
        give_back();
    }
    int server = raccept(listener, NULL, NULL);
    CHECK(server >= 0);
    talk(client, server);
    talk(server, client);
    talk(first, server_of_first);
    CHECK(!rclose(first) && !rclose(server_of_first));
    /* The same for a socket that connects: it may try again. */
    int before = open_descriptors(), other = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(other >= 0 && !rfcntl(other, F_SETFL, O_NONBLOCK));
    exhaust(1);
    CHECK(rconnect(other, (struct sockaddr *)&own, sizeof(own)) == -1 && errno == EMFILE);
    give_back();
    CHECK(!rconnect(other, (struct sockaddr *)&own, sizeof(own)) || errno == EINPROGRESS);
    wait_for(listener, POLLIN, other);
    int last = raccept(listener, NULL, NULL);
    CHECK(last >= 0);
    talk(other, last);
    CHECK(open_descriptors() - before <= 2 * OF_A_SOCKET + OF_MEMORY);
    CHECK(!rclose(other) && !rclose(last) && !rclose(client) && !rclose(server));
    gone_meanwhile(listener, &own);
    CHECK(!rclose(listener));
    puts("ok");
    return 0;
}
