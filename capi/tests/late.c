/* A program that is not linked with verbs: it loads the library by its name, and a plugin that is, uses the device and
 * unloads both, in several threads and more than once. Argument: the plugin. Says "ok" and ends with 0. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>

#include "check.h"

enum { TURNS = 3 };

static void *use_plugin(void *path)
{
    for (int i = 0; i < TURNS; i++) {
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin);
        int (*use)(void) = (int (*)(void))dlsym(plugin, "use_verbs");
        CHECK(use && !use());
        CHECK(!dlclose(plugin));
    }
    return NULL;
}

/* As programs do that use verbs if they are there. */
static void by_name(void)
{
    for (int i = 0; i < TURNS; i++) {
        void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *connections = dlopen("librdmacm.so.1", RTLD_LAZY);
        CHECK(verbs && connections && dlsym(connections, "rdma_create_event_channel"));
        struct ibv_device **(*list_devices)(int *) = (struct ibv_device **(*)(int *))dlsym(verbs, "ibv_get_device_list");
        void (*free_list)(struct ibv_device **) = (void (*)(struct ibv_device **))dlsym(verbs, "ibv_free_device_list");
        CHECK(list_devices && free_list);
        int count = 0;
        struct ibv_device **list = list_devices(&count);
        CHECK(list && count == 1);
        free_list(list);
        CHECK(!dlclose(connections) && !dlclose(verbs));
    }
}

int main(int count, char **words)
{
    pthread_t threads[2];
    CHECK(count == 2);
    CHECK(!dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD));
    by_name();
    use_plugin(words[1]);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, use_plugin, words[1]));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    by_name();
    puts("ok");
    return 0;
}
