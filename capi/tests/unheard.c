/* Calls that have something to say, where standard error is a pipe without a reader. With an argument the program expects
 * no device. Says "ok" and ends with 0. */
#include <infiniband/verbs.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

int main(int count, char **words)
{
    int ends[2], devices;
    struct ibv_device **list;
    struct ibv_context *context;

    (void)words;
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    errno = 0;
    list = ibv_get_device_list(&devices);
    if (count > 1) {
        CHECK(!list && errno == ENODEV);
        puts("ok");
        return 0;
    }
    CHECK(list && devices == 1);
    context = ibv_open_device(list[0]);
    CHECK(context);
    errno = 0;
    CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0) && errno == EINVAL);
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
