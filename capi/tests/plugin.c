/* A part of a program that is loaded while it runs, and brings libibverbs.so.1 with it; see late.c. */
#include "connect.h"

__attribute__((visibility("default"))) int use_verbs(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    write_to_itself(context, &gid);
    return ibv_close_device(context);
}
