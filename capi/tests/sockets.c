/* Stream sockets over RDMA, beyond what rstream and riostream show.
 *
 *   sockets server ADDRESS   accepts a connection, and answers the client's steps
 *   sockets client ADDRESS   makes the steps
 *   sockets both ADDRESS     server and client in two threads of one process
 *   sockets waits ADDRESS    accepts a connection, and waits for data from a client that is killed
 *   sockets dies ADDRESS     connects, says its name, and kills itself
 *   sockets vanishes ADDRESS the same, without anybody who tells its peer
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PORT 7412
#define LIMIT_MS 20000
#define LONG (3 << 20)
#define OFFSET 0x1000
#define MAPPED 9000

static unsigned char out[LONG];
static __thread unsigned char *in;

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void sleep_ms(long ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

static unsigned char pattern(size_t place)
{
	return (unsigned char)(place * 31 + place / 251);
}

static void fill(void)
{
	for (size_t i = 0; i < LONG; i++)
		out[i] = pattern(i);
}

static void make_room(void)
{
	in = malloc(LONG);
	check(in != NULL, "malloc");
}

static void compare(size_t length, const char *what)
{
	for (size_t i = 0; i < length; i++) {
		if (in[i] != pattern(i)) {
			fprintf(stderr, "%s: byte %zu is %u\n", what, i, in[i]);
			exit(1);
		}
	}
}

static struct sockaddr_in address(const char *text, int port)
{
	struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(port)};

	check(inet_pton(AF_INET, text, &all.sin_addr) == 1, "address");
	return all;
}

static int wait_for(int fd, int events)
{
	struct pollfd one = {.fd = fd, .events = events};

	check(rpoll(&one, 1, LIMIT_MS) == 1, "rpoll");
	return one.revents;
}

static void say(int fd, char word)
{
	check(rsend(fd, &word, 1, 0) == 1, "rsend of a word");
}

static void hear(int fd, char word)
{
	char got = 0;

	check(rrecv(fd, &got, 1, MSG_WAITALL) == 1, "rrecv of a word");
	if (got != word) {
		fprintf(stderr, "heard %d instead of %d\n", got, word);
		exit(1);
	}
}

static atomic_int listens;

static int listening(const char *text)
{
	struct sockaddr_in own = address(text, PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), one = 1;

	check(fd >= 0, "rsocket");
	check(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "SO_REUSEADDR");
	check(rbind(fd, (struct sockaddr *)&own, sizeof own) == 0, "rbind");
	check(rlisten(fd, 4) == 0, "rlisten");
	listens = 1;
	return fd;
}

static int accepted(int listener)
{
	struct pollfd both[2] = {{.fd = listener, .events = POLLIN}};
	struct sockaddr_in peer;
	socklen_t length = sizeof peer;
	int silent[2], fd;

	/* A socket and a pipe in one call: the pipe never has anything. */
	check(pipe(silent) == 0, "pipe");
	both[1] = (struct pollfd){.fd = silent[0], .events = POLLIN};
	check(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0, "rfcntl");
	check(rfcntl(listener, F_GETFL) & O_NONBLOCK, "F_GETFL");
	check(raccept(listener, NULL, NULL) == -1 && errno == EAGAIN, "raccept without a client");
	check(rpoll(both, 2, LIMIT_MS) == 1 && both[0].revents == POLLIN && !both[1].revents, "rpoll");
	fd = raccept(listener, (struct sockaddr *)&peer, &length);
	check(fd >= 0, "raccept");
	check(length == sizeof peer && peer.sin_family == AF_INET && peer.sin_port, "peer");
	check(rfcntl(fd, F_SETFL, 0) == 0, "rfcntl");
	close(silent[0]);
	close(silent[1]);
	return fd;
}

static int connected(const char *text)
{
	struct sockaddr_in peer = address(text, PORT), own;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), entries = 4, buffer = 20000, got = 0;
	socklen_t length = sizeof got, own_length = sizeof own;

	check(fd >= 0, "rsocket");
	check(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0, "IOMAPSIZE");
	check(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0, "SO_RCVBUF");
	check(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &length) == 0 && got == 40000, "SO_RCVBUF");
	check(rconnect(fd, (struct sockaddr *)&peer, sizeof peer) == 0, "rconnect");
	check(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &entries, sizeof entries) == -1, "too late");
	check(rgetsockname(fd, (struct sockaddr *)&own, &own_length) == 0 && own.sin_port, "own name");
	return fd;
}

/* A port where no one listens; a connect that does not wait. */
static void refused(const char *text)
{
	struct sockaddr_in nobody = address(text, PORT + 1);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), error = 0;
	socklen_t length = sizeof error;

	check(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0, "rfcntl");
	check(rconnect(fd, (struct sockaddr *)&nobody, sizeof nobody) == -1, "connected to no one");
	check(errno == EINPROGRESS, "EINPROGRESS");
	check(wait_for(fd, POLLOUT) & POLLERR, "POLLERR");
	check(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "SO_ERROR");
	errno = error;
	check(error == ECONNREFUSED, "ECONNREFUSED");
	check(rclose(fd) == 0, "rclose");
	check(rclose(fd) == -1 && errno == EBADF, "a second rclose");
}

static void receive_all(int fd)
{
	size_t done = 0, next = 1;

	while (done < LONG) {
		size_t wanted = LONG - done < next ? LONG - done : next, half = wanted / 2;
		struct iovec two[2] = {{in + done, half}, {in + done + half, wanted - half}};
		unsigned char seen[64];
		ssize_t peeked = rrecv(fd, seen, sizeof seen, MSG_PEEK), got;

		check(peeked > 0, "MSG_PEEK");
		got = rreadv(fd, two, 2);
		check(got > 0, "rreadv");
		if (peeked > got)
			peeked = got;
		check(memcmp(seen, in + done, peeked) == 0, "what was peeked is what is read");
		done += got;
		next = next * 3 % 100003 + 1;
	}
	compare(LONG, "the long transfer");
}

static void serve(const char *text)
{
	int listener = listening(text), fd = accepted(listener);
	unsigned char *mapped = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t total = 0;

	check(rshutdown(listener, SHUT_RD) == 0, "rshutdown of a listener does nothing");
	check(rrecv(fd, in, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "MSG_DONTWAIT");
	say(fd, 'a');
	receive_all(fd);
	say(fd, 'b');
	/* The client writes until it would have to wait; the last byte is another one. */
	sleep_ms(300);
	/* There is no limit to what it writes if this side reads as fast. */
	unsigned char last = 7;
	while (last == 7) {
		ssize_t got = rrecv(fd, in, 5000, 0);

		check(got > 0, "rrecv");
		total += got;
		last = in[got - 1];
		for (ssize_t i = 0; i + 1 < got; i++)
			check(in[i] == 7, "the bytes of a sender that does not wait");
	}
	check(last == 0xFF && total % 1000 == 1, "the last byte");
	check(mapped != MAP_FAILED, "mmap");
	check(riomap(fd, mapped, MAPPED, PROT_WRITE, 0, OFFSET) == OFFSET, "riomap");
	say(fd, 'm');
	hear(fd, 'w');
	memcpy(in, mapped + 7, 8000);
	compare(8000, "riowrite");
	check(mapped[6] == 0 && mapped[8007] == 0, "beside riowrite");
	check(riounmap(fd, mapped, MAPPED) == 0, "riounmap");
	check(riounmap(fd, mapped, MAPPED) == -1 && errno == EINVAL, "a second riounmap");
	say(fd, 'u');
	/* The client shuts its sending side. */
	check(rrecv(fd, in, 1, 0) == 0, "the end of the stream");
	check(wait_for(fd, POLLIN | POLLOUT) == (POLLIN | POLLOUT), "half closed");
	check(rsend(fd, "bye", 3, 0) == 3, "rsend after the peer's end");
	check(rclose(fd) == 0 && rclose(listener) == 0, "rclose");
}

static void ask(const char *text)
{
	static unsigned char same[1000];
	unsigned char last = 0xFF;
	struct timeval limit = {.tv_sec = 20};
	struct iovec first = {out, 345}, two[2] = {{out + 345, 12000}, {out + 12345, LONG - 12345}};
	struct msghdr message = {.msg_iov = &first, .msg_iovlen = 1, .msg_control = &last, .msg_controllen = 1};
	size_t total = 0;
	fd_set reads;
	int fd;

	refused(text);
	fd = connected(text);
	FD_ZERO(&reads);
	FD_SET(fd, &reads);
	check(rselect(fd + 1, &reads, NULL, NULL, &limit) == 1 && FD_ISSET(fd, &reads), "rselect");
	hear(fd, 'a');
	check(rsendmsg(fd, &message, 0) == -1 && errno == ENOTSUP, "control data");
	message.msg_control = NULL;
	check(rsendmsg(fd, &message, 0) == 345, "a length without control data");
	check(rwritev(fd, two, 2) == LONG - 345, "rwritev");
	hear(fd, 'b');
	memset(same, 7, sizeof same);
	check(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0, "rfcntl");
	while (1) {
		ssize_t sent = rsend(fd, same, sizeof same - total % 1000, 0);

		if (sent < 0)
			break;
		total += sent;
	}
	check(errno == EAGAIN && total > 60000, "EAGAIN once the buffers are full");
	check(rfcntl(fd, F_SETFL, 0) == 0, "rfcntl");
	check(wait_for(fd, POLLOUT) == POLLOUT, "POLLOUT once the peer reads");
	if (total % 1000)
		check(rsend(fd, same, 1000 - total % 1000, 0) > 0, "rsend");
	check(rsend(fd, &last, 1, 0) == 1, "rsend");
	hear(fd, 'm');
	check(riowrite(fd, out, 10, OFFSET - 20, 0) == 0, "nothing is mapped there");
	check(riowrite(fd, out, 8000, OFFSET + 7, 0) == 8000, "riowrite");
	say(fd, 'w');
	hear(fd, 'u');
	check(rshutdown(fd, SHUT_WR) == 0, "rshutdown");
	check(rsend(fd, out, 1, 0) == -1 && errno == EPIPE, "EPIPE");
	check(rrecv(fd, in, 100, MSG_WAITALL) == 3 && memcmp(in, "bye", 3) == 0, "the last words");
	check(rrecv(fd, in, 1, 0) == 0, "the end");
	check(wait_for(fd, POLLIN) & POLLHUP, "POLLHUP");
	check(rclose(fd) == 0, "rclose");
}

/* `flags`: MSG_DONTWAIT to look again and again instead of waiting. */
static void wait_for_the_dead(const char *text, int flags)
{
	int listener = listening(text), fd = accepted(listener);
	ssize_t got;

	hear(fd, 'k');
	do {
		errno = 0;
		got = rrecv(fd, in, 1, flags);
	} while (got == -1 && errno == EAGAIN);
	check(got == 0 || errno == ETIMEDOUT || errno == ECONNRESET, "rrecv of a dead peer");
	printf("the peer is gone: %s\n", got ? strerror(errno) : "end");
	check(rclose(fd) == 0 && rclose(listener) == 0, "rclose");
}

static void *serve_thread(void *text)
{
	make_room();
	serve(text);
	return NULL;
}

int main(int count, char **words)
{
	check(count == 3, "server or client, and an address");
	fill();
	make_room();
	if (!strcmp(words[1], "both")) {
		pthread_t server;

		check(pthread_create(&server, NULL, serve_thread, words[2]) == 0, "thread");
		while (!listens)
			sleep_ms(1);
		ask(words[2]);
		pthread_join(server, NULL);
	} else if (!strcmp(words[1], "server")) {
		serve(words[2]);
	} else if (!strcmp(words[1], "client")) {
		ask(words[2]);
	} else if (!strcmp(words[1], "waits")) {
		wait_for_the_dead(words[2], 0);
	} else if (!strcmp(words[1], "polls")) {
		wait_for_the_dead(words[2], MSG_DONTWAIT);
	} else {
		say(connected(words[2]), 'k');
		sleep_ms(200);
		if (!strcmp(words[1], "vanishes")) {
			char path[4096];

			snprintf(path, sizeof path, "%s/farewells", getenv("RINGSIDE_FILES"));
			check(unlink(path) == 0, "the message to its peer");
		}
		kill(getpid(), SIGKILL);
	}
	puts("ok");
	return 0;
}
