/* Addresses of the model's ports, for sockets of the kernel.
 *
 * Programs exchange numbers over TCP or UDP before they use RDMA, by the address of the peer's port.
 * The kernel does not have that address: the port is the model's. Here a socket that connects, binds
 * or sends to it uses an address of the loopback interface instead, 127.232.x.y for 10.0.x.y, and
 * the program is told the address that it knows. A server that listens on all addresses needs
 * nothing.
 *
 * RINGSIDE_LOOPBACK says which addresses these are: OWN,FIRST,COUNT, and ",always" behind it.
 * Without "always", an address stays as it is if the kernel has it, or has a route to it that is not the default
 * one. Nothing is done without the variable. Only for TCP and UDP over IPv4, also as mapped into IPv6.
 *
 * No call waits here. Nothing is allocated, errno is left alone, and system calls are made
 * directly: another preloaded library may have functions of the same names (librspreload).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "next.h"

/* 127.232.0.0/16: the low half is that of the port's address. */
static const uint32_t loopback_net = 0x7FE80000, low_half = 0xFFFF;
/* The prefix of IPv4 addresses in IPv6. */
static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
/* The most ports that RINGSIDE_LOOPBACK names: each has a bit in a word. */
enum { MOST_PORTS = 32 };
/* The kernel takes no more messages in one call (UIO_MAXIOV). */
enum { MOST_MESSAGES = 1024 };
/* States of RINGSIDE_LOOPBACK. */
enum { NOT_READ, NOTHING_TO_DO, IN_USE };

/* Addresses of the ports, in the order of bytes of this machine. Written once, before `state`. */
static uint32_t own_address, first_address, port_count;
static int always;
static int state;
/* A bit for each port: the kernel was asked for its address; the kernel has it. */
static uint32_t was_asked, is_kernels;

/* Reads an address up to a comma, and goes on behind it. 0, or -1. */
static int take_address(const char **text, uint32_t *into)
{
	char one[INET_ADDRSTRLEN] = "";
	size_t length = strcspn(*text, ",");
	struct in_addr found;

	if (length >= sizeof(one) || (*text)[length] != ',')
		return -1;
	memcpy(one, *text, length);
	if (inet_pton(AF_INET, one, &found) != 1)
		return -1;
	*into = ntohl(found.s_addr);
	*text += length + 1;
	return 0;
}

/* Reads the variable. Threads that come at once write the same values. */
static int read_variable(void)
{
	const char *text = getenv("RINGSIDE_LOOPBACK");
	uint32_t own, first;
	unsigned long count;
	char *end;
	int found = NOTHING_TO_DO;

	if (text != NULL && take_address(&text, &own) == 0 && take_address(&text, &first) == 0) {
		count = strtoul(text, &end, 10);
		if (end != text && count > 0 && count <= MOST_PORTS && (*end == 0 || strcmp(end, ",always") == 0)) {
			__atomic_store_n(&own_address, own, __ATOMIC_RELAXED);
			__atomic_store_n(&first_address, first, __ATOMIC_RELAXED);
			__atomic_store_n(&port_count, count, __ATOMIC_RELAXED);
			__atomic_store_n(&always, *end != 0, __ATOMIC_RELAXED);
			found = IN_USE;
		}
	}
	__atomic_store_n(&state, found, __ATOMIC_RELEASE);
	return found;
}

static int is_in_use(void)
{
	int found = __atomic_load_n(&state, __ATOMIC_ACQUIRE);

	return (found == NOT_READ ? read_variable() : found) == IN_USE;
}

/* Before the program may change its variables. */
__attribute__((constructor)) static void prepare(void)
{
	is_in_use();
}

/* The question for a route, and room for the answer. */
struct question {
	struct nlmsghdr header;
	struct rtmsg route;
	struct rtattr attribute;
	uint32_t address;
};

/* True if the kernel has a route to the address that is not the default one; -1 if it does not say. */
static int has_route(uint32_t address)
{
	struct question question = {
		.header = {sizeof(question), RTM_GETROUTE, NLM_F_REQUEST, 1, 0},
		.route = {.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_flags = RTM_F_FIB_MATCH},
		.attribute = {RTA_LENGTH(sizeof(address)), RTA_DST},
		.address = htonl(address),
	};
	union {
		struct nlmsghdr header;
		char bytes[1024];
	} answer;
	const struct rtmsg *route = NLMSG_DATA(&answer.header);
	int asking = (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	long got = -1;

	if (asking < 0)
		return -1;
	/* The kernel answers within the call. */
	if (syscall(SYS_sendto, asking, &question, sizeof(question), 0, NULL, 0) > 0)
		got = syscall(SYS_recvfrom, asking, &answer, sizeof(answer), MSG_DONTWAIT, NULL, NULL);
	syscall(SYS_close, asking);
	if (got < (long)sizeof(answer.header))
		return -1;
	if (answer.header.nlmsg_type == NLMSG_ERROR)
		return 0;
	if (answer.header.nlmsg_type != RTM_NEWROUTE || got < (long)NLMSG_LENGTH(sizeof(*route)))
		return -1;
	/* Kernels before 4.13 do not say which route it was. */
	if (route->rtm_flags & RTM_F_CLONED)
		return route->rtm_type == RTN_LOCAL;
	/* Tunnels divide the default route into two of one bit. */
	return route->rtm_dst_len > 1;
}

/* True if a socket can be bound to the address. */
static int is_local(uint32_t address)
{
	struct sockaddr_in wanted = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
	int probe = (int)syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int bound = probe >= 0 && syscall(SYS_bind, probe, &wanted, sizeof(wanted)) == 0;

	if (probe >= 0)
		syscall(SYS_close, probe);
	return bound;
}

/* True if the kernel has the address of a port, or a route to it. Asked once: all sockets of a program are treated alike. */
static int is_of_the_kernel(uint32_t address)
{
	uint32_t bit = 1U << (address - first_address);
	int found;

	if (always)
		return 0;
	if (!(__atomic_load_n(&was_asked, __ATOMIC_ACQUIRE) & bit)) {
		found = has_route(address);
		if (found < 0)
			found = is_local(address);
		if (found)
			__atomic_fetch_or(&is_kernels, bit, __ATOMIC_RELAXED);
		__atomic_fetch_or(&was_asked, bit, __ATOMIC_RELEASE);
	}
	return (__atomic_load_n(&is_kernels, __ATOMIC_RELAXED) & bit) != 0;
}

static int is_of_a_port(uint32_t address)
{
	return address - first_address < port_count;
}

/* The four octets of an IPv4 address; NULL for another one, or if `length` does not reach that far. */
static unsigned char *octets_of(void *address, socklen_t length)
{
	struct sockaddr_in *four = address;
	struct sockaddr_in6 *six = address;

	if (length >= offsetof(struct sockaddr_in, sin_zero) && four->sin_family == AF_INET)
		return (unsigned char *)&four->sin_addr;
	if (length >= offsetof(struct sockaddr_in6, sin6_scope_id) && six->sin6_family == AF_INET6 &&
	    memcmp(&six->sin6_addr, mapped, sizeof(mapped)) == 0)
		return six->sin6_addr.s6_addr + sizeof(mapped);
	return NULL;
}

static uint32_t read_octets(const unsigned char *octets)
{
	uint32_t value;

	memcpy(&value, octets, sizeof(value));
	return ntohl(value);
}

static void write_octets(unsigned char *octets, uint32_t value)
{
	value = htonl(value);
	memcpy(octets, &value, sizeof(value));
}

/* An integer socket option; -1 if the descriptor is not a socket. */
static int option_of(int descriptor, int option)
{
	int value = -1;
	socklen_t length = sizeof(value);

	return syscall(SYS_getsockopt, descriptor, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

/* True for a socket of the kernel that speaks TCP or UDP over IP. Multipath TCP is TCP here. */
static int is_for_programs(int descriptor)
{
	int protocol = option_of(descriptor, SO_PROTOCOL);
	int domain = option_of(descriptor, SO_DOMAIN);

	return (domain == AF_INET || domain == AF_INET6) &&
	       (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_MPTCP);
}

/* The address that the kernel gets for `given`: itself, or one of the loopback interface, in `place`. With
 * `only_own`, that of the program's own port alone. */
static const struct sockaddr *to_kernel(int descriptor, const struct sockaddr *given, socklen_t length, int only_own,
					struct sockaddr_storage *place)
{
	unsigned char *octets;
	uint32_t address;
	int before = errno, is_ports;

	if (given == NULL || length > sizeof(*place) || !is_in_use())
		return given;
	memcpy(place, given, length);
	octets = octets_of(place, length);
	if (octets == NULL)
		return given;
	address = read_octets(octets);
	if (!is_of_a_port(address) || (only_own && address != own_address))
		return given;
	is_ports = is_for_programs(descriptor) && !is_of_the_kernel(address);
	errno = before;
	if (!is_ports)
		return given;
	write_octets(octets, loopback_net | (address & low_half));
	return (const struct sockaddr *)place;
}

/* Names a port by its own address, where the kernel has written that of the loopback interface. The program gave
 * `room` for it, and the address has `length`. */
static void to_program(struct sockaddr *told, socklen_t room, socklen_t length)
{
	unsigned char *octets;
	uint32_t address;

	if (told == NULL || !is_in_use())
		return;
	octets = octets_of(told, room < length ? room : length);
	if (octets == NULL)
		return;
	address = read_octets(octets);
	if ((address & ~low_half) != loopback_net)
		return;
	address = (first_address & ~low_half) | (address & low_half);
	if (is_of_a_port(address))
		write_octets(octets, address);
}

/* True if the socket has no address yet. Sets its family, and `port` to its port. */
static int is_without_address(int descriptor, struct sockaddr_storage *own, in_port_t *port)
{
	socklen_t length = sizeof(*own);
	const struct sockaddr_in *four = (const struct sockaddr_in *)own;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)own;

	if (syscall(SYS_getsockname, descriptor, own, &length) != 0)
		return 0;
	*port = four->sin_port; /* also that of IPv6 */
	if (own->ss_family == AF_INET)
		return four->sin_addr.s_addr == INADDR_ANY;
	return own->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
}

/* Binds an unbound socket to this program's own loopback address, so that the peer sees it as the source. The kernel
 * chooses the number when it connects. */
static void take_own_address(int descriptor)
{
	struct sockaddr_storage own;
	struct sockaddr_in *four = (struct sockaddr_in *)&own;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&own;
	uint32_t address = loopback_net | (own_address & low_half);
	int before = errno, yes = 1;
	in_port_t port;

	if (is_without_address(descriptor, &own, &port) && port == 0) {
		syscall(SYS_setsockopt, descriptor, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof(yes));
		if (own.ss_family == AF_INET) {
			write_octets((unsigned char *)&four->sin_addr, address);
			syscall(SYS_bind, descriptor, four, sizeof(*four));
		} else {
			memcpy(&six->sin6_addr, mapped, sizeof(mapped));
			write_octets(six->sin6_addr.s6_addr + sizeof(mapped), address);
			syscall(SYS_bind, descriptor, six, sizeof(*six));
		}
	}
	errno = before;
}

EXPORT int connect(int descriptor, __CONST_SOCKADDR_ARG given, socklen_t length)
{
	struct sockaddr_storage place;
	const struct sockaddr *target = to_kernel(descriptor, given.__sockaddr__, length, 0, &place);

	if (target != given.__sockaddr__)
		take_own_address(descriptor);
	return NEXT(connect)(descriptor, target, length);
}

EXPORT int bind(int descriptor, __CONST_SOCKADDR_ARG given, socklen_t length)
{
	struct sockaddr_storage place;

	return NEXT(bind)(descriptor, to_kernel(descriptor, given.__sockaddr__, length, 1, &place), length);
}

/* Control data that names the program's port as the source of a datagram. */
union source {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
};

/* Adds the source to a datagram of a socket that is not bound to an address, unless the program sends control data. */
static void name_source(int descriptor, struct msghdr *message, union source *source)
{
	struct in_pktinfo info = {.ipi_spec_dst.s_addr = htonl(loopback_net | (own_address & low_half))};
	struct sockaddr_storage own;
	in_port_t port;
	int before = errno;

	if (message->msg_controllen == 0 && option_of(descriptor, SO_PROTOCOL) == IPPROTO_UDP &&
	    is_without_address(descriptor, &own, &port)) {
		memset(source, 0, sizeof(*source));
		source->header.cmsg_len = CMSG_LEN(sizeof(info));
		source->header.cmsg_level = SOL_IP;
		source->header.cmsg_type = IP_PKTINFO;
		memcpy(CMSG_DATA(&source->header), &info, sizeof(info));
		message->msg_control = source;
		message->msg_controllen = sizeof(*source);
	}
	errno = before;
}

EXPORT ssize_t sendmsg(int descriptor, const struct msghdr *given, int flags)
{
	struct sockaddr_storage place;
	const struct sockaddr *target;
	struct msghdr message;
	union source source;

	if (given == NULL || given->msg_name == NULL)
		return NEXT(sendmsg)(descriptor, given, flags);
	target = to_kernel(descriptor, given->msg_name, given->msg_namelen, 0, &place);
	if (target == given->msg_name)
		return NEXT(sendmsg)(descriptor, given, flags);
	message = *given;
	message.msg_name = (void *)target;
	name_source(descriptor, &message, &source);
	return NEXT(sendmsg)(descriptor, &message, flags);
}

/* One message after the other, if one of them names an address of a port: as in the kernel, an error after the first
 * message is not reported, and the next call meets it again. */
EXPORT int sendmmsg(int descriptor, struct mmsghdr *messages, unsigned int count, int flags)
{
	struct sockaddr_storage place;
	const struct msghdr *one;
	unsigned int i;
	ssize_t done;

	/* The kernel refuses it. */
	if (messages == NULL)
		return NEXT(sendmmsg)(descriptor, messages, count, flags);
	for (i = 0; i < count; i++) {
		one = &messages[i].msg_hdr;
		if (one->msg_name != NULL &&
		    to_kernel(descriptor, one->msg_name, one->msg_namelen, 0, &place) != one->msg_name)
			break;
	}
	if (i == count)
		return NEXT(sendmmsg)(descriptor, messages, count, flags);
	for (i = 0; i < count && i < MOST_MESSAGES; i++) {
		done = sendmsg(descriptor, &messages[i].msg_hdr, flags);
		if (done < 0)
			break;
		messages[i].msg_len = done;
	}
	return i > 0 ? (int)i : -1;
}

EXPORT ssize_t sendto(int descriptor, const void *bytes, size_t count, int flags, __CONST_SOCKADDR_ARG given,
		      socklen_t length)
{
	struct sockaddr_storage place;
	const struct sockaddr *target = to_kernel(descriptor, given.__sockaddr__, length, 0, &place);
	struct iovec part = {(void *)bytes, count};
	struct msghdr message = {.msg_name = (void *)target, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1};
	union source source;

	if (target == given.__sockaddr__)
		return NEXT(sendto)(descriptor, bytes, count, flags, target, length);
	name_source(descriptor, &message, &source);
	return NEXT(sendmsg)(descriptor, &message, flags);
}

/* A function that fills in an address. `room` is what the program gave for it; without an address the kernel does not
 * read the length. */
#define TELLS(result, name, parameters, arguments)                                                 \
	EXPORT result name parameters                                                              \
	{                                                                                          \
		int is_told = told.__sockaddr__ != NULL && length != NULL;                         \
		socklen_t room = is_told ? *length : 0;                                            \
		result done = NEXT(name) arguments;                                                \
                                                                                                   \
		if (done >= 0)                                                                     \
			to_program(told.__sockaddr__, room, is_told ? *length : 0);           \
		return done;                                                                       \
	}
TELLS(int, getpeername, (int descriptor, __SOCKADDR_ARG told, socklen_t *restrict length), (descriptor, told, length))
TELLS(int, getsockname, (int descriptor, __SOCKADDR_ARG told, socklen_t *restrict length), (descriptor, told, length))
TELLS(int, accept, (int descriptor, __SOCKADDR_ARG told, socklen_t *restrict length), (descriptor, told, length))
TELLS(int, accept4, (int descriptor, __SOCKADDR_ARG told, socklen_t *restrict length, int flags),
      (descriptor, told, length, flags))
TELLS(ssize_t, recvfrom,
      (int descriptor, void *restrict into, size_t size, int flags, __SOCKADDR_ARG told, socklen_t *restrict length),
      (descriptor, into, size, flags, told, length))
/* Source fortified with _FORTIFY_SOURCE calls this one. */
extern ssize_t __recvfrom_chk(int descriptor, void *restrict into, size_t size, size_t room_of_bytes, int flags,
			      __SOCKADDR_ARG told, socklen_t *restrict length);
TELLS(ssize_t, __recvfrom_chk,
      (int descriptor, void *restrict into, size_t size, size_t room_of_bytes, int flags, __SOCKADDR_ARG told,
       socklen_t *restrict length),
      (descriptor, into, size, room_of_bytes, flags, told, length))

EXPORT ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
	socklen_t room = message == NULL || message->msg_name == NULL ? 0 : message->msg_namelen;
	ssize_t done = NEXT(recvmsg)(descriptor, message, flags);

	if (done >= 0 && room > 0)
		to_program(message->msg_name, room, message->msg_namelen);
	return done;
}

EXPORT int recvmmsg(int descriptor, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout)
{
	socklen_t rooms[MOST_MESSAGES];
	int done;

	if (messages == NULL)
		return NEXT(recvmmsg)(descriptor, messages, count, flags, timeout);
	if (count > MOST_MESSAGES)
		count = MOST_MESSAGES;
	for (unsigned int i = 0; i < count; i++)
		rooms[i] = messages[i].msg_hdr.msg_name == NULL ? 0 : messages[i].msg_hdr.msg_namelen;
	done = NEXT(recvmmsg)(descriptor, messages, count, flags, timeout);
	for (int i = 0; i < done; i++)
		if (rooms[i] > 0)
			to_program(messages[i].msg_hdr.msg_name, rooms[i], messages[i].msg_hdr.msg_namelen);
	return done;
}
