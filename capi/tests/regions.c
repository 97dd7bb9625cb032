/* Regions of one block of memory: overlapping ones, which stand for themselves, and many, made and ended in turn.
 * Argument: the number of those. Says "ok" and ends with 0. */
#include "connect.h"
#include <stdint.h>

enum { PAGE = 4096, BYTES = 16 * PAGE, LENGTH = 100, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static struct joined own;
static unsigned char *block, source[LENGTH];
static struct ibv_mr *source_mr;

static struct ibv_mr *region(size_t skip, size_t length)
{
    struct ibv_mr *made = ibv_reg_mr(own.pd, block + skip, length, RIGHTS);
    CHECK(made);
    return made;
}

/* A write of LENGTH equal bytes to the block by one of its regions, which must have the given end. */
static void write_by(const struct ibv_mr *target, size_t at, int byte, enum ibv_wc_status status)
{
    memset(source, byte, LENGTH);
    struct ibv_sge from = { (uintptr_t)source, LENGTH, source_mr->lkey };
    struct ibv_send_wr request = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)(block + at), target->rkey } }, *bad;
    CHECK(!ibv_post_send(own.one, &request, &bad));
    CHECK(next(own.cq).status == status);
}

static void has(size_t at, int byte)
{
    for (size_t i = 0; i < LENGTH; i++)
        CHECK(block[at + i] == byte);
}

static void overlaps(void)
{
    enum { PART = PAGE + 8 };
    struct ibv_mr *whole = region(0, BYTES), *part = region(PART, 2 * PAGE), *same = region(PART, 2 * PAGE);
    CHECK(part->rkey != same->rkey);
    write_by(part, PART, 1, IBV_WC_SUCCESS);
    has(PART, 1);
    CHECK(block[PART - 1] == 0 && block[PART + LENGTH] == 0);
    CHECK(!ibv_dereg_mr(part));
    write_by(same, PART, 2, IBV_WC_SUCCESS);
    has(PART, 2);
    write_by(whole, 2 * PAGE, 3, IBV_WC_SUCCESS);
    has(2 * PAGE, 3);
    has(PART, 2);
    CHECK(!ibv_dereg_mr(whole));
    write_by(same, PART + 2 * PAGE - LENGTH, 4, IBV_WC_SUCCESS);
    has(PART + 2 * PAGE - LENGTH, 4);
    /* The end of the block is no longer registered by any of them. */
    write_by(same, BYTES - LENGTH, 5, IBV_WC_REM_ACCESS_ERR);
    has(BYTES - LENGTH, 0);
    CHECK(!ibv_dereg_mr(same));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    own = open_joined();
    CHECK(block = calloc(1, BYTES + 1));
    block++; /* not aligned */
    CHECK(source_mr = ibv_reg_mr(own.pd, source, LENGTH, RIGHTS));
    overlaps();
    for (long number = 0; number < atol(words[1]); number++)
        CHECK(!ibv_dereg_mr(region((size_t)number * 97 % (BYTES - PAGE), PAGE)));
    CHECK(!ibv_dereg_mr(source_mr));
    close_joined(&own);
    free(block - 1);
    puts("ok");
    return 0;
}
