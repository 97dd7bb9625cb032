/* What programs do around the device, and must still be able to use it: daemons close all descriptors that they do not
 * know and drop their privileges, first threads end, threads have small stacks, signals are waited for.
 * Argument: one of the names below; without it, each in a process of its own. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include "connect.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors of the program that take the numbers of those that were closed. */
enum { LOGS = 40 };

static struct ibv_context *context;

static void *list_devices(void *unused)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    ibv_free_device_list(list);
    return unused;
}

static void *open_device(void *unused)
{
    union ibv_gid gid;
    CHECK(context = open_first(&gid));
    return unused;
}

static void *use(void *unused)
{
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    write_to_itself(context, &gid);
    CHECK(!ibv_close_device(context));
    return unused;
}

static void with_small_stack(void *(*run)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 64 << 10));
    CHECK(!pthread_create(&thread, &attributes, run, NULL) && !pthread_join(thread, NULL));
}

/* The library keeps no descriptor of a program that only looked for devices: no file of the program gets its number. */
static void after_closefrom(void)
{
    int logs[LOGS];
    list_devices(NULL);
    closefrom(3);
    for (int i = 0; i < LOGS; i++)
        CHECK((logs[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600)) >= 0);
    list_devices(NULL);
    open_device(NULL);
    use(NULL);
    for (int i = 0; i < LOGS; i++) {
        struct stat about;
        CHECK(!fstat(logs[i], &about) && about.st_size == 0);
    }
}

static void after_a_signal(void)
{
    sigset_t waited;
    int found = 0;
    open_device(NULL);
    sigemptyset(&waited);
    sigaddset(&waited, SIGTERM);
    CHECK(!pthread_sigmask(SIG_BLOCK, &waited, NULL) && !kill(getpid(), SIGTERM));
    CHECK(!sigwait(&waited, &found) && found == SIGTERM);
    use(NULL);
}

static void on_small_stacks(void)
{
    with_small_stack(list_devices);
    with_small_stack(open_device);
    with_small_stack(use);
}

static void without_privileges(void)
{
    open_device(NULL);
    CHECK(geteuid() != 0 || (!setgid(65534) && !setuid(65534)));
    use(NULL);
}

static void without_core_dumps(void)
{
    open_device(NULL);
    CHECK(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    use(NULL);
}

static void *without_the_first(void *first)
{
    CHECK(!pthread_join(*(pthread_t *)first, NULL));
    use(NULL);
    puts("ok");
    exit(0);
}

static void in_the_last_thread(void)
{
    static pthread_t first;
    pthread_t last;
    open_device(NULL);
    first = pthread_self();
    CHECK(!pthread_create(&last, NULL, without_the_first, &first));
    pthread_exit(NULL);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = { { "closefrom", after_closefrom }, { "sigwait", after_a_signal }, { "stack", on_small_stacks },
    { "privileges", without_privileges }, { "undumpable", without_core_dumps }, { "exit", in_the_last_thread } };
enum { CASES = sizeof cases / sizeof cases[0] };

/* Runs this program for a case; its "ok" goes nowhere. */
static void run_in_a_process(const char *name)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(freopen("/dev/null", "w", stdout));
        execl("/proc/self/exe", "surroundings", name, NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status) {
        fprintf(stderr, "%s: status %#x\n", name, status);
        exit(1);
    }
}

int main(int count, char **words)
{
    CHECK(count <= 2);
    for (int i = 0; i < CASES; i++) {
        if (count == 1)
            run_in_a_process(cases[i].name);
        else if (!strcmp(words[1], cases[i].name))
            cases[i].run();
    }
    puts("ok");
    return 0;
}
