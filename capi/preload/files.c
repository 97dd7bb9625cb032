/* Answers for files of the kernel's RDMA stack.
 *
 * Programs read /sys/class/infiniband, and some demand a character device in /dev/infiniband. This
 * object is loaded before them (LD_PRELOAD) and names other files to the C library: those that
 * ringside's libibverbs wrote into the folder of RINGSIDE_FILES, and /dev/null for the device. A file
 * that is not there keeps its name. No right, mount or namespace is needed. For a program that has
 * not opened the device, a helper process writes the files first (helper.c).
 *
 * Functions that take a path are replaced. Nothing is allocated, and errno is left alone.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <limits.h>
#include <linux/if_link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "helper.h"
#include "next.h"

#define EXPORT __attribute__((visibility("default")))

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

/* The name of the file that answers for `path`: itself, or a name that is built in `place`. */
static const char *answer(const char *path, char place[PATH_MAX])
{
	const char *folder;
	void (*refresh)(void);

	if (path == NULL || path[0] != '/')
		return path;
	if (!is_in(path, "/sys/class/infiniband") && !is_in(path, "/sys/class/infiniband_verbs") &&
	    !is_in(path, "/sys/class/infiniband_mad") && !is_in(path, "/dev/infiniband") &&
	    !is_in(path, "/sys/class/net/ringside0"))
		return path;
	folder = getenv("RINGSIDE_FILES");
	if (folder == NULL || snprintf(place, PATH_MAX, "%s%s", folder, path) >= PATH_MAX)
		return path;
	if (!exists(place)) {
		if (!are_written(folder))
			write_files_by_helper();
		if (!exists(place))
			return path;
	}
	if (is_in(path, "/dev/infiniband") && strcmp(path, "/dev/infiniband") != 0)
		return "/dev/null";
	if (strstr(path, "/hw_counters/") != NULL) {
		refresh = (void (*)(void))dlsym(RTLD_DEFAULT, "ringside_refresh_counters");
		if (refresh != NULL)
			refresh();
	}
	return place;
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
		return NEXT(name)(folder, answer(path, place), flags, mode);                       \
	}
OPENAT(openat)
OPENAT(openat64)

/* Source fortified with _FORTIFY_SOURCE calls these where it passes no mode. */
extern int __open_2(const char *path, int flags);
extern int __open64_2(const char *path, int flags);
#define OPEN_2(name, plain)                                                                        \
	EXPORT int name(const char *path, int flags)                                               \
	{                                                                                          \
		return plain(path, flags);                                                         \
	}
OPEN_2(__open_2, open)
OPEN_2(__open64_2, open64)

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

/* A function whose second argument is the path. */
#define SECOND(result, name, parameters, arguments) FIRST(result, name, parameters, arguments)
SECOND(int, fstatat, (int folder, const char *path, struct stat *into, int flags),
       (folder, path, into, flags))
SECOND(int, fstatat64, (int folder, const char *path, struct stat64 *into, int flags),
       (folder, path, into, flags))
SECOND(int, faccessat, (int folder, const char *path, int mode, int flags),
       (folder, path, mode, flags))
SECOND(ssize_t, readlinkat, (int folder, const char *path, char *into, size_t size),
       (folder, path, into, size))
SECOND(int, statx,
       (int folder, const char *path, int flags, unsigned int mask, struct statx *into),
       (folder, path, flags, mask, into))

/* Programs that were linked against a C library before 2.33 call these. */
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
SECOND(int, __fxstatat, (int version, int folder, const char *path, struct stat *into, int flags),
       (version, folder, path, into, flags))
SECOND(int, __fxstatat64,
       (int version, int folder, const char *path, struct stat64 *into, int flags),
       (version, folder, path, into, flags))

/* Name of the interface of the device. */
#define INTERFACE "ringside0"

/* Interfaces. Libraries ask for the addresses of all, and look for RDMA behind each (libfabric). The
 * device has no interface of the kernel: one is added to the list for each of its addresses.
 */
struct interface {
	struct ifaddrs entry;
	struct sockaddr_storage address;
	struct sockaddr_storage mask;
	struct sockaddr_storage broadcast;
	char name[IFNAMSIZ];
};

/* What the interface of the device is and does. */
enum { INTERFACE_FLAGS = IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST };

/* The statistics of the interface, which programs read behind its MAC address: none. Marks entries of ours: ifa_data
 * points here. */
static struct rtnl_link_stats is_ours;

static void set_four(struct sockaddr_storage *into, const unsigned char *octets)
{
	struct sockaddr_in *four = (struct sockaddr_in *)into;

	four->sin_family = AF_INET;
	memcpy(&four->sin_addr, octets, 4);
}

static void set_six(struct sockaddr_storage *into, const unsigned char *octets)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)into;

	six->sin6_family = AF_INET6;
	memcpy(&six->sin6_addr, octets, 16);
}

/* The most GIDs that a port has. */
enum { GIDS = 64 };

/* Reads the first line of a file of /sys/class. 0, or -1. By its own name: a program that only lists interfaces does
 * not have a device opened. */
static int read_file(const char *name, char *into, int size)
{
	const char *folder = getenv("RINGSIDE_FILES");
	char path[PATH_MAX];
	FILE *file;
	int found;

	if (folder == NULL || snprintf(path, sizeof(path), "%s/sys/class/%s", folder, name) >= PATH_MAX)
		return -1;
	file = fopen(path, "r");
	if (file == NULL)
		return -1;
	found = fgets(into, size, file) != NULL ? 0 : -1;
	fclose(file);
	if (found == 0)
		into[strcspn(into, "\n")] = 0;
	return found;
}

static int read_of_gid(const char *kind, int index, char *into, int size)
{
	char name[96];

	snprintf(name, sizeof(name), "infiniband/ringside0/ports/1/%s/%d", kind, index);
	return read_file(name, into, size);
}

/* The index of the interface, 0 without one. */
static unsigned int index_of_interface(void)
{
	char text[32];

	return read_file("net/" INTERFACE "/ifindex", text, sizeof(text)) == 0 ? (unsigned int)strtoul(text, NULL, 10) : 0;
}

/* An entry without an address; NULL without memory. */
static struct interface *new_entry(void)
{
	struct interface *made = calloc(1, sizeof(*made));

	if (made == NULL)
		return NULL;
	strcpy(made->name, INTERFACE);
	made->entry.ifa_name = made->name;
	made->entry.ifa_flags = INTERFACE_FLAGS;
	made->entry.ifa_addr = (struct sockaddr *)&made->address;
	made->entry.ifa_data = &is_ours;
	return made;
}

/* Writes a mask of so many bits into octets that are zero. */
static void set_bits(unsigned char *octets, int most, const char *text)
{
	int bits = atoi(text), i;

	for (i = 0; i < bits && i < most; i++)
		octets[i / 8] |= 0x80 >> i % 8;
}

/* An entry for an address that a file of GIDs holds; NULL without one. */
static struct interface *interface_of(int index)
{
	static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
	static const unsigned char none[16];
	unsigned char gid[16], mask[16] = {0}, broadcast[4];
	char text[64], prefix[8] = "128";
	struct interface *made;
	int place;

	if (read_of_gid("gids", index, text, sizeof(text)) != 0 || inet_pton(AF_INET6, text, gid) != 1 ||
	    memcmp(gid, none, sizeof(none)) == 0)
		return NULL;
	made = new_entry();
	if (made == NULL)
		return NULL;
	read_of_gid("prefixes", index, prefix, sizeof(prefix));
	if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
		set_bits(mask, 32, prefix);
		set_four(&made->address, gid + 12);
		set_four(&made->mask, mask);
		for (place = 0; place < 4; place++)
			broadcast[place] = gid[12 + place] | (unsigned char)~mask[place];
		set_four(&made->broadcast, broadcast);
		made->entry.ifa_broadaddr = (struct sockaddr *)&made->broadcast;
	} else {
		set_bits(mask, 128, prefix);
		set_six(&made->address, gid);
		/* As the C library says it of interfaces of the kernel. */
		if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80)
			((struct sockaddr_in6 *)&made->address)->sin6_scope_id = index_of_interface();
		set_six(&made->mask, mask);
	}
	made->entry.ifa_netmask = (struct sockaddr *)&made->mask;
	return made;
}

/* Ethernet, as ARP numbers it. */
enum { ETHERNET = 1 };

/* Reads a MAC address. 0, or -1. */
static int read_octets(const char *text, unsigned char *into)
{
	unsigned int octet[6];
	int place;

	if (sscanf(text, "%x:%x:%x:%x:%x:%x", &octet[0], &octet[1], &octet[2], &octet[3], &octet[4], &octet[5]) != 6)
		return -1;
	for (place = 0; place < 6; place++)
		into[place] = (unsigned char)octet[place];
	return 0;
}

/* The entry that has the MAC address; NULL without a device. */
static struct interface *link_of_interface(void)
{
	struct sockaddr_ll *link;
	struct interface *made;
	char text[32];

	if (read_file("net/" INTERFACE "/address", text, sizeof(text)) != 0)
		return NULL;
	made = new_entry();
	if (made == NULL)
		return NULL;
	link = (struct sockaddr_ll *)&made->address;
	link->sll_family = AF_PACKET;
	link->sll_ifindex = (int)index_of_interface();
	link->sll_hatype = ETHERNET;
	link->sll_halen = 6;
	if (read_octets(text, link->sll_addr) == 0) {
		memcpy(&made->broadcast, link, sizeof(*link));
		memset(((struct sockaddr_ll *)&made->broadcast)->sll_addr, 0xff, 6);
		made->entry.ifa_broadaddr = (struct sockaddr *)&made->broadcast;
		return made;
	}
	free(made);
	return NULL;
}

/* Puts an entry before the others, if there is one. */
static void add(struct ifaddrs **list, struct interface *made)
{
	if (made != NULL) {
		made->entry.ifa_next = *list;
		*list = &made->entry;
	}
}

EXPORT int getifaddrs(struct ifaddrs **list)
{
	int result = NEXT(getifaddrs)(list);
	int index;

	if (result != 0 || getenv("RINGSIDE_FILES") == NULL)
		return result;
	for (index = 0; index < GIDS; index++)
		add(list, interface_of(index));
	add(list, link_of_interface());
	return 0;
}

EXPORT void freeifaddrs(struct ifaddrs *list)
{
	struct ifaddrs *next;

	while (list != NULL && list->ifa_data == &is_ours) {
		next = list->ifa_next;
		free(list);
		list = next;
	}
	NEXT(freeifaddrs)(list);
}

/* Reads a line of a file about the interface; the device is opened first if it was not. 0, or -1. */
static int read_about(const char *file, char *into, int size)
{
	void (*write_files)(void);
	char path[PATH_MAX];
	FILE *opened;
	int turn, found = -1;

	snprintf(path, sizeof(path), "/sys/class/net/" INTERFACE "/%s", file);
	for (turn = 0; turn < 2; turn++) {
		opened = fopen(path, "r");
		if (opened != NULL) {
			found = fgets(into, size, opened) != NULL ? 0 : -1;
			fclose(opened);
			return found;
		}
		write_files = (void (*)(void))dlsym(RTLD_DEFAULT, "ringside_write_files");
		if (write_files == NULL)
			return -1;
		write_files();
	}
	return -1;
}

/* Whether a program means the interface of the device, and it is there. Sets its index. */
static int is_interface(const char *name, int *index)
{
	char text[32];
	int before = errno;
	int found = strncmp(name, INTERFACE, IFNAMSIZ) == 0 && getenv("RINGSIDE_FILES") != NULL &&
		    read_about("ifindex", text, sizeof(text)) == 0;

	errno = before;
	if (found)
		*index = atoi(text);
	return found;
}

/* The first IPv4 address, or its mask or broadcast address. 0, or an errno value. */
static int put_address(unsigned long request, struct sockaddr *into)
{
	struct sockaddr_in four;
	struct interface *made;
	in_addr_t mask;
	int index;

	for (index = 0; index < GIDS; index++) {
		made = interface_of(index);
		if (made == NULL)
			continue;
		memcpy(&four, &made->address, sizeof(four));
		mask = ((struct sockaddr_in *)&made->mask)->sin_addr.s_addr;
		free(made);
		if (four.sin_family != AF_INET)
			continue;
		if (request == SIOCGIFNETMASK)
			four.sin_addr.s_addr = mask;
		else if (request == SIOCGIFBRDADDR)
			four.sin_addr.s_addr |= ~mask;
		memcpy(into, &four, sizeof(four));
		return 0;
	}
	return EADDRNOTAVAIL;
}

static int put_hardware_address(struct sockaddr *into)
{
	char text[32];

	memset(into, 0, sizeof(*into));
	into->sa_family = ETHERNET;
	if (read_about("address", text, sizeof(text)) != 0 ||
	    read_octets(text, (unsigned char *)into->sa_data) != 0)
		return EADDRNOTAVAIL;
	return 0;
}

/* Answers a request for the interface of the device. 0, or an errno value. */
static int put_about(unsigned long request, struct ifreq *asked, int index)
{
	char text[32];

	switch (request) {
	case SIOCGIFADDR:
	case SIOCGIFNETMASK:
	case SIOCGIFBRDADDR:
		return put_address(request, &asked->ifr_addr);
	case SIOCGIFHWADDR:
		return put_hardware_address(&asked->ifr_hwaddr);
	case SIOCGIFFLAGS:
		asked->ifr_flags = INTERFACE_FLAGS;
		return 0;
	case SIOCGIFMTU:
		if (read_about("mtu", text, sizeof(text)) != 0)
			return ENODEV;
		asked->ifr_mtu = atoi(text);
		return 0;
	default:
		asked->ifr_ifindex = index;
		return 0;
	}
}

EXPORT int ioctl(int descriptor, unsigned long request, ...)
{
	__typeof__(&ioctl) known = NEXT(ioctl);
	int index, error;
	void *argument;
	va_list more;

	va_start(more, request);
	argument = va_arg(more, void *);
	va_end(more);
	switch (request) {
	case SIOCGIFADDR:
	case SIOCGIFNETMASK:
	case SIOCGIFBRDADDR:
	case SIOCGIFHWADDR:
	case SIOCGIFFLAGS:
	case SIOCGIFMTU:
	case SIOCGIFINDEX:
		/* What the kernel says of the descriptor comes first. */
		error = known(descriptor, request, argument);
		if (error == 0 || errno != ENODEV)
			return error;
		break;
	default:
		return known(descriptor, request, argument);
	}
	if (!is_interface(((struct ifreq *)argument)->ifr_name, &index)) {
		errno = ENODEV;
		return -1;
	}
	error = put_about(request, argument, index);
	if (error != 0)
		errno = error;
	return error == 0 ? 0 : -1;
}

EXPORT unsigned int if_nametoindex(const char *name)
{
	int index;

	return is_interface(name, &index) ? (unsigned int)index : NEXT(if_nametoindex)(name);
}

EXPORT char *if_indextoname(unsigned int index, char *name)
{
	int ours;

	/* Not for the kernel's own, of which the device need not be opened. */
	if (index < 1U << 20 || !is_interface(INTERFACE, &ours) || (int)index != ours)
		return NEXT(if_indextoname)(index, name);
	return strcpy(name, INTERFACE);
}
