/* What programs do around the device, and must still be able to use it: daemons close all descriptors that they do not
 * know and drop their privileges, first threads end, threads have small stacks, signals are waited for.
 * Arguments: closefrom, sigwait, stack, privileges, undumpable or exit. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors of the program that take the numbers of those that were closed. */
enum { LOGS = 40 };

static struct ibv_context *context;

static void *list_devices(void *unused)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    ibv_free_device_list(list);
    return unused;
}

static void *open_device(void *unused)
{
    union ibv_gid gid;
    CHECK(context = open_first(&gid));
    return unused;
}

/* Writes from one queue pair to another. */
static void *use(void *unused)
{
    static char memory[64];
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(one && two && mr);
    join(one, two, &gid);
    struct ibv_sge data = { (uintptr_t)"ringside", 8, 0 };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.rdma = { (uintptr_t)memory, mr->rkey } }, *bad;
    CHECK(!ibv_post_send(one, &write, &bad));
    CHECK(next(cq).status == IBV_WC_SUCCESS && !memcmp(memory, "ringside", 8));
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    return unused;
}

static void with_small_stack(void *(*run)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 64 << 10));
    CHECK(!pthread_create(&thread, &attributes, run, NULL) && !pthread_join(thread, NULL));
}

static void *last_thread(void *first)
{
    CHECK(!pthread_join(*(pthread_t *)first, NULL));
    use(NULL);
    puts("ok");
    exit(0);
}

/* The library keeps no descriptor of a program that only looked for devices: no file of the program gets its number. */
static void after_closefrom(void)
{
    int logs[LOGS];
    list_devices(NULL);
    closefrom(3);
    for (int i = 0; i < LOGS; i++)
        CHECK((logs[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600)) >= 0);
    list_devices(NULL);
    open_device(NULL);
    use(NULL);
    for (int i = 0; i < LOGS; i++) {
        struct stat about;
        CHECK(!fstat(logs[i], &about) && about.st_size == 0);
    }
}

int main(int count, char **words)
{
    CHECK(count == 2);
    if (!strcmp(words[1], "closefrom")) {
        after_closefrom();
    } else if (!strcmp(words[1], "sigwait")) {
        sigset_t waited;
        int found = 0;
        open_device(NULL);
        sigemptyset(&waited);
        sigaddset(&waited, SIGTERM);
        CHECK(!pthread_sigmask(SIG_BLOCK, &waited, NULL) && !kill(getpid(), SIGTERM));
        CHECK(!sigwait(&waited, &found) && found == SIGTERM);
        use(NULL);
    } else if (!strcmp(words[1], "stack")) {
        with_small_stack(list_devices);
        with_small_stack(open_device);
        with_small_stack(use);
    } else if (!strcmp(words[1], "privileges")) {
        open_device(NULL);
        CHECK(geteuid() != 0 || (!setgid(65534) && !setuid(65534)));
        use(NULL);
    } else if (!strcmp(words[1], "undumpable")) {
        open_device(NULL);
        CHECK(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
        use(NULL);
    } else {
        static pthread_t first;
        pthread_t last;
        CHECK(!strcmp(words[1], "exit"));
        open_device(NULL);
        first = pthread_self();
        CHECK(!pthread_create(&last, NULL, last_thread, &first));
        pthread_exit(NULL);
    }
    puts("ok");
    return 0;
}
