/* A program whose plugin brings verbs with it, out of the global scope, as extension modules of Python do. It sees the
 * interface of the device before it has opened one, and counters of now each time that it reads one. To be run with
 * ringside-files.so. Argument: the plugin. Says "ok" and ends with 0. */
#include <dirent.h>
#include <dlfcn.h>
#include <string.h>

#include "check.h"

static long packets(void)
{
    long value;
    FILE *file = fopen("/sys/class/infiniband/ringside0/ports/1/hw_counters/ip4OutPkts", "r");
    CHECK(file && fscanf(file, "%ld", &value) == 1 && !fclose(file));
    return value;
}

static int lists_the_interface(void)
{
    int found = 0;
    struct dirent *one;
    DIR *list = opendir("/sys/class/net");
    CHECK(list);
    while ((one = readdir(list)))
        found += !strcmp(one->d_name, "ringside0");
    CHECK(!closedir(list));
    return found;
}

int main(int count, char **words)
{
    CHECK(count == 2);
    CHECK(!lists_the_interface()); /* without verbs no device is opened for the list */
    void *plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(plugin && !dlsym(RTLD_DEFAULT, "ibv_open_device"));
    CHECK(lists_the_interface() == 1);
    int (*use)(void) = (int (*)(void))dlsym(plugin, "use_verbs");
    CHECK(use && !use());
    long before = packets();
    CHECK(before > 0 && !use());
    CHECK(packets() > before);
    puts("ok");
    return 0;
}
