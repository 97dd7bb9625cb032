/* Memory of every kind that a program may register, written, read and sent from: pages of its own, of files on a disk
 * and in memory that it shares, of System V, huge pages, and pages that it may only read.
 * Argument: a folder on a disk. Says "ok"; each kind that this machine does not have is named on standard error as
 * "not run: NAME". Ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { BYTES = 64 << 10, HUGE = 2 << 20, FROM = 1000, LENGTH = 40000,
    WRITABLE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct joined own;
/* The other side of each transfer. */
static unsigned char peer[BYTES];
static struct ibv_mr *peer_mr;

static void fill(unsigned char *bytes, unsigned seed)
{
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)((i * 31 + seed) ^ (i >> 8));
}

static void transfer(int opcode, void *local, struct ibv_mr *local_mr, void *remote, struct ibv_mr *remote_mr)
{
    struct ibv_sge data = { (uintptr_t)local + FROM, LENGTH, local_mr->lkey };
    struct ibv_send_wr request = { .sg_list = &data, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)remote + FROM, remote_mr->rkey } }, *bad;
    CHECK(!ibv_post_send(own.one, &request, &bad));
    struct ibv_wc wc = next(own.cq);
    CHECK(wc.status == IBV_WC_SUCCESS);
}

static int is_same(const unsigned char *one_side, const unsigned char *other)
{
    return !memcmp(one_side + FROM, other + FROM, LENGTH);
}

/* The memory is read, at either end. */
static void read_from(const char *name, unsigned char *memory, int access)
{
    struct ibv_mr *mr = ibv_reg_mr(own.pd, memory, BYTES, access);
    if (!mr)
        fprintf(stderr, "%s: errno %d\n", name, errno);
    CHECK(mr);
    memset(peer, 0, sizeof peer);
    transfer(IBV_WR_RDMA_READ, peer, peer_mr, memory, mr);
    CHECK(is_same(peer, memory));
    memset(peer, 0, sizeof peer);
    transfer(IBV_WR_RDMA_WRITE, memory, mr, peer, peer_mr);
    CHECK(is_same(peer, memory));
    CHECK(!ibv_dereg_mr(mr));
}

/* The memory is written, at either end, and received into. Returns with its bytes equal to the peer's. */
static void write_to(const char *name, unsigned char *memory)
{
    struct ibv_mr *mr = ibv_reg_mr(own.pd, memory, BYTES, WRITABLE);
    if (!mr)
        fprintf(stderr, "%s: errno %d\n", name, errno);
    CHECK(mr);
    fill(peer, 1);
    transfer(IBV_WR_RDMA_WRITE, peer, peer_mr, memory, mr);
    CHECK(is_same(peer, memory));
    fill(peer, 2);
    transfer(IBV_WR_RDMA_READ, memory, mr, peer, peer_mr);
    CHECK(is_same(peer, memory));
    fill(peer, 3);
    struct ibv_sge into = { (uintptr_t)memory + FROM, LENGTH, mr->lkey };
    struct ibv_sge from = { (uintptr_t)peer + FROM, LENGTH, peer_mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED },
        *bad;
    CHECK(!ibv_post_recv(own.two, &receive, &bad_receive) && !ibv_post_send(own.one, &send, &bad));
    CHECK(next(own.cq).status == IBV_WC_SUCCESS && next(own.cq).status == IBV_WC_SUCCESS);
    CHECK(is_same(peer, memory));
    CHECK(!ibv_dereg_mr(mr));
}

static void both(const char *name, unsigned char *memory)
{
    fill(memory, 4);
    read_from(name, memory, WRITABLE);
    write_to(name, memory);
}

/* A file's bytes are those that the peer wrote, as far as the mapping is shared; a private one leaves the file alone. */
static void of_file(const char *name, int file, int flags)
{
    static unsigned char bytes[BYTES], before[BYTES];
    CHECK(file >= 0 && !ftruncate(file, BYTES));
    fill(before, 5);
    CHECK(pwrite(file, before, BYTES, 0) == BYTES);
    unsigned char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
    CHECK(memory != MAP_FAILED);
    write_to(name, memory);
    CHECK(pread(file, bytes, BYTES, 0) == BYTES);
    CHECK(is_same(bytes, flags == MAP_SHARED ? peer : before));
    CHECK(!munmap(memory, BYTES));

    /* The same file once more, for reading only. */
    memory = mmap(NULL, BYTES, PROT_READ, flags, file, 0);
    CHECK(memory != MAP_FAILED && !ibv_reg_mr(own.pd, memory, BYTES, WRITABLE) && errno == EFAULT);
    read_from(name, memory, IBV_ACCESS_REMOTE_READ);
    CHECK(!munmap(memory, BYTES) && !close(file));
}

static void of_files(const char *folder)
{
    char path[4096];
    struct statfs about;
    CHECK(!statfs(folder, &about));
    if (about.f_type == TMPFS_MAGIC)
        fprintf(stderr, "not run: a file on a disk, %s is in memory\n", folder);
    snprintf(path, sizeof path, "%s/memory", folder);
    for (int turn = 0; turn < 2; turn++) {
        int flags = turn ? MAP_SHARED : MAP_PRIVATE;
        of_file("a file on a disk", open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600), flags);
        of_file("a file in memory", memfd_create("memory", MFD_CLOEXEC), flags);
        snprintf(path, sizeof path, "/ringside-kinds-%d", getpid());
        int shared = shm_open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
        CHECK(shared >= 0 && !shm_unlink(path));
        of_file("a shared memory object", shared, flags);
        snprintf(path, sizeof path, "%s/memory", folder);
    }
    CHECK(!unlink(path));
}

static void of_the_program(void)
{
    static unsigned char of_data[BYTES];
    unsigned char on_stack[BYTES], *on_heap = malloc(BYTES + 1);
    int anonymous[] = { MAP_PRIVATE, MAP_SHARED };
    CHECK(on_heap);
    both("data", of_data);
    both("the stack", on_stack);
    both("the heap", on_heap + 1);
    free(on_heap);
    for (int i = 0; i < 2; i++) {
        unsigned char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, anonymous[i] | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        both("pages without a file", memory);
        CHECK(!mprotect(memory, BYTES, PROT_READ));
        CHECK(!ibv_reg_mr(own.pd, memory, BYTES, WRITABLE) && errno == EFAULT);
        read_from("pages that became constant", memory, IBV_ACCESS_REMOTE_READ);
        CHECK(!munmap(memory, BYTES));
    }
    int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    unsigned char *attached = segment < 0 ? (void *)-1 : shmat(segment, NULL, 0);
    CHECK(attached != (void *)-1 && !shmctl(segment, IPC_RMID, NULL));
    both("System V", attached);
    CHECK(!shmdt(attached));
}

static void of_huge_pages(void)
{
    int kinds[] = { MAP_PRIVATE, MAP_SHARED };
    for (int i = 0; i < 2; i++) {
        unsigned char *memory = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, kinds[i] | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (memory == MAP_FAILED) {
            CHECK(errno == ENOMEM);
            fprintf(stderr, "not run: huge pages\n");
            continue;
        }
        both("huge pages", memory);
        both("the end of huge pages", memory + HUGE - BYTES);
        CHECK(!munmap(memory, HUGE));
    }
}

int main(int count, char **words)
{
    CHECK(count == 2);
    own = open_joined();
    CHECK(peer_mr = ibv_reg_mr(own.pd, peer, sizeof peer, WRITABLE));
    of_the_program();
    of_files(words[1]);
    of_huge_pages();
    CHECK(!ibv_dereg_mr(peer_mr));
    close_joined(&own);
    puts("ok");
    return 0;
}
