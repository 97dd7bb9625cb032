/* A program without standard descriptors that prints nevertheless: none of the library's descriptors takes their
 * numbers, and what it prints goes nowhere. Says "ok" by a descriptor that it has kept, and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { STANDARD = 3, QUEUES = 8, LONG = 100000, KEPT = 100 };

static int kept;

/* As CHECK, which would print on standard error. */
#define HOLDS(what) \
    do { \
        if (!(what)) { \
            dprintf(kept, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            _exit(1); \
        } \
    } while (0)

static void close_standard(void)
{
    for (int i = 0; i < STANDARD; i++)
        close(i);
}

static int is_null(int descriptor)
{
    struct stat found;
    return !fstat(descriptor, &found) && S_ISCHR(found.st_mode) && found.st_rdev == makedev(1, 3);
}

int main(void)
{
    HOLDS((kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, KEPT)) >= KEPT);
    close_standard();
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    for (int i = 0; i < STANDARD; i++) {
        char byte;
        HOLDS(is_null(i) && fcntl(i, F_GETFD) == FD_CLOEXEC);
        HOLDS(!read(i, &byte, 1) && write(i, "x", 1) == 1);
    }
    /* Closed once more, they are left to the program: memory of queues does not take them. */
    close_standard();
    struct ibv_cq *queues[QUEUES];
    for (int i = 0; i < QUEUES; i++)
        HOLDS((queues[i] = ibv_create_cq(context, LONG, NULL, NULL, 0)));
    for (int i = 0; i < STANDARD; i++)
        HOLDS(write(i, "x", 1) == -1 && errno == EBADF);
    write_to_itself(context, &gid);
    for (int i = 0; i < QUEUES; i++)
        HOLDS(!ibv_destroy_cq(queues[i]));
    HOLDS(!ibv_close_device(context));
    dprintf(kept, "ok\n");
    return 0;
}
