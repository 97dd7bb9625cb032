/* Files of the device by functions and paths of many forms, under ringside-files.so. Fortified, as
 * distributions build their programs. With an argument, flags of calls are no constants for the compiler. Says "ok" and
 * ends with 0. */
#define _GNU_SOURCE
#define _FORTIFY_SOURCE 2
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.h"

#define DEVICE "/sys/class/infiniband/ringside0"

static int is_there(int folder, const char *path)
{
    int file = openat(folder, path, O_RDONLY);

    return file >= 0 && close(file) == 0;
}

/* Flags and sizes that the compiler does not know: fortified source then calls other functions. */
static void check_fortified(int unknown)
{
    char into[64];
    int root = open("/", O_RDONLY);

    CHECK(root >= 0);
    CHECK(open(DEVICE "/node_guid", O_RDONLY | unknown) >= 0);
    CHECK(openat(AT_FDCWD, DEVICE "/node_guid", O_RDONLY | unknown) >= 0);
    CHECK(openat64(root, DEVICE "/node_guid" + 1, O_RDONLY | unknown) >= 0);
    /* It is there, and no link. */
    errno = 0;
    CHECK(readlinkat(AT_FDCWD, DEVICE, into, sizeof(into) - (unknown & 1)) < 0 && errno == EINVAL);
    errno = 0;
    CHECK(readlink(DEVICE, into, sizeof(into) - (unknown & 1)) < 0 && errno == EINVAL);
}

static void check_functions(void)
{
    struct statfs system;
    struct statvfs volume;
    struct dirent **list;
    FILE *file = fopen("/dev/null", "r");
    char text[64] = "";
    int watches = inotify_init1(0);
    glob_t found;

    CHECK(file && freopen(DEVICE "/node_type", "r", file) && fgets(text, sizeof(text), file) && fclose(file) == 0);
    CHECK(strcmp(text, "1: CA\n") == 0);
    CHECK(statfs(DEVICE, &system) == 0 && statvfs(DEVICE, &volume) == 0);
    CHECK(pathconf(DEVICE, _PC_NAME_MAX) > 0);
    CHECK(inotify_add_watch(watches, DEVICE "/ports/1/state", IN_MODIFY) >= 0);
    CHECK(scandirat(AT_FDCWD, DEVICE, &list, NULL, NULL) > 2);
    CHECK(glob("/sys/*/infiniband/*", 0, NULL, &found) == 0 && found.gl_pathc == 1);
    CHECK(strcmp(found.gl_pathv[0], DEVICE) == 0);
}

static void check_detours(void)
{
    DIR *list;

    CHECK(is_there(AT_FDCWD, "/sys/class//infiniband"));
    CHECK(is_there(AT_FDCWD, "/sys//class/infiniband/"));
    CHECK(is_there(AT_FDCWD, "//sys/class/infiniband/ringside0//node_guid"));
    CHECK(is_there(AT_FDCWD, "/sys/class/./infiniband/."));
    CHECK(is_there(AT_FDCWD, "/./sys/class/infiniband/ringside0/./node_guid"));
    CHECK(is_there(AT_FDCWD, "/sys/class/infiniband/ringside0/../ringside0/node_guid"));
    CHECK(is_there(AT_FDCWD, "/../sys/class/infiniband/ringside0/ports/../node_guid"));
    CHECK(is_there(AT_FDCWD, "/sys/class/net/../infiniband/ringside0"));
    CHECK(is_there(AT_FDCWD, "/proc/../sys/class/infiniband"));
    /* A link leads elsewhere: this one to /proc/self/fd. */
    CHECK(!is_there(AT_FDCWD, "/dev/fd/../../sys/class/infiniband"));
    CHECK(!is_there(AT_FDCWD, "/nothing/../sys/class/infiniband"));
    CHECK(!is_there(AT_FDCWD, "/sys/class/.infiniband") && !is_there(AT_FDCWD, "/sys/class/..infiniband"));
    list = opendir("/sys/class//infiniband_verbs");
    CHECK(list && closedir(list) == 0);
}

static void check_relative(void)
{
    int class = open("/sys/class", O_RDONLY | O_DIRECTORY), sys = open("/sys", O_PATH);
    struct stat about;

    CHECK(class >= 0 && sys >= 0);
    CHECK(is_there(class, "infiniband") && is_there(sys, "class/infiniband/ringside0/node_guid"));
    CHECK(fstatat(class, "./infiniband/ringside0", &about, 0) == 0 && S_ISDIR(about.st_mode));
    CHECK(!is_there(class, "infiniband/nothing") && !is_there(-1, "infiniband"));
    CHECK(chdir("/sys/class") == 0);
    CHECK(is_there(AT_FDCWD, "infiniband/ringside0/node_guid") && is_there(AT_FDCWD, "../class/infiniband"));
    CHECK(stat("infiniband/ringside0", &about) == 0);
    CHECK(chdir("/") == 0);
    CHECK(is_there(AT_FDCWD, "sys/class/infiniband") && is_there(AT_FDCWD, "./sys/class/infiniband"));
    /* Neither the folder nor the descriptor is one of those. */
    CHECK(chdir("/proc") == 0);
    CHECK(!is_there(AT_FDCWD, "sys/class/infiniband") && !is_there(AT_FDCWD, "infiniband"));
}

/* The kernel refuses these. */
static void check_null(void)
{
    int one = socket(AF_INET, SOCK_DGRAM, 0);

    errno = 0;
    CHECK(sendmmsg(-1, NULL, 1, 0) < 0 && errno == EBADF);
    errno = 0;
    CHECK(sendmmsg(one, NULL, 1, 0) < 0 && errno == EFAULT);
    errno = 0;
    CHECK(recvmmsg(-1, NULL, 1, MSG_DONTWAIT, NULL) < 0 && errno == EBADF);
    errno = 0;
    CHECK(recvmmsg(one, NULL, 1, MSG_DONTWAIT, NULL) < 0 && (errno == EFAULT || errno == EAGAIN));
}

int main(int count, char **words)
{
    (void)words;
    check_fortified(count > 1 ? O_CLOEXEC : 0);
    check_functions();
    check_detours();
    check_relative();
    check_null();
    puts("ok");
    return 0;
}
