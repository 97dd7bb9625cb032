/* Reads a list of devices after it has freed it, for the address sanitizer. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list)
        return 2;
    ibv_free_device_list(list);
    printf("%p\n", *(void *volatile *)list);
    return 0;
}
