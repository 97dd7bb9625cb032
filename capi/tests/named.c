/* Prints the name of the first device, or "none", and "preloaded" if the environment has libibverbs loaded before the
 * program's own libraries. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    const char *loaded = getenv("LD_PRELOAD");
    int is_preloaded = loaded && strstr(loaded, "/libibverbs.so.1");
    printf("%s%s\n", list && list[0] ? ibv_get_device_name(list[0]) : "none", is_preloaded ? " preloaded" : "");
    return 0;
}
