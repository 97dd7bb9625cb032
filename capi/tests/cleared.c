/* A daemon that removes all variables of its environment when it starts, looks at the files of the device, and uses it.
 * Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

int main(void)
{
    int devices;
    struct ibv_device **list;
    struct ibv_context *context;

    CHECK(clearenv() == 0);
    /* By a process of its own, which gets the variables. */
    CHECK(access("/sys/class/infiniband/ringside0/node_guid", R_OK) == 0);
    list = ibv_get_device_list(&devices);
    CHECK(list && devices == 1);
    context = ibv_open_device(list[0]);
    CHECK(context);
    CHECK(access("/sys/class/infiniband/ringside0/node_guid", R_OK) == 0);
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
