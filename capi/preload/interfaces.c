/* Answers about the interface of the device.
 *
 * The device has no interface of the kernel, and programs look for one: by its name (ioctl,
 * if_nametoindex), or in the list of all (getifaddrs, if_nameindex). What they are told is in the
 * files below /sys/class (files.c). The list has it in a program that has loaded libibverbs, and once
 * a device was opened: another program that only lists interfaces does not have one opened.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "helper.h"
#include "next.h"

/* Name of the interface of the device. */
#define INTERFACE "ringside0"

/* An entry of the list of interfaces. Libraries ask for the addresses of all, and look for RDMA behind each
 * (libfabric): there is one for each address of the device. */
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
	const char *folder = files_folder();
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

/* The same for a list of all interfaces. A program with verbs may look for its device's address there before it opens
 * the device (Open MPI's openib, corosync). */
static unsigned int index_for_a_list(void)
{
	unsigned int index = index_of_interface();

	if (index != 0 || files_folder() == NULL)
		return index;
	write_files_for_a_list();
	return index_of_interface();
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

	if (result != 0 || index_for_a_list() == 0)
		return result;
	for (index = 0; index < GIDS; index++)
		add(list, interface_of(index));
	add(list, link_of_interface());
	return 0;
}

EXPORT struct if_nameindex *if_nameindex(void)
{
	struct if_nameindex *list = NEXT(if_nameindex)(), *longer;
	unsigned int index = index_for_a_list();
	size_t count = 0;
	char *name;

	if (list == NULL || index == 0)
		return list;
	while (list[count].if_index != 0)
		count++;
	/* As the C library allocates: its if_freenameindex frees the names, and then the list. */
	name = strdup(INTERFACE);
	longer = name == NULL ? NULL : realloc(list, (count + 2) * sizeof(*list));
	if (longer == NULL) {
		free(name);
		return list;
	}
	longer[count + 1] = longer[count];
	longer[count].if_index = index;
	longer[count].if_name = name;
	return longer;
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
		write_files = ringside_function("ringside_write_files");
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
	int found = strncmp(name, INTERFACE, IFNAMSIZ) == 0 && files_folder() != NULL &&
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

/* Adds the interface to the kernel's answer, once for each IPv4 address, as far as there is room for it; without a
 * place it adds to the room that is wanted. */
static void add_to_list(struct ifconf *list, int room)
{
	struct interface *made;
	struct ifreq entry;
	int index;

	for (index = 0; index < GIDS; index++) {
		made = interface_of(index);
		if (made == NULL)
			continue;
		memset(&entry, 0, sizeof(entry));
		strcpy(entry.ifr_name, INTERFACE);
		memcpy(&entry.ifr_addr, &made->address, sizeof(entry.ifr_addr));
		free(made);
		if (entry.ifr_addr.sa_family != AF_INET)
			continue;
		if (list->ifc_buf != NULL) {
			if (list->ifc_len + (int)sizeof(entry) > room)
				return;
			memcpy(list->ifc_buf + list->ifc_len, &entry, sizeof(entry));
		}
		list->ifc_len += sizeof(entry);
	}
}

EXPORT int ioctl(int descriptor, unsigned long request, ...)
{
	__typeof__(&ioctl) known = NEXT(ioctl);
	struct ifreq *asked;
	int index, error, room;
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
	case SIOCGIFNAME:
		/* What the kernel says of the descriptor comes first. */
		error = known(descriptor, request, argument);
		if (error == 0 || errno != ENODEV)
			return error;
		break;
	case SIOCGIFCONF:
		room = argument == NULL ? 0 : ((struct ifconf *)argument)->ifc_len;
		error = known(descriptor, request, argument);
		if (error == 0 && index_for_a_list() != 0)
			add_to_list(argument, room);
		return error;
	default:
		return known(descriptor, request, argument);
	}
	if (request == SIOCGIFNAME) {
		asked = argument;
		if (if_indextoname((unsigned int)asked->ifr_ifindex, asked->ifr_name) != NULL)
			return 0;
		errno = ENODEV;
		return -1;
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

EXPORT char *if_indextoname(unsigned int index, char name[IF_NAMESIZE])
{
	int ours;

	/* Not for the kernel's own, for which the device need not be opened. */
	if (index < 1U << 20 || !is_interface(INTERFACE, &ours) || (int)index != ours)
		return NEXT(if_indextoname)(index, name);
	return strcpy(name, INTERFACE);
}
