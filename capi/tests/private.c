/* A program that was linked with one release of rdma-core (RELEASE): its private names have the version of that release.
 * Says "ok" and ends with 0. */
#include "check.h"
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define PASTED(name, release) name##release
#define NAMED(name, release) PASTED(name, release)

extern bool verbs_allow_disassociate_destroy;
void NAMED(verbs_register_driver_, RELEASE)(const void *driver);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *kind);
int ibv_cmd_dealloc_pd(struct ibv_pd *pd);

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    int kind = 0;
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context && !ibv_query_gid_type(context, 1, 1, &kind) && kind == 1);
    CHECK(ibv_query_gid_type(context, 2, 1, &kind) == -1 && errno == EINVAL);
    CHECK(ibv_cmd_dealloc_pd(NULL) == EOPNOTSUPP && !verbs_allow_disassociate_destroy);
    NAMED(verbs_register_driver_, RELEASE)(NULL);
    CHECK(!ibv_close_device(context));
    ibv_free_device_list(list);
    puts("ok");
}
