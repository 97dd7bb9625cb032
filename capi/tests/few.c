/* Programs with few descriptors: the device opens or says why it does not, objects that find no descriptor are refused
 * for want of one, and what the program has works on. Without an argument each limit in turn, in a process each;
 * with one that limit. Says "ok" and ends with 0. */
#include "connect.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST = 4, MOST = 60, STEP = 2, QUEUES = 400, LONG = 100000, NOT_OPENED = 3 };

/* Makes queues until there is no descriptor for their memory, and ends them. */
static void fill(struct ibv_context *context)
{
    struct ibv_cq *made[QUEUES];
    int count = 0;
    errno = 0;
    while (count < QUEUES && (made[count] = ibv_create_cq(context, LONG, NULL, NULL, 0)))
        count++;
    CHECK(count < QUEUES && errno == ENOMEM);
    while (count)
        CHECK(!ibv_destroy_cq(made[--count]));
}

static int limited(rlim_t descriptors)
{
    struct rlimit limit = { descriptors, descriptors };
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    errno = 0;
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list) {
        CHECK(errno);
        return NOT_OPENED;
    }
    CHECK(list[0]);
    errno = 0;
    struct ibv_context *context = ibv_open_device(list[0]);
    if (!context) {
        CHECK(errno);
        return NOT_OPENED;
    }
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    fill(context);
    fill(context);
    errno = 0;
    while (ibv_create_comp_channel(context))
        ;
    CHECK(errno == EMFILE);
    return 0;
}

int main(int count, char **words)
{
    if (count == 2)
        return limited(strtoul(words[1], NULL, 10));
    int opened = 0;
    for (int descriptors = LEAST; descriptors < MOST; descriptors += STEP) {
        char text[8];
        int status;
        snprintf(text, sizeof(text), "%d", descriptors);
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            execl("/proc/self/exe", words[0], text, NULL);
            _exit(1);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(!WEXITSTATUS(status) || (WEXITSTATUS(status) == NOT_OPENED && !opened));
        opened += !WEXITSTATUS(status);
    }
    CHECK(opened);
    puts("ok");
    return 0;
}
