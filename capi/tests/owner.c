/* Opens the device and keeps it until standard input ends; says "open" once it has it. Otherwise prints the errno
 * value, the milliseconds that opening took, and the reason. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <time.h>

extern const char *ringside_last_error(void) __attribute__((weak));

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list || !list[0]) {
        printf("no device: %d\n", errno);
        return 1;
    }
    long began = now_ms();
    errno = 0;
    struct ibv_context *context = ibv_open_device(list[0]);
    if (!context) {
        int error = errno;
        printf("errno %d\n%ld ms\n%s\n", error, now_ms() - began,
               ringside_last_error ? ringside_last_error() : "");
        return 1;
    }
    puts("open");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    ibv_free_device_list(list);
    return ibv_close_device(context);
}
