/* Verbs before main, as static constructors of C++ make them, in main, and after it in destructors and functions of
 * atexit. Says "ok", once more "ok" after main, and ends with 0. */
#include "connect.h"

static struct ibv_context *context;
static union ibv_gid gid;
static int is_in_main;

__attribute__((constructor)) static void before(void)
{
    context = open_first(&gid);
    write_to_itself(context, &gid);
}

static void at_exit(void)
{
    write_to_itself(context, &gid);
}

__attribute__((destructor)) static void after(void)
{
    CHECK(is_in_main);
    write_to_itself(context, &gid);
    CHECK(!ibv_close_device(context));
    puts("ok");
    fflush(stdout);
}

int main(void)
{
    is_in_main = 1;
    CHECK(!atexit(at_exit));
    write_to_itself(context, &gid);
    puts("ok");
    return 0;
}
