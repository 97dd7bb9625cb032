/* A program whose device fails because its server is stopped, with a write under way: nothing that it destroys is gone
 * before the device is known to write nothing more. Argument: the process of the server. Says "ok" and ends with 0. */
#include <signal.h>
#include <unistd.h>

#include "connect.h"

enum { BYTES = 4096, REPORT = 12, LIMIT = 30 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Repeats a call while the device may write. */
#define UNTIL_DONE(call) \
    do { \
        double end = seconds() + LIMIT; \
        int error; \
        while ((error = (call)) == EBUSY) { \
            CHECK(seconds() < end); \
            usleep(1000); \
        } \
        CHECK(!error); \
    } while (0)

int main(int count, char **words)
{
    CHECK(count == 2);
    pid_t server = atoi(words[1]);
    struct joined made = open_joined();
    char *from = aligned_alloc(BYTES, BYTES), *to = aligned_alloc(BYTES, BYTES);
    CHECK(from && to);
    memset(from, 'X', BYTES);
    struct ibv_mr *source = ibv_reg_mr(made.pd, from, BYTES, 0);
    struct ibv_mr *target = ibv_reg_mr(made.pd, to, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_mw *window = ibv_alloc_mw(made.pd, IBV_MW_TYPE_1);
    CHECK(source && target && window);

    CHECK(!kill(server, SIGSTOP));
    struct ibv_sge piece = { .addr = (uintptr_t)from, .length = BYTES, .lkey = source->lkey };
    struct ibv_send_wr write = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = (uintptr_t)to, .rkey = target->rkey } };
    struct ibv_send_wr *bad;
    CHECK(!ibv_post_send(made.one, &write, &bad));
    double begin = seconds();
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(made.context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    CHECK(seconds() - begin < REPORT);

    /* One limit for all of them, so that a program that destroys all before it ends does end. */
    begin = seconds();
    CHECK(ibv_dereg_mr(target) == EBUSY && ibv_dereg_mr(source) == EBUSY && ibv_dealloc_mw(window) == EBUSY);
    CHECK(ibv_destroy_qp(made.one) == EBUSY && ibv_destroy_qp(made.two) == EBUSY);
    CHECK(ibv_close_device(made.context) == -1 && errno == EBUSY);
    CHECK(seconds() - begin < LIMIT);

    CHECK(!kill(server, SIGCONT));
    UNTIL_DONE(ibv_dereg_mr(target));
    memset(to, 'U', BYTES);
    UNTIL_DONE(ibv_dealloc_mw(window));
    UNTIL_DONE(ibv_dereg_mr(source));
    UNTIL_DONE(ibv_destroy_qp(made.one));
    UNTIL_DONE(ibv_destroy_qp(made.two));
    usleep(500000);
    for (int i = 0; i < BYTES; i++)
        CHECK(to[i] == 'U');
    CHECK(!ibv_destroy_cq(made.cq) && !ibv_dealloc_pd(made.pd) && !ibv_close_device(made.context));
    puts("ok");
    return 0;
}
