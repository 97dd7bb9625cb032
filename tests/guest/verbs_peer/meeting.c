/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two processes over TCP: greetings and steps (docs/exchange.md, rendezvous/src/greeting.rs). */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char magic[8] = "ringside";
#define VERSION 1
#define HEAD_BYTES 48
#define REGION_BYTES 20

static int prepared(int peer)
{
	int yes = 1;
	struct timeval limit = { .tv_sec = WAIT_MS / 1000 };

	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	return peer;
}

int meet_listen(unsigned port, unsigned wait_ms)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1, peer;
	struct pollfd waiting = { .fd = listener, .events = POLLIN };

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (listener < 0 || bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1))
		fail("cannot listen on port %u: %s", port, strerror(errno));
	if (poll(&waiting, 1, wait_ms) != 1)
		fail("no peer connected to port %u", port);
	peer = accept(listener, NULL, NULL);
	if (peer < 0)
		fail("accept: %s", strerror(errno));
	close(listener);
	return prepared(peer);
}

int meet_connect(const char *host, unsigned port, unsigned wait_ms)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(port) };
	uint64_t end = now_ms() + wait_ms;

	if (inet_pton(AF_INET, host, &there.sin_addr) != 1)
		fail("'%s' is no IPv4 address", host);
	for (;;) {
		int peer = socket(AF_INET, SOCK_STREAM, 0);

		if (peer >= 0 && connect(peer, (struct sockaddr *)&there, sizeof there) == 0)
			return prepared(peer);
		if (now_ms() > end)
			fail("cannot connect to %s port %u: %s", host, port, strerror(errno));
		close(peer);
		sleep_ms(100);
	}
}

void meet_write(int peer, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length) {
		ssize_t done = send(peer, at, length, MSG_NOSIGNAL);

		if (done <= 0)
			fail("writing to the peer: %s", strerror(errno));
		at += done;
		length -= done;
	}
}

void meet_read(int peer, void *bytes, size_t length)
{
	uint8_t *at = bytes;

	while (length) {
		ssize_t done = recv(peer, at, length, 0);

		if (done <= 0)
			fail("reading from the peer: %s", done ? strerror(errno) : "it closed the connection");
		at += done;
		length -= done;
	}
}

static uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = value >> 8 * (bytes - 1 - i);
	return at + bytes;
}

static const uint8_t *take(const uint8_t *at, uint64_t *value, unsigned bytes)
{
	*value = 0;
	for (unsigned i = 0; i < bytes; i++)
		*value = *value << 8 | at[i];
	return at + bytes;
}

void meet_greet(int peer, const struct greeting *ours, struct greeting *theirs)
{
	uint8_t bytes[HEAD_BYTES + REGIONS_MAX * REGION_BYTES], *to = bytes;
	const uint8_t *from = bytes;
	uint64_t value;

	memcpy(to, magic, sizeof magic);
	to = put(to + sizeof magic, VERSION, 2);
	to = put(to, ours->regions, 2);
	to = put(to, ours->queue_pair, 4);
	to = put(to, ours->start_psn, 4);
	to = put(to, ours->path_mtu, 4);
	memcpy(to, ours->mac, 6);
	to = put(to + 6, ours->family, 2);
	memcpy(to, ours->address, 16);
	to += 16;
	for (unsigned i = 0; i < ours->regions; i++) {
		to = put(to, ours->region[i].address, 8);
		to = put(to, ours->region[i].length_bytes, 8);
		to = put(to, ours->region[i].key, 4);
	}
	meet_write(peer, bytes, to - bytes);

	meet_read(peer, bytes, HEAD_BYTES);
	if (memcmp(from, magic, sizeof magic))
		fail("the peer does not speak this protocol");
	from = take(from + sizeof magic, &value, 2);
	if (value != VERSION)
		fail("the peer speaks version %u of the exchange", (unsigned)value);
	from = take(from, &value, 2);
	theirs->regions = value;
	if (value > REGIONS_MAX)
		fail("the peer has %u regions", (unsigned)value);
	from = take(from, &value, 4);
	theirs->queue_pair = value;
	from = take(from, &value, 4);
	theirs->start_psn = value;
	from = take(from, &value, 4);
	theirs->path_mtu = value;
	memcpy(theirs->mac, from, 6);
	from = take(from + 6, &value, 2);
	theirs->family = value;
	memcpy(theirs->address, from, 16);
	meet_read(peer, bytes, theirs->regions * REGION_BYTES);
	from = bytes;
	for (unsigned i = 0; i < theirs->regions; i++) {
		from = take(from, &theirs->region[i].address, 8);
		from = take(from, &theirs->region[i].length_bytes, 8);
		from = take(from, &value, 4);
		theirs->region[i].key = value;
	}
}

void meet_failed(int peer, const char *reason)
{
	uint8_t bytes[3] = { 'X' };

	put(bytes + 1, strlen(reason), 2);
	meet_write(peer, bytes, sizeof bytes);
	meet_write(peer, reason, strlen(reason));
	fail("%s", reason);
}

void meet_step(int peer, char step)
{
	char found;

	meet_write(peer, &step, 1);
	do {
		meet_read(peer, &found, 1);
	} while (found == '.');
	if (found == 'X') {
		uint8_t length[2];
		char reason[513] = "";

		meet_read(peer, length, sizeof length);
		meet_read(peer, reason, (length[0] << 8 | length[1]) > 512 ? 512 : length[0] << 8 | length[1]);
		fail("the peer failed: %s", reason);
	}
	if (found != step)
		fail("the peer is at step '%c', this side at '%c'", found, step);
}
