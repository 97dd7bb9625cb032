/* Contexts that are closed with objects left: peers no longer write into their memory, their numbers are
 * free again, and calls with what is gone are refused. The argument is the number of contexts that are
 * closed one after the other. Says "ok" and ends with 0. */
#include "connect.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

/* A context with one object of each kind. */
struct side {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct ibv_ah *ah;
    struct ibv_mw *mw;
};

static union ibv_gid gid;

static struct side made(void *memory)
{
    struct side made = { .context = open_first(&gid) };
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_ah_attr way = { .is_global = 1, .port_num = 1,
        .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } };
    CHECK(made.channel = ibv_create_comp_channel(made.context));
    CHECK(made.pd = ibv_alloc_pd(made.context));
    CHECK(made.cq = ibv_create_cq(made.context, 16, NULL, made.channel, 0));
    CHECK(made.srq = ibv_create_srq(made.pd, &receives));
    struct ibv_qp_init_attr init = { .send_cq = made.cq, .recv_cq = made.cq, .srq = made.srq,
        .cap = { .max_send_wr = 4, .max_send_sge = 1, .max_inline_data = 16 }, .qp_type = IBV_QPT_RC };
    CHECK(made.qp = ibv_create_qp(made.pd, &init));
    CHECK(made.mr = ibv_reg_mr(made.pd, memory, PAGE, ACCESS));
    CHECK(made.ah = ibv_create_ah(made.pd, &way));
    CHECK(made.mw = ibv_alloc_mw(made.pd, IBV_MW_TYPE_1));
    return made;
}

static enum ibv_wc_status write_to(struct side *from, void *to, uint32_t key)
{
    struct ibv_sge data = { (uintptr_t)"ringside", 8, 0 };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = (uintptr_t)to, .rkey = key } }, *bad;
    CHECK(!ibv_post_send(from->qp, &write, &bad));
    return next(from->cq).status;
}

/* Its own queue holds an event that was read and not acknowledged when it is closed. */
static void left_with_an_event(struct side *side)
{
    struct pollfd one = { .fd = side->channel->fd, .events = POLLIN };
    struct ibv_cq *cq;
    void *program;
    CHECK(!ibv_req_notify_cq(side->cq, 0));
    struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
    struct ibv_sge data = { (uintptr_t)"ringside", 8, 0 };
    struct ibv_send_wr send = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
    CHECK(!ibv_modify_qp(side->qp, &failed, IBV_QP_STATE));
    CHECK(!ibv_post_send(side->qp, &send, &bad));
    CHECK(poll(&one, 1, SECONDS * 1000) == 1 && !ibv_get_cq_event(side->channel, &cq, &program));
    CHECK(!ibv_close_device(side->context));
}

static void refused_afterwards(struct side *side)
{
    CHECK(ibv_destroy_qp(side->qp) == EINVAL && ibv_destroy_srq(side->srq) == EINVAL);
    CHECK(ibv_destroy_cq(side->cq) == EINVAL && ibv_dereg_mr(side->mr) == EINVAL);
    CHECK(ibv_destroy_ah(side->ah) == EINVAL && ibv_dealloc_pd(side->pd) == EINVAL);
    CHECK(ibv_close_device(side->context) == -1 && errno == EINVAL);
    CHECK(!ibv_destroy_comp_channel(side->channel));
}

/* Queue pairs that are destroyed, reset and moved to the error state, and none of their queues is polled. */
static void unpolled(struct side *side, int rounds)
{
    struct ibv_cq *cqs[2];
    struct ibv_qp *resets;
    CHECK(cqs[0] = ibv_create_cq(side->context, 16, NULL, NULL, 0));
    CHECK(cqs[1] = ibv_create_cq(side->context, 16, NULL, NULL, 0));
    struct ibv_qp_init_attr init = { .send_cq = cqs[0], .recv_cq = cqs[1], .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK(resets = ibv_create_qp(side->pd, &init));
    for (int round = 0; round < rounds; round++) {
        struct ibv_qp *qp = ibv_create_qp(side->pd, &init);
        CHECK(qp && !ibv_destroy_qp(qp));
        to_init(resets, 0);
        struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
        CHECK(round % 2 || !ibv_modify_qp(resets, &failed, IBV_QP_STATE));
        CHECK(!ibv_modify_qp(resets, &reset, IBV_QP_STATE));
    }
    CHECK(!ibv_destroy_qp(resets) && !ibv_destroy_cq(cqs[0]) && !ibv_destroy_cq(cqs[1]));
}

int main(int count, char **arguments)
{
    CHECK(count == 2 && !ibv_fork_init());
    int rounds = atoi(arguments[1]);
    int pages = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, pages, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct side stays = made(memory + PAGE), closed = made(memory);
    uint32_t key = closed.mr->rkey;
    join(stays.qp, closed.qp, &gid);
    CHECK(write_to(&stays, memory, key) == IBV_WC_SUCCESS && !memcmp(memory, "ringside", 8));

    memset(memory, 0, PAGE);
    CHECK(!ibv_close_device(closed.context));
    refused_afterwards(&closed);
    CHECK(write_to(&stays, memory, key) != IBV_WC_SUCCESS);
    for (int byte = 0; byte < PAGE; byte++)
        CHECK(!memory[byte]);

    for (int round = 0; round < rounds; round++) {
        struct side left = made(memory);
        if (round % 100 == 0) {
            to_init(left.qp, 0);
            left_with_an_event(&left);
        } else {
            CHECK(!ibv_close_device(left.context));
        }
        CHECK(!ibv_destroy_comp_channel(left.channel));
    }

    /* Nor can a child that was forked end the objects of this process. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        ibv_close_device(stays.context);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);

    unpolled(&stays, 4 * rounds);

    /* The other context was not touched. */
    struct side again = made(memory);
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    struct ibv_wc wc;
    CHECK(!ibv_modify_qp(stays.qp, &reset, IBV_QP_STATE));
    while (ibv_poll_cq(stays.cq, 1, &wc)) {
    }
    join(stays.qp, again.qp, &gid);
    CHECK(write_to(&stays, memory, again.mr->rkey) == IBV_WC_SUCCESS);
    CHECK(!ibv_close_device(again.context) && !ibv_close_device(stays.context));
    puts("ok");
    return 0;
}
