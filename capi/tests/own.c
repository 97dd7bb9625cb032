/* What ringside.h declares: the version, the reasons why there is no device, and the names of the variables.
 * Says "ok". */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <ringside.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void *of_another_thread(void *count)
{
    /* A reason is of the thread that made the call. */
    CHECK(!strcmp(ringside_last_error(), ""));
    return count;
}

static void refused(int error, const char *part)
{
    int count = -1;
    errno = 0;
    CHECK(!ibv_get_device_list(&count) && errno == error);
    CHECK(strstr(ringside_last_error(), part) && !strchr(ringside_last_error(), '\n'));
}

int main(void)
{
    CHECK(!strcmp(ringside_version(), RINGSIDE_VERSION));
    CHECK(!strcmp(ringside_last_error(), ""));
    unsetenv(RINGSIDE_DEVICE_VARIABLE);
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && !count && !strcmp(ringside_last_error(), ""));
    ibv_free_device_list(list);

    setenv(RINGSIDE_LOG_FORMAT_VARIABLE, "xml", 1);
    refused(EINVAL, RINGSIDE_LOG_FORMAT_VARIABLE);
    unsetenv(RINGSIDE_LOG_FORMAT_VARIABLE);
    setenv(RINGSIDE_DEVICE_VARIABLE, "e810", 1);
    refused(EINVAL, "e810");
    setenv(RINGSIDE_DEVICE_VARIABLE, "model:0", 1);
    setenv(RINGSIDE_CONFIG_VARIABLE, "/no/such.toml", 1);
    refused(EINVAL, "/no/such.toml");
    unsetenv(RINGSIDE_CONFIG_VARIABLE);
    setenv(RINGSIDE_DEVICE_VARIABLE, "vfio-user:/no/such.sock", 1);
    refused(ENODEV, "/no/such.sock");
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, of_another_thread, NULL) && !pthread_join(thread, NULL));
    CHECK(strstr(ringside_last_error(), "/no/such.sock"));

    /* The next call tries again, on both libraries. */
    setenv(RINGSIDE_DEVICE_VARIABLE, "model:0", 1);
    struct ibv_context **all = rdma_get_devices(&count);
    CHECK(all && count == 1);
    rdma_free_devices(all);
    puts("ok");
    return 0;
}
