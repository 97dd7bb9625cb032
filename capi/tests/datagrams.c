/* Datagram sockets over RDMA, beyond what udpong shows.
 *
 *   datagrams server ADDRESS   echoes what it gets, and obeys the client
 *   datagrams client ADDRESS   makes the steps against the server at the address
 *   datagrams names ADDRESS C  answers each datagram with the character, until it is killed
 *   datagrams hears ADDRESS C  sends until it is answered with each of the characters in turn
 */
#include <arpa/inet.h>
#include "open_descriptors.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PORT 7420
#define NOBODY 7429
#define LONGEST 4096
#define PEERS 20
#define NAMES_MS 20000

static unsigned char in[LONGEST], out[LONGEST + 1];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static double now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void sleep_ms(long ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

static struct sockaddr_in address(const char *text, int port)
{
	struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(port)};

	check(inet_pton(AF_INET, text, &all.sin_addr) == 1, "address");
	return all;
}

static int made(void)
{
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);

	check(fd >= 0, "rsocket");
	return fd;
}

static int bound(const struct sockaddr_in *own)
{
	int fd = made();

	check(rbind(fd, (const struct sockaddr *)own, sizeof *own) == 0, "rbind");
	return fd;
}

static struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in own;
	socklen_t length = sizeof own;

	check(rgetsockname(fd, (struct sockaddr *)&own, &length) == 0, "rgetsockname");
	check(length == sizeof own && own.sin_family == AF_INET, "a name");
	return own;
}

static int is_readable(int fd, int ms)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	int found = rpoll(&one, 1, ms);

	check(found >= 0, "rpoll");
	return found == 1 && one.revents == POLLIN;
}

static int same(const struct sockaddr_in *one, const struct sockaddr_in *other)
{
	return one->sin_addr.s_addr == other->sin_addr.s_addr && one->sin_port == other->sin_port;
}

static void send_to(int fd, size_t length, const struct sockaddr_in *to)
{
	ssize_t sent = rsendto(fd, out, length, 0, (const struct sockaddr *)to, sizeof *to);

	check(sent == (ssize_t)length, "rsendto");
}

/* The datagrams of a client: the first byte says what the server does. */
static void serve(const char *text)
{
	struct sockaddr_in own = address(text, PORT), peer;
	int fd = bound(&own);

	while (1) {
		socklen_t length = sizeof peer;
		ssize_t got = rrecvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&peer, &length);

		check(got >= 0 && length == sizeof peer, "rrecvfrom");
		memcpy(out, in, got);
		if (got > 0 && in[0] == 'n') { /* the name of the client, as it is seen here */
			memcpy(out + 1, &peer, sizeof peer);
			got = 1 + sizeof peer;
		}
		if (got > 0 && in[0] == 'm') { /* another socket takes this one's place */
			check(rclose(fd) == 0, "rclose");
			fd = bound(&own);
			continue;
		}
		send_to(fd, got, &peer);
		if (got > 0 && in[0] == 'q')
			break;
	}
	check(rclose(fd) == 0, "rclose");
}

/* Sends a datagram until its echo is there: either may be lost. */
static ssize_t ask(int fd, size_t length, const struct sockaddr_in *to)
{
	for (int i = 0; i < 20; i++) {
		struct sockaddr_in from;
		socklen_t from_length = sizeof from;
		ssize_t got;

		send_to(fd, length, to);
		while (is_readable(fd, 500)) {
			got = rrecvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&from, &from_length);
			check(got >= 0 && from_length == sizeof from && same(&from, to), "the source");
			if (got == 0 || in[0] == out[0])
				return got;
		}
	}
	check(0, "an answer");
	return -1;
}

static void drain(int fd)
{
	while (is_readable(fd, 50))
		check(rrecv(fd, in, sizeof in, MSG_DONTWAIT) >= 0, "rrecv");
}

static void options_and_names(const struct sockaddr_in *server)
{
	int fd = made(), value = 64, buffer = 100000;
	struct sockaddr_in own;
	socklen_t length = sizeof value;

	check(name_of(fd).sin_port == 0, "no port yet");
	check(rgetpeername(fd, (struct sockaddr *)&own, &length) == -1 && errno == ENOTCONN, "no peer");
	length = sizeof value;
	check(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_DGRAM, "SO_TYPE");
	check(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0, "SO_RCVBUF");
	check(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &length) == 0 && value == 200000, "SO_RCVBUF");
	value = 64;
	check(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &value, sizeof value) == 0, "RDMA_RQSIZE");
	check(rsend(fd, out, 1, 0) == -1 && errno == EDESTADDRREQ, "no one to send to");
	check(rlisten(fd, 1) == -1 && errno == EOPNOTSUPP, "rlisten");
	check(rshutdown(fd, SHUT_RD) == -1 && errno == ENOTCONN, "rshutdown");
	check(rconnect(fd, (const struct sockaddr *)server, sizeof *server) == 0, "rconnect");
	own = name_of(fd);
	check(own.sin_port != 0 && own.sin_addr.s_addr != 0, "a port by rconnect");
	length = sizeof own;
	check(rgetpeername(fd, (struct sockaddr *)&own, &length) == 0 && same(&own, server), "peer");
	check(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &value, sizeof value) == -1, "too late");
	own = name_of(fd);
	check(rbind(fd, (struct sockaddr *)&own, sizeof own) == -1 && errno == EINVAL, "a second rbind");
	own.sin_port = htons(PORT + 1);
	value = bound(&own);
	check(rbind(made(), (struct sockaddr *)&own, sizeof own) == -1, "a port that is taken");
	check(rclose(value) == 0 && rclose(fd) == 0, "rclose");
	check(rclose(fd) == -1 && errno == EBADF, "a second rclose");
	check(rclose(bound(&own)) == 0, "the port is free again");
}

static void boundaries(int fd, const struct sockaddr_in *server)
{
	static const size_t lengths[] = {1, 1000, 17, 0, 64, 65, 900};
	struct iovec two[2] = {{in, 4}, {in + 100, 6}}, whole = {out, 100};
	struct sockaddr_in from;
	struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = two, .msg_iovlen = 2};
	struct msghdr sent = {.msg_name = (void *)server, .msg_namelen = sizeof *server, .msg_iov = &whole, .msg_iovlen = 1};

	check(rsendto(fd, out, LONGEST + 1, 0, (const struct sockaddr *)server, sizeof *server) == -1 && errno == EMSGSIZE, "EMSGSIZE");
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		send_to(fd, lengths[i], server);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		check(is_readable(fd, 5000), "an echo");
		check(rrecv(fd, in, sizeof in, 0) == (ssize_t)lengths[i], "the length of a datagram");
		check(memcmp(in, out, lengths[i]) == 0, "the bytes of a datagram");
	}
	check(rsendmsg(fd, &sent, 0) == 100, "rsendmsg");
	send_to(fd, 50, server);
	check(is_readable(fd, 5000), "an echo");
	check(rrecv(fd, in, 3, MSG_PEEK) == 3 && memcmp(in, out, 3) == 0, "MSG_PEEK");
	check(rrecvmsg(fd, &message, 0) == 10 && message.msg_flags == MSG_TRUNC, "MSG_TRUNC");
	check(message.msg_namelen == sizeof from && same(&from, server), "msg_name");
	check(memcmp(in, out, 4) == 0 && memcmp(in + 100, out + 4, 6) == 0, "scattered");
	check(rrecv(fd, in, 5, MSG_TRUNC) == 50, "the next datagram, cut");
	errno = 0;
	check(rrecv(fd, in, sizeof in, MSG_DONTWAIT) == -1 && errno == EAGAIN, "EAGAIN");
	check(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0 && rfcntl(fd, F_GETFL) & O_NONBLOCK, "O_NONBLOCK");
	check(rrecv(fd, in, sizeof in, 0) == -1 && errno == EAGAIN, "EAGAIN");
	check(rfcntl(fd, F_SETFL, 0) == 0, "rfcntl");
}

static void sources(int fd, const struct sockaddr_in *server)
{
	struct sockaddr_in own = name_of(fd), seen, stranger;
	int other, third;

	out[0] = 'n';
	check(ask(fd, 1, server) == 1 + (ssize_t)sizeof seen, "a name");
	memcpy(&seen, in + 1, sizeof seen);
	check(same(&seen, &own), "the name that the server sees");
	drain(fd);
	/* A connected socket hears its peer only; both ends are in this process. */
	own.sin_port = 0;
	other = bound(&own);
	third = bound(&own);
	own = name_of(other);
	stranger = name_of(third);
	/* One that arrived before stays: the program may know of it. */
	send_to(fd, 3, &own);
	check(is_readable(other, 5000), "a datagram before the connection");
	check(rconnect(other, (struct sockaddr *)&stranger, sizeof stranger) == 0, "rconnect");
	send_to(third, 4, &own);
	sleep_ms(100);
	check(rrecv(other, in, sizeof in, MSG_DONTWAIT) == 3, "what arrived before");
	check(is_readable(other, 5000) && rrecv(other, in, sizeof in, 0) == 4, "what the peer sent then");
	send_to(fd, 5, &own);
	check(!is_readable(other, 500), "a stranger is not heard");
	send_to(third, 6, &own);
	check(is_readable(other, 5000) && rrecv(other, in, sizeof in, 0) == 6, "the peer is heard");
	check(rsend(other, out, 7, 0) == 7, "rsend");
	check(is_readable(third, 5000) && rrecv(third, in, sizeof in, 0) == 7, "what a peer sends");
	stranger = (struct sockaddr_in){.sin_family = AF_UNSPEC};
	check(rconnect(other, (struct sockaddr *)&stranger, sizeof stranger) == 0, "no peer any more");
	send_to(fd, 5, &own);
	check(is_readable(other, 5000) && rrecv(other, in, sizeof in, 0) == 5, "all are heard");
	check(rclose(other) == 0 && rclose(third) == 0, "rclose");
}

/* An IPv6 socket hears IPv4, unless it was told not to. */
static void families(int fd)
{
	struct sockaddr_in own = name_of(fd);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}, from;
	struct in6_addr mapped = {0};
	socklen_t length = sizeof any;
	int six = rsocket(AF_INET6, SOCK_DGRAM, 0), only = rsocket(AF_INET6, SOCK_DGRAM, 0), one = 1;

	check(six >= 0 && rbind(six, (struct sockaddr *)&any, sizeof any) == 0, "rbind of any address");
	check(rgetsockname(six, (struct sockaddr *)&any, &length) == 0 && length == sizeof any, "name");
	memset(mapped.s6_addr + 10, 0xFF, 2);
	memcpy(mapped.s6_addr + 12, &own.sin_addr, 4);
	own.sin_port = any.sin6_port;
	send_to(fd, 9, &own);
	check(is_readable(six, 5000), "IPv4 for an IPv6 socket");
	length = sizeof from;
	check(rrecvfrom(six, in, sizeof in, 0, (struct sockaddr *)&from, &length) == 9, "rrecvfrom");
	check(length == sizeof from && from.sin6_family == AF_INET6, "an IPv6 address");
	check(!memcmp(&from.sin6_addr, &mapped, sizeof mapped), "a mapped address");
	check(rsendto(six, out, 8, 0, (struct sockaddr *)&from, sizeof from) == 8, "rsendto");
	check(is_readable(fd, 5000) && rrecv(fd, in, sizeof in, 0) == 8, "the answer");
	check(rsetsockopt(only, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0, "IPV6_V6ONLY");
	check(rsendto(only, out, 8, 0, (struct sockaddr *)&from, sizeof from) == -1, "IPV6_V6ONLY");
	check(errno == EAFNOSUPPORT, "EAFNOSUPPORT");
	check(rclose(six) == 0 && rclose(only) == 0, "rclose");
}

/* Datagrams for a port without a socket are dropped, and it may have one later. */
static void nobody(int fd)
{
	struct sockaddr_in late = name_of(fd);
	double began = now_ms();
	int other;

	late.sin_port = htons(NOBODY);
	for (int i = 0; i < 200; i++)
		send_to(fd, 10, &late);
	check(now_ms() - began < 10000, "senders to no one do not stand still");
	sleep_ms(1000);
	other = bound(&late);
	check(!is_readable(other, 300), "datagrams for no one");
	send_to(fd, 11, &late);
	check(is_readable(other, 5000) && rrecv(other, in, sizeof in, 0) == 11, "now there is a socket");
	check(rclose(other) == 0, "rclose");
}

/* A connected socket can be written to unless 64 datagrams wait for a peer that does not answer. */
static void unanswered(const struct sockaddr_in *server)
{
	struct sockaddr_in silent = *server;
	struct pollfd waits = { .fd = made(), .events = POLLOUT };
	int sent = 0;

	silent.sin_addr.s_addr = htonl(ntohl(silent.sin_addr.s_addr) + 76);
	check(rconnect(waits.fd, (struct sockaddr *)&silent, sizeof silent) == 0, "rconnect");
	check(rpoll(&waits, 1, 0) == 1 && waits.revents == POLLOUT, "room");
	while (sent < 1000 && rsend(waits.fd, out, 1, MSG_DONTWAIT) == 1)
		sent++;
	check(sent == 64 && errno == EAGAIN, "64 wait");
	check(rpoll(&waits, 1, 0) == 0, "no room");
	check(rpoll(&waits, 1, 10000) == 1 && waits.revents == POLLOUT, "room once they are dropped");
	check(rclose(waits.fd) == 0, "rclose");
}

/* The server's socket is closed and made again: the client's next datagrams find it. */
static void again(int fd, const struct sockaddr_in *server)
{
	double began;
	int answers = 0;

	drain(fd);
	out[0] = 'm';
	send_to(fd, 1, server);
	sleep_ms(200);
	out[0] = 'a';
	began = now_ms();
	while (!answers && now_ms() - began < 3000) {
		send_to(fd, 20, server);
		if (is_readable(fd, 20))
			answers = rrecv(fd, in, sizeof in, 0) == 20;
	}
	check(answers, "the new socket of the server");
	drain(fd);
}

static void *receive_one(void *socket)
{
	static __thread unsigned char byte;
	ssize_t got = rrecv(*(int *)socket, &byte, 1, 0);

	return (void *)(got < 0 ? -(intptr_t)errno : (intptr_t)got);
}

/* Well below the 100 ms after which a call that nobody wakes looks again. */
#define AWAKE_MS 40

/* The shortest time that a call which waits takes to come back: a busy machine delays some of them. */
static double woken(const struct sockaddr_in *own, void (*act)(int fd, int other), intptr_t wanted)
{
	double best = 1e9;

	for (int i = 0; i < 20 && best >= AWAKE_MS; i++) {
		int fd = bound(own), other = bound(own);
		struct sockaddr_in name = name_of(fd), peer = name_of(other);
		pthread_t thread;
		double began;
		void *result;

		check(rconnect(other, (struct sockaddr *)&name, sizeof name) == 0, "rconnect");
		check(rconnect(fd, (struct sockaddr *)&peer, sizeof peer) == 0, "rconnect");
		sleep_ms(50);
		check(pthread_create(&thread, NULL, receive_one, &fd) == 0, "thread");
		sleep_ms(30);
		began = now_ms();
		act(fd, other);
		pthread_join(thread, &result);
		if (now_ms() - began < best)
			best = now_ms() - began;
		check((intptr_t)result == wanted, "the result of the call that waited");
		rclose(fd);
		rclose(other);
	}
	return best;
}

static void by_datagram(int fd, int other)
{
	(void)fd;
	check(rsend(other, out, 1, 0) == 1, "rsend");
}

static void by_close(int fd, int other)
{
	(void)other;
	check(rclose(fd) == 0, "rclose");
}

static void by_shutdown(int fd, int other)
{
	(void)other;
	check(rshutdown(fd, SHUT_RD) == 0, "rshutdown");
}

static void wakeups(int fd)
{
	struct sockaddr_in own = name_of(fd);
	double sent, closed, ended;

	own.sin_port = 0;
	sent = woken(&own, by_datagram, 1);
	closed = woken(&own, by_close, -EBADF);
	ended = woken(&own, by_shutdown, 0);
	fprintf(stderr, "woken after %.2f, %.2f and %.2f ms\n", sent, closed, ended);
	/* A call that nobody wakes looks every 100 ms, here 70 ms later. */
	check(sent < AWAKE_MS && closed < AWAKE_MS && ended < AWAKE_MS, "a wakeup");
}

/* What both threads have received so far. */
static atomic_int counted;

/* Two threads wait for the datagrams of many sockets. */
static void *count(void *socket)
{
	intptr_t got = 0;
	unsigned char bytes[100];

	while (rrecv(*(int *)socket, bytes, sizeof bytes, 0) > 0) {
		got++;
		counted++;
	}
	return (void *)got;
}

static void many(int fd, const struct sockaddr_in *server)
{
	struct sockaddr_in own = name_of(fd), name;
	int sockets[PEERS], sink;
	pthread_t threads[2];
	void *counts[2];
	intptr_t total;

	own.sin_port = 0;
	sink = bound(&own);
	name = name_of(sink);
	for (int i = 0; i < 2; i++)
		check(pthread_create(&threads[i], NULL, count, &sink) == 0, "thread");
	for (int i = 0; i < PEERS; i++) {
		sockets[i] = bound(&own);
		for (int n = 0; n < 10; n++)
			send_to(sockets[i], 30, &name);
		out[0] = (unsigned char)(200 + i); /* no letter */
		check(ask(sockets[i], 30 + i, server) == 30 + i && in[0] == 200 + i, "the own echo");
	}
	for (int i = 0; i < PEERS; i++)
		check(rclose(sockets[i]) == 0, "rclose");
	for (double began = now_ms(); counted < 10 * PEERS && now_ms() - began < 20000;)
		sleep_ms(5);
	check(rclose(sink) == 0, "rclose");
	total = 0;
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &counts[i]);
		total += (intptr_t)counts[i];
	}
	fprintf(stderr, "%ld of %d datagrams\n", (long)total, 10 * PEERS);
	check(total == 10 * PEERS, "no datagram is lost between 20 sockets and two threads");
}

/* The device has 512 queue pairs: what is not given back is missed. */
static void often(int fd)
{
	struct sockaddr_in own = name_of(fd), peer = own;
	int before, after;

	sleep_ms(200); /* a thread of the library may still have a socket that was closed */
	before = open_descriptors();
	for (int i = 0; i < 600; i++) {
		int one = made(), few = 16;

		check(rsetsockopt(one, SOL_RDMA, RDMA_RQSIZE, &few, sizeof few) == 0, "RDMA_RQSIZE");
		check(rsetsockopt(one, SOL_RDMA, RDMA_SQSIZE, &few, sizeof few) == 0, "RDMA_SQSIZE");
		send_to(one, 12, &peer);
		check(rclose(one) == 0, "rclose");
	}
	for (int i = 0; (after = open_descriptors()) > before && i < 400; i++)
		sleep_ms(50);
	fprintf(stderr, "%d descriptors, then %d\n", before, after);
	check(after <= before, "descriptors");
	for (int i = 0; i < 100; i++)
		check(is_readable(fd, 5000) && rrecv(fd, in, sizeof in, 0) == 12, "sent before rclose");
	drain(fd);
}

static void run(const char *text)
{
	struct sockaddr_in server = address(text, PORT);
	int fd;

	options_and_names(&server);
	fd = made();
	check(rconnect(fd, (struct sockaddr *)&server, sizeof server) == 0, "rconnect");
	{
		struct sockaddr_in own = name_of(fd);

		check(rclose(fd) == 0, "rclose");
		own.sin_port = 0;
		fd = bound(&own);
	}
	out[0] = 'e';
	check(ask(fd, 100, &server) == 100, "an echo");
	drain(fd);
	boundaries(fd, &server);
	sources(fd, &server);
	out[0] = 'e';
	families(fd);
	nobody(fd);
	unanswered(&server);
	again(fd, &server);
	wakeups(fd);
	many(fd, &server);
	out[0] = 'e';
	often(fd);
	out[0] = 'q';
	check(ask(fd, 1, &server) == 1, "the end");
	check(rclose(fd) == 0, "rclose");
}

static void answer_with(const char *text, char name)
{
	struct sockaddr_in own = address(text, PORT), peer;
	int fd = bound(&own);

	out[0] = name;
	while (1) {
		socklen_t length = sizeof peer;

		check(rrecvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&peer, &length) >= 0, "rrecvfrom");
		send_to(fd, 1, &peer);
	}
}

static void hear(const char *text, const char *names)
{
	struct sockaddr_in peer = address(text, PORT);
	int fd = made();

	for (; *names; names++) {
		double limit = now_ms() + NAMES_MS;

		do {
			check(now_ms() < limit, "the next name");
			send_to(fd, 1, &peer);
			sleep_ms(20);
			in[0] = 0;
			while (is_readable(fd, 0))
				check(rrecv(fd, in, sizeof in, 0) == 1, "rrecv");
		} while (in[0] != *names);
		printf("%c\n", *names);
		fflush(stdout);
	}
	check(rclose(fd) == 0, "rclose");
}

int main(int count, char **words)
{
	check(count >= 3, "server or client, and an address");
	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (unsigned char)(i * 31 + i / 251);
	out[0] = 'e';
	if (!strcmp(words[1], "server"))
		serve(words[2]);
	else if (count > 3 && !strcmp(words[1], "names"))
		answer_with(words[2], words[3][0]);
	else if (count > 3)
		hear(words[2], words[3]);
	else
		run(words[2]);
	puts("ok");
	return 0;
}
