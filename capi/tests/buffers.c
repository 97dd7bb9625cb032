/* Buffers of the library and the newest registration (release 65), which older headers do not declare.
 * Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <dlfcn.h>
#include <stdint.h>

struct ibv_buf;
struct init { size_t length; int access; uint64_t mask, iova; void *addr; int fd; uint64_t fd_offset; void *dmah, *buf; };
enum { IOVA = 1, ADDRESS = 2, DESCRIPTOR = 4, OFFSET = 8, HANDLE = 16, BUFFER = 32, LENGTH = 10000 };

static void *newest(const char *name, const char *version)
{
    void *found = dlvsym(RTLD_DEFAULT, name, version);
    CHECK(found);
    return found;
}

static int refused(struct ibv_mr *mr, int error)
{
    return !mr && errno == error;
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    void *(*alloc_buf)(struct ibv_pd *, size_t, struct ibv_buf **) = newest("ibv_alloc_buf", "IBVERBS_1.17");
    void (*free_buf)(struct ibv_buf *) = newest("ibv_free_buf", "IBVERBS_1.17");
    struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, struct ibv_buf *, void *, size_t, int) =
        newest("ibv_reg_buf_mr", "IBVERBS_1.17");
    struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct init *) = newest("ibv_reg_mr_ex", "IBVERBS_1.15");
    int (*export_fd)(struct ibv_buf *) = newest("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
    struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
    struct ibv_buf *buffer;
    CHECK(pd && other);
    char *at = alloc_buf(pd, LENGTH, &buffer);
    CHECK(at && (uintptr_t)at % 4096 == 0);

    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    CHECK(refused(reg_buf_mr(other, buffer, at, LENGTH, access), EINVAL));
    CHECK(refused(reg_buf_mr(pd, buffer, at - 1, 8, access), EINVAL));
    CHECK(refused(reg_buf_mr(pd, buffer, at, LENGTH + 1, access), EINVAL));
    CHECK(refused(reg_buf_mr(pd, buffer, at + LENGTH - 7, 8, access), EINVAL));
    CHECK(refused(reg_buf_mr(pd, buffer, at + 8, SIZE_MAX, access), EINVAL));
    CHECK(export_fd(buffer) == -1 && errno == ENODATA);
    struct init wanted = { .length = 8, .access = access, .addr = at, .iova = 0x5000, .buf = buffer };
    int masks[][2] = { { 0, EINVAL }, { IOVA, EINVAL }, { BUFFER, EINVAL }, { ADDRESS | OFFSET, EINVAL },
        { ADDRESS | BUFFER | DESCRIPTOR, EINVAL }, { DESCRIPTOR | OFFSET | IOVA, EOPNOTSUPP },
        { ADDRESS | HANDLE, EOPNOTSUPP }, { ADDRESS | 1 << 20, EOPNOTSUPP } };
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        wanted.mask = (uint64_t)masks[i][0];
        CHECK(refused(reg_mr_ex(pd, &wanted), masks[i][1]));
    }

    /* A peer writes into the buffer, under the name that the registration gave. */
    wanted.mask = ADDRESS | IOVA | BUFFER;
    wanted.iova += (uintptr_t)(wanted.addr = at + LENGTH - 8) % 4096;
    struct ibv_mr *mr = reg_mr_ex(pd, &wanted), *whole = reg_buf_mr(pd, buffer, at, LENGTH, access);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    CHECK(mr && whole && whole->addr == at && whole->length == LENGTH && cq && one && two);
    join(one, two, &gid);
    char text[8] = "ringside";
    struct ibv_sge data = { (uintptr_t)text, 8, 0 };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = { .remote_addr = wanted.iova, .rkey = mr->rkey } }, *bad;
    CHECK(!ibv_post_send(one, &write, &bad) && next(cq).status == IBV_WC_SUCCESS);
    CHECK(!memcmp(at + LENGTH - 8, text, 8));
    write.wr.rdma.remote_addr = (uintptr_t)at;
    write.wr.rdma.rkey = whole->rkey;
    CHECK(!ibv_post_send(one, &write, &bad) && next(cq).status == IBV_WC_SUCCESS && !memcmp(at, text, 8));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(cq));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(whole));
    free_buf(buffer);
    CHECK(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
