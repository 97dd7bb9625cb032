/* Answers for files of the kernel's RDMA stack.
 *
 * Programs read /sys/class/infiniband, and some demand a character device in /dev/infiniband. This
 * object is loaded before them (LD_PRELOAD) and names other files to the C library: those that
 * ringside's libibverbs wrote into the folder of RINGSIDE_FILES, and /dev/null for the device. A file
 * that is not there keeps its name. No right, mount or namespace is needed. For a program that has
 * not opened the device, a helper process writes the files first (helper.c).
 *
 * Functions that take a path are replaced. errno is left alone, and nothing is allocated but to list
 * the interfaces.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "helper.h"
#include "next.h"

/* Whether `path` is `folder` or lies in it. */
static int is_in(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* Whether there is a file of that name; by a system call, since the C library's functions are ours. */
static int exists(const char *path)
{
	int before = errno;
	int found = syscall(SYS_access, path, F_OK) == 0;

	errno = before;
	return found;
}

/* True if the files were written. */
static int are_written(const char *folder)
{
	char first[PATH_MAX];

	return snprintf(first, sizeof(first), "%s/sys/class/infiniband_verbs", folder) >= PATH_MAX ||
	       exists(first);
}

/* Whether `path` is the folder of all interfaces. */
static int is_list_of_interfaces(const char *path)
{
	return strcmp(path, "/sys/class/net") == 0 || strcmp(path, "/sys/class/net/") == 0;
}

/* Makes the kernel's interfaces links in the folder beside the one of ours: those that there are now. */
static void link_interfaces(const char *folder)
{
	char at[PATH_MAX], target[PATH_MAX];
	struct dirent *one;
	DIR *list;
	int turn;

	/* Links to interfaces that are gone, then those that there are. */
	for (turn = 0; turn < 2; turn++) {
		list = NEXT(opendir)(turn == 0 ? folder : "/sys/class/net");
		while (list != NULL && (one = readdir(list)) != NULL) {
			if (one->d_name[0] == '.' || snprintf(at, PATH_MAX, "%s/%s", folder, one->d_name) >= PATH_MAX)
				continue;
			snprintf(target, PATH_MAX, "/sys/class/net/%s", one->d_name);
			if (turn == 1)
				(void)!symlink(target, at);
			else if (!exists(at))
				unlink(at);
		}
		if (list != NULL)
			closedir(list);
	}
}

/* Lists the interfaces in `place`, a folder of ours. True if that of the device is there: a program with verbs has it
 * made, and another one that only lists interfaces does not have a device opened. */
static int has_listed_interfaces(const char *folder, const char *place)
{
	int before = errno;

	if (!are_written(folder))
		write_files_for_a_list();
	if (!exists(place))
		return 0;
	link_interfaces(place);
	errno = before;
	return 1;
}

/* The name of the file that answers for an absolute path without detours: itself, or a name that is built in `place`. */
static const char *answer_whole(const char *path, char place[PATH_MAX])
{
	const char *folder;
	void (*refresh)(void);

	if (!is_in(path, "/sys/class/infiniband") && !is_in(path, "/sys/class/infiniband_verbs") &&
	    !is_in(path, "/sys/class/infiniband_mad") && !is_in(path, "/dev/infiniband") &&
	    !is_in(path, "/sys/class/net/ringside0") && !is_list_of_interfaces(path))
		return path;
	folder = files_folder();
	if (folder == NULL || snprintf(place, PATH_MAX, "%s%s", folder, path) >= PATH_MAX)
		return path;
	if (is_list_of_interfaces(path))
		return has_listed_interfaces(folder, place) ? place : path;
	if (!exists(place)) {
		if (!are_written(folder))
			write_files_by_helper();
		if (!exists(place))
			return path;
	}
	if (is_in(path, "/dev/infiniband") && strcmp(path, "/dev/infiniband") != 0)
		return "/dev/null";
	if (strstr(path, "/hw_counters/") != NULL) {
		refresh = ringside_function("ringside_refresh_counters");
		if (refresh != NULL)
			refresh();
	}
	return place;
}

/* True if the descriptor is of the folder that absolute paths begin at. By a system call: stat is ours. */
static int is_root(int folder)
{
	struct stat here, root;
	int before = errno;
	int found = fstat(folder, &here) == 0 &&
		    syscall(SYS_newfstatat, AT_FDCWD, "/", &root, 0) == 0 &&
		    here.st_dev == root.st_dev && here.st_ino == root.st_ino;

	errno = before;
	return found;
}

/* The path of the folder that relative paths begin at. 0 if it has none. */
static int path_of(int folder, char into[PATH_MAX])
{
	char link[32];
	int before = errno;
	long length;

	if (folder == AT_FDCWD) {
		length = syscall(SYS_getcwd, into, PATH_MAX);
	} else if (is_root(folder)) {
		length = snprintf(into, PATH_MAX, "/");
	} else {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
		length = syscall(SYS_readlink, link, into, PATH_MAX - 1);
		if (length > 0)
			into[length] = 0;
	}
	errno = before;
	return length > 0 && into[0] == '/';
}

/* True for a folder of the kernel or of ours, and for no link: ".." behind it leads back. */
static __attribute__((noinline)) int is_plain_folder(const char *path)
{
	char place[PATH_MAX];
	struct stat found;
	int before = errno;
	int is_there = syscall(SYS_newfstatat, AT_FDCWD, answer_whole(path, place), &found, AT_SYMLINK_NOFOLLOW) == 0;

	errno = before;
	return is_there && S_ISDIR(found.st_mode);
}

/* True if the path has "//", "/./" or "/../", also at its end. */
static int has_detours(const char *path)
{
	for (; *path != 0; path++) {
		const char *next = path + 1;

		if (*path != '/')
			continue;
		if (*next == '/')
			return 1;
		next += *next == '.';
		next += *next == '.';
		if (next > path + 1 && (*next == '/' || *next == 0))
			return 1;
	}
	return 0;
}

/* True if the path may lead to one of ours. Others are not looked at further. */
static int is_candidate(const char *path)
{
	size_t length = strlen(path);

	while (length > 0 && path[length - 1] == '/')
		length--;
	return strstr(path, "infiniband") != NULL || strstr(path, "ringside0") != NULL ||
	       (length >= 3 && memcmp(path + length - 3, "net", 3) == 0);
}

/* Writes the path from the root, without detours. 0 if it is too long, or goes back behind a link: where that leads is
 * the kernel's to say. */
static int straighten(int folder, const char *path, char whole[PATH_MAX])
{
	size_t length = 0, part;

	if (path[0] != '/') {
		if (!path_of(folder, whole))
			return 0;
		length = strcmp(whole, "/") == 0 ? 0 : strlen(whole);
	}
	for (; *path != 0; path += part) {
		part = strcspn(path, "/");
		if (part == 0) {
			part = 1;
		} else if (part == 2 && path[0] == '.' && path[1] == '.') {
			whole[length] = 0;
			if (length > 0 && !is_plain_folder(whole))
				return 0;
			while (length > 0 && whole[--length] != '/')
				;
		} else if (part != 1 || path[0] != '.') {
			if (length + part + 2 >= PATH_MAX)
				return 0;
			whole[length++] = '/';
			memcpy(whole + length, path, part);
			length += part;
		}
	}
	/* A slash at the end demands a folder. */
	if (path[-1] == '/')
		whole[length++] = '/';
	whole[length] = 0;
	return 1;
}

/* The same of a path with detours, or that is relative. On its own, as it takes more of the stack: a handler of signals
 * may have a small one. */
static __attribute__((noinline)) const char *answer_straight(int folder, const char *path, char place[PATH_MAX])
{
	char whole[PATH_MAX];
	const char *found;

	if (!straighten(folder, path, whole))
		return path;
	found = answer_whole(whole, place);
	return found == whole ? path : found;
}

/* The name of the file that answers for `path`, which may be relative to a descriptor: itself, or a name that is built
 * in `place`. Some libraries (hwloc) open "/" once, and name all files from there. */
static const char *answer_at(int folder, const char *path, char place[PATH_MAX])
{
	if (path == NULL || path[0] == 0)
		return path;
	if (path[0] == '/' && !has_detours(path))
		return answer_whole(path, place);
	if (!is_candidate(path) || files_folder() == NULL)
		return path;
	return answer_straight(folder, path, place);
}

/* The same of a path that is relative to the current folder. */
static const char *answer(const char *path, char place[PATH_MAX])
{
	return answer_at(AT_FDCWD, path, place);
}

#define OPEN(name)                                                                                 \
	EXPORT int name(const char *path, int flags, ...)                                          \
	{                                                                                          \
		char place[PATH_MAX];                                                              \
		va_list more;                                                                      \
		mode_t mode;                                                                       \
                                                                                                   \
		va_start(more, flags);                                                             \
		mode = va_arg(more, mode_t);                                                       \
		va_end(more);                                                                      \
		return NEXT(name)(answer(path, place), flags, mode);                               \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
	EXPORT int name(int folder, const char *path, int flags, ...)                              \
	{                                                                                          \
		char place[PATH_MAX];                                                              \
		va_list more;                                                                      \
		mode_t mode;                                                                       \
                                                                                                   \
		va_start(more, flags);                                                             \
		mode = va_arg(more, mode_t);                                                       \
		va_end(more);                                                                      \
		return NEXT(name)(folder, answer_at(folder, path, place), flags, mode);            \
	}
OPENAT(openat)
OPENAT(openat64)

/* Source fortified with _FORTIFY_SOURCE calls these where it passes no mode. */
extern int __open_2(const char *path, int flags);
extern int __open64_2(const char *path, int flags);
extern int __openat_2(int folder, const char *path, int flags);
extern int __openat64_2(int folder, const char *path, int flags);
#define OPEN_2(name, plain)                                                                        \
	EXPORT int name(const char *path, int flags)                                               \
	{                                                                                          \
		return plain(path, flags);                                                         \
	}
OPEN_2(__open_2, open)
OPEN_2(__open64_2, open64)
#define OPENAT_2(name, plain)                                                                      \
	EXPORT int name(int folder, const char *path, int flags)                                   \
	{                                                                                          \
		return plain(folder, path, flags);                                                 \
	}
OPENAT_2(__openat_2, openat)
OPENAT_2(__openat64_2, openat64)

/* A function whose first argument is the path. */
#define FIRST(result, name, parameters, arguments)                                                 \
	EXPORT result name parameters                                                              \
	{                                                                                          \
		char place[PATH_MAX];                                                              \
                                                                                                   \
		path = answer(path, place);                                                        \
		return NEXT(name) arguments;                                                       \
	}
FIRST(FILE *, fopen, (const char *path, const char *mode), (path, mode))
FIRST(FILE *, fopen64, (const char *path, const char *mode), (path, mode))
FIRST(FILE *, freopen, (const char *path, const char *mode, FILE *stream), (path, mode, stream))
FIRST(FILE *, freopen64, (const char *path, const char *mode, FILE *stream), (path, mode, stream))
FIRST(int, statfs, (const char *path, struct statfs *into), (path, into))
FIRST(int, statfs64, (const char *path, struct statfs64 *into), (path, into))
FIRST(int, statvfs, (const char *path, struct statvfs *into), (path, into))
FIRST(int, statvfs64, (const char *path, struct statvfs64 *into), (path, into))
FIRST(long, pathconf, (const char *path, int name), (path, name))
FIRST(int, stat, (const char *path, struct stat *into), (path, into))
FIRST(int, stat64, (const char *path, struct stat64 *into), (path, into))
FIRST(int, lstat, (const char *path, struct stat *into), (path, into))
FIRST(int, lstat64, (const char *path, struct stat64 *into), (path, into))
FIRST(int, access, (const char *path, int mode), (path, mode))
FIRST(int, euidaccess, (const char *path, int mode), (path, mode))
FIRST(int, eaccess, (const char *path, int mode), (path, mode))
FIRST(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t size),
      (path, name, value, size))
FIRST(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t size),
      (path, name, value, size))
FIRST(int, chdir, (const char *path), (path))
FIRST(DIR *, opendir, (const char *path), (path))
FIRST(ssize_t, readlink, (const char *path, char *into, size_t size), (path, into, size))
FIRST(char *, realpath, (const char *path, char *into), (path, into))
FIRST(char *, canonicalize_file_name, (const char *path), (path))
/* Of fortified source, as __open_2. */
extern char *__realpath_chk(const char *path, char *into, size_t room);
extern ssize_t __readlink_chk(const char *path, char *into, size_t size, size_t room);
FIRST(char *, __realpath_chk, (const char *path, char *into, size_t room), (path, into, room))
FIRST(ssize_t, __readlink_chk, (const char *path, char *into, size_t size, size_t room),
      (path, into, size, room))
FIRST(int, scandir,
      (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
       int (*compare)(const struct dirent **, const struct dirent **)),
      (path, list, filter, compare))
FIRST(int, scandir64,
      (const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
       int (*compare)(const struct dirent64 **, const struct dirent64 **)),
      (path, list, filter, compare))
FIRST(int, inotify_add_watch, (int watches, const char *path, uint32_t events), (watches, path, events))

/* A function whose second argument is a path, relative to the descriptor that the first one is. */
#define AT(result, name, parameters, arguments)                                                    \
	EXPORT result name parameters                                                              \
	{                                                                                          \
		char place[PATH_MAX];                                                              \
                                                                                                   \
		path = answer_at(folder, path, place);                                             \
		return NEXT(name) arguments;                                                       \
	}
AT(int, fstatat, (int folder, const char *path, struct stat *into, int flags),
   (folder, path, into, flags))
AT(int, fstatat64, (int folder, const char *path, struct stat64 *into, int flags),
   (folder, path, into, flags))
AT(int, faccessat, (int folder, const char *path, int mode, int flags),
   (folder, path, mode, flags))
AT(ssize_t, readlinkat, (int folder, const char *path, char *into, size_t size),
   (folder, path, into, size))
extern ssize_t __readlinkat_chk(int folder, const char *path, char *into, size_t size, size_t room);
AT(ssize_t, __readlinkat_chk, (int folder, const char *path, char *into, size_t size, size_t room),
   (folder, path, into, size, room))
AT(int, scandirat,
   (int folder, const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
    int (*compare)(const struct dirent **, const struct dirent **)),
   (folder, path, list, filter, compare))
AT(int, scandirat64,
   (int folder, const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
    int (*compare)(const struct dirent64 **, const struct dirent64 **)),
   (folder, path, list, filter, compare))
AT(int, statx, (int folder, const char *path, int flags, unsigned int mask, struct statx *into),
   (folder, path, flags, mask, into))

/* Programs that were linked against a C library before 2.33 call these. */
#define SECOND(result, name, parameters, arguments) FIRST(result, name, parameters, arguments)
extern int __xstat(int version, const char *path, struct stat *into);
extern int __lxstat(int version, const char *path, struct stat *into);
extern int __xstat64(int version, const char *path, struct stat64 *into);
extern int __lxstat64(int version, const char *path, struct stat64 *into);
SECOND(int, __xstat, (int version, const char *path, struct stat *into), (version, path, into))
SECOND(int, __lxstat, (int version, const char *path, struct stat *into), (version, path, into))
SECOND(int, __xstat64, (int version, const char *path, struct stat64 *into),
       (version, path, into))
SECOND(int, __lxstat64, (int version, const char *path, struct stat64 *into),
       (version, path, into))
extern int __fxstatat(int version, int folder, const char *path, struct stat *into, int flags);
extern int __fxstatat64(int version, int folder, const char *path, struct stat64 *into, int flags);
AT(int, __fxstatat, (int version, int folder, const char *path, struct stat *into, int flags),
   (version, folder, path, into, flags))
AT(int, __fxstatat64, (int version, int folder, const char *path, struct stat64 *into, int flags),
   (version, folder, path, into, flags))

static void *open_folder(const char *path)
{
	return opendir(path);
}

/* Patterns: the C library's own search does not come by the functions above. */
#define GLOB(name, list, entry, read, by_path, by_path_of_link)                                    \
	static struct entry *read_for_##name(void *folder)                                         \
	{                                                                                          \
		return read(folder);                                                               \
	}                                                                                          \
	static void close_for_##name(void *folder)                                                 \
	{                                                                                          \
		closedir(folder);                                                                  \
	}                                                                                          \
	EXPORT int name(const char *pattern, int flags, int (*failed)(const char *, int),          \
			list *into)                                                                \
	{                                                                                          \
		if (!(flags & GLOB_ALTDIRFUNC) &&                                                  \
		    (is_in(pattern, "/sys") || is_in(pattern, "/dev"))) {                    \
			flags |= GLOB_ALTDIRFUNC;                                                  \
			into->gl_opendir = open_folder;                                            \
			into->gl_readdir = read_for_##name;                                        \
			into->gl_closedir = close_for_##name;                                      \
			into->gl_stat = by_path;                                                   \
			into->gl_lstat = by_path_of_link;                                          \
		}                                                                                  \
		return NEXT(name)(pattern, flags, failed, into);                                   \
	}
GLOB(glob, glob_t, dirent, readdir, stat, lstat)
GLOB(glob64, glob64_t, dirent64, readdir64, stat64, lstat64)
