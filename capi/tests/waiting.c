/* Channels that are destroyed while a thread waits for an event, as rping ends: the thread stays asleep, as in
 * the kernel, until a signal interrupts it. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COMPLETION, CONNECTION, WAITERS };

static struct ibv_comp_channel *completions;
static struct rdma_event_channel *connections;
static volatile int returned[WAITERS], errors[WAITERS];
static atomic_int thread_ids[WAITERS];

/* Waits until a thread sleeps: it is in its call then. */
static void wait_until_asleep(int waiter)
{
    for (int tries = 0; tries < 20000; tries++, usleep(1000)) {
        char path[64], text[512] = "";
        if (!thread_ids[waiter])
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread_ids[waiter]);
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(text, sizeof text, file));
        fclose(file);
        /* The name is in brackets, and the state follows it. */
        const char *state = strrchr(text, ')');
        if (state && state[1] && state[2] == 'S')
            return;
    }
    CHECK(!"asleep");
}

static void *wait_for_completion(void *none)
{
    struct ibv_cq *cq;
    void *context;
    thread_ids[COMPLETION] = gettid();
    CHECK(ibv_get_cq_event(completions, &cq, &context) == -1);
    errors[COMPLETION] = errno;
    returned[COMPLETION] = 1;
    return none;
}

static void *wait_for_connection(void *none)
{
    struct rdma_cm_event *event;
    thread_ids[CONNECTION] = gettid();
    CHECK(rdma_get_cm_event(connections, &event) == -1);
    errors[CONNECTION] = errno;
    returned[CONNECTION] = 1;
    return none;
}

static void interrupted(int signal)
{
    (void)signal;
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    CHECK((completions = ibv_create_comp_channel(context)) && (connections = rdma_create_event_channel()));
    struct sigaction action = { .sa_handler = interrupted };
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[WAITERS];
    CHECK(!pthread_create(&threads[COMPLETION], NULL, wait_for_completion, NULL));
    CHECK(!pthread_create(&threads[CONNECTION], NULL, wait_for_connection, NULL));
    for (int i = 0; i < WAITERS; i++)
        wait_until_asleep(i);
    usleep(100000);
    CHECK(!ibv_destroy_comp_channel(completions));
    rdma_destroy_event_channel(connections);
    usleep(200000);
    for (int i = 0; i < WAITERS; i++) {
        CHECK(!returned[i]);
        /* More than one: the first may find the thread outside its call. */
        for (int tries = 0; tries < 100 && !returned[i]; tries++) {
            CHECK(!pthread_kill(threads[i], SIGUSR1));
            usleep(20000);
        }
        CHECK(!pthread_join(threads[i], NULL) && errors[i] == EINTR);
    }
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
