/* Registered memory that is moved into a file, for a model in another process.
 *
 * moved WORD   "moved": private pages are in a file while they are registered, at their address; "stays": they are not.
 * A stack, and what is not alone in its pages, stay in any case. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "check.h"
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 75 * PAGE, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

/* True if the pages at an address are those of a file of the library. */
static int is_in_file(const void *at)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
        if (start <= (uintptr_t)at && (uintptr_t)at < end)
            found = strstr(line, "/memfd:ringside") != NULL;
    }
    CHECK(!fclose(maps));
    return found;
}

static unsigned char pattern(size_t place)
{
    return (unsigned char)(place * 31 + place / 251);
}

static void check_bytes(const unsigned char *bytes)
{
    for (size_t i = 0; i < BYTES; i++)
        CHECK(bytes[i] == pattern(i));
}

/* True if a child of a fork that writes to a byte changes it for its parent. */
static int is_changed_by_child(unsigned char *byte)
{
    unsigned char before = *byte;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        *(volatile unsigned char *)byte = (unsigned char)~before;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return *(volatile unsigned char *)byte != before;
}

int main(int count, char **words)
{
    CHECK(count == 2);
    int moves = !strcmp(words[1], "moved"), number;
    struct ibv_device **list = ibv_get_device_list(&number);
    CHECK(list && number == 1);
    struct ibv_context *device = ibv_open_device(list[0]);
    CHECK(device);
    struct ibv_pd *domain = ibv_alloc_pd(device);
    CHECK(domain);
    unsigned char *bytes, *block = malloc(BYTES);
    unsigned char on_the_stack[3 * PAGE];
    unsigned char *pages_of_stack = on_the_stack + PAGE - (uintptr_t)on_the_stack % PAGE;
    CHECK(block && !posix_memalign((void **)&bytes, PAGE, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = pattern(i);
    struct ibv_mr *region = ibv_reg_mr(domain, bytes, BYTES, RIGHTS);
    struct ibv_mr *inside = ibv_reg_mr(domain, bytes + 5000, 20000, RIGHTS);
    struct ibv_mr *other = ibv_reg_mr(domain, block, BYTES, RIGHTS);
    struct ibv_mr *stack = ibv_reg_mr(domain, pages_of_stack, PAGE, RIGHTS);
    CHECK(region && inside && other && stack);
    check_bytes(bytes);
    CHECK(is_in_file(bytes) == moves && is_in_file(bytes + BYTES - 1) == moves);
    /* Not alone in its pages, and a stack. */
    CHECK(!is_in_file(block) && !is_in_file(pages_of_stack));
    CHECK(!ibv_dereg_mr(region) && !ibv_dereg_mr(inside) && !is_in_file(bytes));
    check_bytes(bytes);
    CHECK((region = ibv_reg_mr(domain, bytes, BYTES, RIGHTS)));
    CHECK(is_in_file(bytes) == moves);
    /* A child shares what is moved, and has a copy of the rest. */
    CHECK(is_changed_by_child(bytes) == moves && !is_changed_by_child(block));
    CHECK(!ibv_dereg_mr(region) && !ibv_dereg_mr(other) && !ibv_dereg_mr(stack));
    CHECK(!is_changed_by_child(bytes) && bytes[BYTES - 1] == pattern(BYTES - 1));
    free(bytes);
    free(block);
    CHECK(!ibv_dealloc_pd(domain) && !ibv_close_device(device));
    ibv_free_device_list(list);
    puts("ok");
    return 0;
}
