/* Requests and their lists at any address: programs keep them inside packed structures (libiscsi does). Says "ok" and
 * ends with 0. */
#include "connect.h"

enum { BYTES = 64 };

static char memory[2 * BYTES], *const out = memory, *const in = memory + BYTES;
static char __attribute__((aligned(64))) store[4096];

/* A copy of something, `shift` bytes behind an aligned address. */
static void *shifted(const void *what, size_t bytes, int place, int shift)
{
    return memcpy(store + 512 * place + shift, what, bytes);
}

static void *receive_of(struct ibv_mr *mr, int shift)
{
    struct ibv_sge into[2] = { { (uintptr_t)in, 10, mr->lkey }, { (uintptr_t)in + 10, BYTES - 10, mr->lkey } };
    struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = shifted(into, sizeof into, 0, shift), .num_sge = 2 };
    return shifted(&wr, sizeof wr, 1, shift);
}

static void arrived(struct ibv_cq *send_cq, struct ibv_cq *receive_cq, int from, int bytes)
{
    struct ibv_wc sent = next(send_cq), got = next(receive_cq);
    CHECK(sent.status == IBV_WC_SUCCESS && got.status == IBV_WC_SUCCESS);
    CHECK(got.wr_id == 7 && (int)got.byte_len == bytes && !memcmp(in, out + from, (size_t)bytes));
}

static void exchange(struct ibv_qp *one, struct ibv_qp *two, struct ibv_srq *srq, struct ibv_mr *mr, int shift)
{
    struct ibv_recv_wr *bad_receive;
    for (int entries = 1; entries <= 3; entries++) {
        for (int is_inline = 0; is_inline < 2; is_inline++) {
            for (int i = 0; i < BYTES; i++)
                out[i] = (char)(i * 3 + shift + entries + is_inline);
            memset(in, 0, BYTES);
            void *receive = receive_of(mr, shift);
            CHECK(!(srq ? ibv_post_srq_recv(srq, receive, &bad_receive) : ibv_post_recv(two, receive, &bad_receive)));
            struct ibv_sge list[3];
            for (int i = 0; i < entries; i++)
                list[i] = (struct ibv_sge){ (uintptr_t)out + 5 + 4 * i, 4, mr->lkey };
            struct ibv_send_wr wr = { .num_sge = entries, .opcode = IBV_WR_SEND,
                .sg_list = shifted(list, sizeof list, 2, shift),
                .send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0) }, *bad;
            CHECK(!ibv_post_send(one, shifted(&wr, sizeof wr, 3, shift), &bad));
            arrived(one->send_cq, two->recv_cq, 5, 4 * entries);
        }
    }
    /* A chain whose second request is refused: the program gets its address. */
    struct ibv_sge data = { (uintptr_t)out, 0, mr->lkey };
    struct ibv_send_wr wrong = { .num_sge = 14, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &data }, *bad = NULL;
    struct ibv_send_wr good = { .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .sg_list = shifted(&data, sizeof data, 2, shift), .next = shifted(&wrong, sizeof wrong, 4, shift),
        .wr.rdma = { (uintptr_t)in, mr->rkey } };
    CHECK(ibv_post_send(one, shifted(&good, sizeof good, 3, shift), &bad) == EINVAL);
    CHECK((char *)bad == store + 512 * 4 + shift && next(one->send_cq).status == IBV_WC_SUCCESS);
}

static void extended(struct ibv_qp *qp, struct ibv_mr *mr, int shift)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_sge list[2] = { { (uintptr_t)out, 3, mr->lkey }, { (uintptr_t)out + 20, 5, mr->lkey } };
    CHECK(ex);
    memset(in, 0, BYTES);
    ibv_wr_start(ex);
    ex->wr_id = 9;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)in);
    ibv_wr_set_sge_list(ex, 2, shifted(list, sizeof list, 2, shift));
    CHECK(!ibv_wr_complete(ex) && next(qp->send_cq).status == IBV_WC_SUCCESS);
    CHECK(!memcmp(in, out, 3) && !memcmp(in + 3, out + 20, 5));
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_cq *send_cq = ibv_create_cq(context, 16, NULL, NULL, 0), *receive_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_srq *srq = ibv_create_srq(pd, &(struct ibv_srq_init_attr){ .attr = { .max_wr = 8, .max_sge = 2 } });
    CHECK(pd && mr && send_cq && receive_cq && srq);
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        struct ibv_qp_init_attr_ex init = { .send_cq = send_cq, .recv_cq = receive_cq, .qp_type = IBV_QPT_RC, .pd = pd,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
            .srq = is_shared ? srq : NULL,
            .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 3, .max_recv_sge = 2, .max_inline_data = 12 } };
        struct ibv_qp *one = ibv_create_qp_ex(context, &init), *two = ibv_create_qp_ex(context, &init);
        CHECK(one && two);
        join(one, two, &gid);
        for (int shift = 0; shift < 9; shift++) {
            exchange(one, two, is_shared ? srq : NULL, mr, shift);
            extended(one, mr, shift);
        }
        CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
    }
    CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(send_cq) && !ibv_destroy_cq(receive_cq));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
