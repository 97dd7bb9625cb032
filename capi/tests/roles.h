/* Programs of random connections: both sides in one process, or one of them. */
#ifndef ROLES_H
#define ROLES_H
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { CLIENTS = 3 };

static struct sockaddr_in own;
static unsigned seed, rounds;
/* Set by the server: it listens; by the last connection: the clients have ended. */
static atomic_int is_listening, is_last;

/* Runs the clients in a thread each, and then `last`, which tells the server. */
static void ask_all(void *(*ask)(void *), void (*last)(void))
{
    pthread_t clients[CLIENTS];
    for (uintptr_t i = 0; i < CLIENTS; i++)
        CHECK(!pthread_create(&clients[i], NULL, ask, (void *)i));
    for (int i = 0; i < CLIENTS; i++)
        CHECK(!pthread_join(clients[i], NULL));
    last();
}

/* The arguments: an address, a seed, rounds of each client, and "server" or "client"; without the last one the
 * process is both. A server alone says "listening" first. */
static int run_roles(int count, char **words, int port, void *(*serve)(void *), void *(*ask)(void *),
    void (*last)(void))
{
    pthread_t server;
    CHECK(count == 4 || count == 5);
    int serves = count == 4 || !strcmp(words[4], "server"), asks = count == 4 || !serves;
    own = (struct sockaddr_in) { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, words[1], &own.sin_addr) == 1);
    seed = strtoul(words[2], NULL, 10);
    rounds = strtoul(words[3], NULL, 10);
    if (serves)
        CHECK(!pthread_create(&server, NULL, serve, NULL));
    for (int waited = 0; serves && !is_listening; waited++) {
        CHECK(waited < 20000);
        poll(NULL, 0, 1);
    }
    if (!asks)
        puts("listening");
    fflush(stdout);
    if (asks)
        ask_all(ask, last);
    if (serves)
        CHECK(!pthread_join(server, NULL));
    puts("ok");
    return 0;
}

#endif
