/* Queue pairs of a shared receive queue in a process that may have little memory:
 *
 *   little_room addresses   a limit of addresses (ulimit -v)
 *   little_room locked      all memory is locked, and little may be
 *
 * Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "check.h"
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAIRS = 4, SHORT = 4096, LONGER = 3 << 19, LONG = 5 << 20, LOCKABLE = 8 << 20 };

static char memory[LONG];

/* False if this user may not have as much. */
static int limit(int resource, rlim_t bytes)
{
    struct rlimit room;
    CHECK(!getrlimit(resource, &room));
    if (room.rlim_max < bytes)
        return 0;
    room.rlim_cur = bytes;
    CHECK(!setrlimit(resource, &room));
    return 1;
}

/* Root may lock as much as it likes. */
static void drop_right_to_lock(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct rights[2];
    CHECK(!syscall(SYS_capget, &header, rights));
    rights[0].effective &= ~(1u << CAP_IPC_LOCK);
    rights[0].permitted &= ~(1u << CAP_IPC_LOCK);
    CHECK(!syscall(SYS_capset, &header, rights));
}

/* A shared receive queue with receives of this length, the last one of another, and queue pairs that use it. */
static void share(struct ibv_context *context, uint32_t bytes, uint32_t last_bytes)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = 512, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &wanted);
    CHECK(mr && srq);
    struct ibv_sge into = { (uintptr_t)memory, bytes, mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *refused;
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_send_sge = 1 } };
    struct ibv_qp *pairs[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        pairs[i] = ibv_create_qp(pd, &init);
        CHECK(pairs[i]);
        if (i == PAIRS - 2)
            into.length = last_bytes;
        CHECK(!ibv_post_srq_recv(srq, &receive, &refused));
    }
    for (int i = 0; i < PAIRS; i++)
        CHECK(!ibv_destroy_qp(pairs[i]));
    CHECK(!ibv_destroy_srq(srq) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    int locks = !strcmp(words[1], "locked");
    if (!limit(locks ? RLIMIT_MEMLOCK : RLIMIT_AS, locks ? LOCKABLE : (rlim_t)6 << 30)) {
        fputs("not run: the limit of this user is lower\n", stderr);
        puts("ok");
        return 0;
    }
    if (locks)
        drop_right_to_lock();
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0]);
    struct ibv_context *context = ibv_open_device(devices[0]);
    CHECK(context);
    if (locks)
        CHECK(!mlockall(MCL_FUTURE));
    uint32_t longer = locks ? LONGER : LONG;
    share(context, SHORT, SHORT);
    share(context, longer, longer);
    /* With few addresses, one is longer than all places of a queue pair; the last queue pair is made after it. */
    share(context, SHORT, longer);
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
