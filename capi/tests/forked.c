/* A program that starts others while it has the device open and data is on its way: by fork and exec, by vfork, by
 * posix_spawn and by the shell. The others inherit no descriptor of the library, and the program goes on.
 * Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 256 << 10, ROUNDS = 8, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

extern char **environ;

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *one, *two;
static struct ibv_mr *from_mr, *to_mr;
static unsigned char *from, *to;

/* The program that is started: nothing but the standard descriptors is open, and the device is still listed. */
static int child(void)
{
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || number <= 2 || number == dirfd(folder))
            continue;
        char path[64], target[512] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        CHECK(readlink(path, target, sizeof target - 1) > 0);
        fprintf(stderr, "inherited: %d is %s\n", number, target);
        return 1;
    }
    CHECK(!closedir(folder));
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    ibv_free_device_list(list);
    return 0;
}

static pid_t by_fork(char **words)
{
    pid_t started = fork();
    if (!started) {
        execv("/proc/self/exe", words);
        _exit(127);
    }
    return started;
}

static pid_t by_vfork(char **words)
{
    pid_t started = vfork();
    if (!started) {
        execv("/proc/self/exe", words);
        _exit(127);
    }
    return started;
}

static pid_t by_spawn(char **words)
{
    pid_t started = -1;
    return posix_spawn(&started, "/proc/self/exe", NULL, NULL, words, environ) ? -1 : started;
}

static pid_t by_shell(char **words)
{
    pid_t started = fork();
    if (!started) {
        execl("/bin/sh", "sh", "-c", "exec \"$0\" \"$1\"", words[0], words[1], NULL);
        _exit(127);
    }
    return started;
}

/* A child that runs no other program, and uses nothing of its parent's. */
static pid_t without_exec(char **words)
{
    pid_t started = fork();
    if (!started)
        _exit(words ? 0 : 1);
    return started;
}

static void start_write(unsigned round)
{
    memset(from, (int)(round + 1), BYTES);
    struct ibv_sge data = { (uintptr_t)from, BYTES, from_mr->lkey };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)to, to_mr->rkey } }, *bad;
    CHECK(!ibv_post_send(one, &write, &bad));
}

static void set_up(struct ibv_context *context, union ibv_gid *gid)
{
    CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK((one = ibv_create_qp(pd, &init)) && (two = ibv_create_qp(pd, &init)));
    join(one, two, gid);
    CHECK((from = malloc(BYTES)) && (to = malloc(BYTES)));
    CHECK((from_mr = ibv_reg_mr(pd, from, BYTES, ACCESS)) && (to_mr = ibv_reg_mr(pd, to, BYTES, ACCESS)));
}

int main(int count, char **words)
{
    static pid_t (*const ways[])(char **) = { by_fork, by_vfork, by_spawn, by_shell, without_exec };
    if (count == 2)
        return child();
    union ibv_gid gid;
    closefrom(3); /* what the program itself was started with */
    CHECK(!ibv_fork_init());
    struct ibv_context *context = open_first(&gid);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct rdma_event_channel *events = rdma_create_event_channel();
    CHECK(channel && events);
    set_up(context, &gid);
    char *again[] = { words[0], "child", NULL };
    for (unsigned round = 0; round < ROUNDS * sizeof ways / sizeof *ways; round++) {
        int status;
        start_write(round);
        pid_t started = ways[round / ROUNDS](again);
        CHECK(started > 0);
        /* Pages that the child had in common are the parent's own from now on. */
        CHECK(next(cq).status == IBV_WC_SUCCESS && !memcmp(from, to, BYTES) && to[0] == round + 1);
        start_write(round + 100);
        CHECK(next(cq).status == IBV_WC_SUCCESS && !memcmp(from, to, BYTES) && to[0] == round + 101);
        CHECK(waitpid(started, &status, 0) == started);
        if (status)
            fprintf(stderr, "round %u: status %#x\n", round, status);
        CHECK(!status);
    }
    rdma_destroy_event_channel(events);
    CHECK(!ibv_destroy_comp_channel(channel));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_dereg_mr(from_mr) && !ibv_dereg_mr(to_mr));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    free(from);
    free(to);
    puts("ok");
    return 0;
}
