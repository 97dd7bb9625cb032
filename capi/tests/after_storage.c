/* Calls that are refused, and say why, where a thread has destroyed its storage: in destructors of keys, and in handlers
 * of the program's end. With an argument the program expects no device. Says "ok" twice and ends with 0. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

static struct ibv_context *context;
static pthread_key_t key;

static void is_refused(void)
{
    int devices = 0;

    errno = 0;
    if (context)
        CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0) && errno == EINVAL);
    else
        CHECK(!ibv_get_device_list(&devices) && errno == ENODEV);
}

static void at_exit(void)
{
    is_refused();
    puts("ok");
    fflush(stdout);
}

static void of_key(void *unused)
{
    (void)unused;
    at_exit();
}

static void *end(void *unused)
{
    (void)unused;
    /* From here on the log, and the reason of the last failure, are in the thread's storage. */
    is_refused();
    CHECK(pthread_setspecific(key, &key) == 0);
    return NULL;
}

int main(int count, char **words)
{
    struct ibv_device **list;
    pthread_t thread;

    (void)words;
    if (count == 1) {
        list = ibv_get_device_list(NULL);
        CHECK(list && list[0]);
        context = ibv_open_device(list[0]);
        CHECK(context);
    }
    CHECK(atexit(at_exit) == 0);
    CHECK(pthread_key_create(&key, of_key) == 0);
    CHECK(pthread_create(&thread, NULL, end, NULL) == 0 && pthread_join(thread, NULL) == 0);
    is_refused();
    return 0;
}
