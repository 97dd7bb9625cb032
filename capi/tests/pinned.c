/* The library's threads have the processors and the priority with which the process began, not those of the thread
 * that opens the device. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t opener;

static void *open_pinned(void *unused)
{
    cpu_set_t all, one;
    int first = 0;
    CHECK(!sched_getaffinity(0, sizeof all, &all));
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK(!sched_setaffinity(0, sizeof one, &one));
    struct sched_param priority = { .sched_priority = 1 };
    if (sched_setscheduler(0, SCHED_FIFO, &priority))
        fputs("not run: a priority of real time, which this user may not have\n", stderr);
    opener = gettid();
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0]);
    struct ibv_context *context = ibv_open_device(devices[0]);
    CHECK(context && ibv_create_comp_channel(context) && rdma_create_event_channel());
    /* The threads of both kinds of sockets. */
    struct sockaddr_in own = { .sin_family = AF_INET };
    int stream = rsocket(AF_INET, SOCK_STREAM, 0), datagram = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(stream >= 0 && datagram >= 0);
    CHECK(!rbind(stream, (struct sockaddr *)&own, sizeof own) && !rlisten(stream, 1));
    CHECK(!rbind(datagram, (struct sockaddr *)&own, sizeof own));
    return unused;
}

/* Counts the library's threads that are where the process began, and the others. */
static void look(const cpu_set_t *begun, int *there, int *elsewhere, int tells)
{
    DIR *all = opendir("/proc/self/task");
    CHECK(all);
    *there = *elsewhere = 0;
    for (struct dirent *task; (task = readdir(all));) {
        pid_t number = atoi(task->d_name);
        cpu_set_t its;
        if (!number || number == getpid() || number == opener)
            continue;
        CHECK(!sched_getaffinity(number, sizeof its, &its));
        if (CPU_EQUAL(&its, begun) && sched_getscheduler(number) == SCHED_OTHER) {
            ++*there;
            continue;
        }
        ++*elsewhere;
        char path[99], name[99] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/comm", number);
        FILE *file = fopen(path, "r");
        if (tells && file && fgets(name, sizeof name, file))
            printf("%s: policy %d, %d processors\n", name, sched_getscheduler(number), CPU_COUNT(&its));
        if (file)
            fclose(file);
    }
    closedir(all);
}

int main(void)
{
    cpu_set_t begun;
    pthread_t thread;
    int there, elsewhere, left = 5000;
    CHECK(!sched_getaffinity(0, sizeof begun, &begun));
    CHECK(!pthread_create(&thread, NULL, open_pinned, NULL) && !pthread_join(thread, NULL));
    /* A thread goes there itself when it begins. */
    do {
        usleep(1000);
        look(&begun, &there, &elsewhere, --left == 0);
    } while (left && elsewhere);
    CHECK(!elsewhere && there >= 3);
    puts("ok");
    return 0;
}
