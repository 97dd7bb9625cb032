/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Either side of docs/exchange.md, verification without measurement: the other side is `ringside bench`, or this program. */
#include "peer.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_BYTES 64
#define ANSWER_BYTES 16
#define VERSION 1
#define PAIRS_MAX 64
#define MESSAGE_MAX (8u << 20)

enum operation { END, WRITE, READ, SEND, WRITE_IMMEDIATE, SEND_IMMEDIATE };

static const char *const names[] = { "end", "write", "read", "send", "write with immediate", "send with immediate" };
static const enum ibv_wr_opcode opcodes[] = { 0, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
					      IBV_WR_SEND_WITH_IMM };

struct test {
	enum operation operation;
	unsigned measure, mtu, pairs, rounds;
	uint32_t bytes;
};

/* A running test: a connection for each queue pair, on memory that holds all sources and then all targets. */
struct run {
	struct test test;
	bool client;
	struct station *common, *each;
	uint8_t *memory;
	size_t stride;
	struct ibv_mr *region;
};

static void put16(uint8_t *at, uint16_t value)
{
	value = htobe16(value);
	memcpy(at, &value, sizeof value);
}

static void put32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof value);
}

static uint16_t get16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof value);
	return be16toh(value);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof value);
	return be32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof value);
	return be64toh(value);
}

static void send_test(int peer, const struct test *test)
{
	uint8_t bytes[TEST_BYTES] = "ringtest";

	put16(bytes + 8, VERSION);
	bytes[10] = test->operation;
	if (test->operation != END) {
		put32(bytes + 12, test->mtu);
		put64(bytes + 16, test->bytes);
		put16(bytes + 40, test->pairs);
		put16(bytes + 42, test->rounds);
		put32(bytes + 44, 1);
		put32(bytes + 48, 1);
	}
	meet_write(peer, bytes, sizeof bytes);
}

static void read_answer(int peer)
{
	uint8_t bytes[ANSWER_BYTES];
	char reason[513] = "";

	meet_read(peer, bytes, sizeof bytes);
	if (memcmp(bytes, "ringback", 8) || get16(bytes + 8) != VERSION || get32(bytes + 12) > 512)
		fail("the answer to a test makes no sense");
	meet_read(peer, reason, get32(bytes + 12));
	if (get16(bytes + 10))
		fail("the peer refuses: %s", reason);
}

static void send_answer(int peer, const char *reason)
{
	uint8_t bytes[ANSWER_BYTES + 512] = "ringback";
	size_t length = reason ? strlen(reason) : 0;

	put16(bytes + 8, VERSION);
	put16(bytes + 10, reason != NULL);
	put32(bytes + 12, length);
	if (reason)
		memcpy(bytes + ANSWER_BYTES, reason, length);
	meet_write(peer, bytes, ANSWER_BYTES + length);
	if (reason)
		fail("refused the peer's test: %s", reason);
}

/* Reads a test and answers it; refuses tests that this program does not have. */
static struct test read_test(int peer)
{
	uint8_t bytes[TEST_BYTES];
	struct test test;

	meet_read(peer, bytes, sizeof bytes);
	if (memcmp(bytes, "ringtest", 8))
		fail("the peer's test does not begin as one");
	if (get16(bytes + 8) != VERSION)
		send_answer(peer, "this side speaks version 1 of the test");
	test = (struct test){ .operation = bytes[10], .measure = bytes[11], .mtu = get32(bytes + 12), .bytes = get64(bytes + 16),
			      .pairs = get16(bytes + 40), .rounds = get16(bytes + 42) };
	if (bytes[10] > SEND_IMMEDIATE)
		send_answer(peer, "this side does not know that operation");
	if (test.operation != END) {
		if (test.measure)
			send_answer(peer, "this side verifies (measure 0) and does not measure");
		if (get64(bytes + 16) > MESSAGE_MAX)
			send_answer(peer, "this side takes messages of at most 8388608 bytes");
		if (test.pairs < 1 || test.pairs > PAIRS_MAX)
			send_answer(peer, "this side takes 1 to 64 queue pairs");
	}
	send_answer(peer, NULL);
	return test;
}

static uint8_t *source_of(const struct run *run, unsigned pair)
{
	return run->memory + pair * run->stride;
}

static uint8_t *target_of(const struct run *run, unsigned pair)
{
	return run->memory + (run->test.pairs + pair) * run->stride;
}

static void pattern(uint8_t *at, uint32_t length, bool server, unsigned round, unsigned pair)
{
	uint64_t seed = (uint64_t)length << 40 | (uint64_t)round << 32 | (uint64_t)server << 31 | pair;
	uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;

	for (uint32_t done = 0; done < length; done += 8) {
		uint64_t word;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		word = htole64(state | 0x0101010101010101u);
		memcpy(at + done, &word, length - done < 8 ? length - done : 8);
	}
}

static void connect_pairs(struct run *run)
{
	const struct test *test = &run->test;
	size_t bytes;

	run->stride = (test->bytes + 8 + 4095) / 4096 * 4096;
	bytes = run->stride * test->pairs * 2;
	if (posix_memalign((void **)&run->memory, 4096, bytes))
		fail("no memory for %zu bytes", bytes);
	memset(run->memory, 0, bytes);
	run->region = ibv_reg_mr(run->common->domain, run->memory, bytes,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	run->each = calloc(test->pairs, sizeof *run->each);
	if (!run->region || !run->each)
		fail("memory region: %s", strerror(errno));
	for (unsigned i = 0; i < test->pairs; i++) {
		struct station *one = &run->each[i];

		*one = *run->common;
		one->region = run->region;
		one->buffer = run->memory;
		if (test->mtu < one->ours.path_mtu)
			one->ours.path_mtu = test->mtu;
		one->ours.regions = 1;
		one->ours.region[0] = (struct region){ (uintptr_t)target_of(run, i), test->bytes > 8 ? test->bytes : 8, run->region->rkey };
		station_make(one);
	}
	for (unsigned i = 0; i < test->pairs; i++)
		meet_greet(run->common->peer, &run->each[i].ours, &run->each[i].theirs);
	for (unsigned i = 0; i < test->pairs; i++) {
		const struct greeting *theirs = &run->each[i].theirs;

		if (!theirs->regions || theirs->region[0].length_bytes < test->bytes)
			fail("queue pair %u: the peer's target is too small", i);
		station_join(&run->each[i]);
	}
	meet_step(run->common->peer, 'R');
}

static void disconnect_pairs(struct run *run)
{
	meet_step(run->common->peer, 'D');
	for (unsigned i = 0; i < run->test.pairs; i++)
		station_disconnect(&run->each[i]);
	if (ibv_dereg_mr(run->region))
		fail("deregistering: %s", strerror(errno));
	free(run->memory);
	free(run->each);
}

static uint32_t immediate_of(bool server, unsigned round, unsigned pair)
{
	return (uint32_t)server << 31 | round << 16 | pair;
}

static void prepare(struct run *run, unsigned round)
{
	const struct test *test = &run->test;
	bool reads = test->operation == READ;

	for (unsigned i = 0; i < test->pairs; i++) {
		uint8_t *source = source_of(run, i), *target = target_of(run, i);

		pattern(reads ? target : source, test->bytes, !run->client, round, i);
		memset(reads ? source : target, 0, test->bytes + 8);
		if (test->operation >= SEND)
			post_receive(&run->each[i], i, target - run->memory, test->bytes);
	}
}

static unsigned pair_of(const struct run *run, const struct ibv_wc *done)
{
	for (unsigned i = 0; i < run->test.pairs; i++)
		if (run->each[i].queue_pair->qp_num == done->qp_num)
			return i;
	fail("a completion of queue pair %u, which is not ours", done->qp_num);
}

static void take_receive(const struct run *run, const struct ibv_wc *done, unsigned pair, unsigned round)
{
	uint32_t wanted = immediate_of(run->client, round, pair);

	if (done->byte_len != run->test.bytes)
		fail("queue pair %u: %u bytes came instead of %u", pair, done->byte_len, run->test.bytes);
	if (run->test.operation >= WRITE_IMMEDIATE && (!(done->wc_flags & IBV_WC_WITH_IMM) || ntohl(done->imm_data) != wanted))
		fail("queue pair %u: immediate %#x instead of %#x", pair, ntohl(done->imm_data), wanted);
}

static void transfer(struct run *run, unsigned round)
{
	const struct test *test = &run->test;
	unsigned left = test->pairs * (test->operation >= SEND ? 2 : 1);
	bool sent[PAIRS_MAX] = { false }, received[PAIRS_MAX] = { false };

	for (unsigned i = 0; i < test->pairs; i++) {
		struct request request = request_of(&run->each[i], opcodes[test->operation], i, test->bytes);

		request.offset = source_of(run, i) - run->memory;
		request.immediate = immediate_of(!run->client, round, i);
		post(&run->each[i], &request);
	}
	while (left--) {
		struct ibv_wc done;
		unsigned i;
		bool *seen;

		if (!completion(run->common, &done, WAIT_MS))
			fail("%s of %u bytes: %u completions are missing", names[test->operation], test->bytes, left + 1);
		if (done.status != IBV_WC_SUCCESS)
			fail("%s of %u bytes ended with '%s'", names[test->operation], test->bytes, ibv_wc_status_str(done.status));
		i = pair_of(run, &done);
		seen = done.opcode & IBV_WC_RECV ? received : sent;
		if (seen[i])
			fail("queue pair %u completed twice", i);
		seen[i] = true;
		if (done.opcode & IBV_WC_RECV)
			take_receive(run, &done, i, round);
	}
}

static void compare(struct run *run, unsigned round)
{
	const struct test *test = &run->test;
	uint8_t *wanted = malloc(test->bytes + 8);

	if (!wanted)
		fail("no memory");
	for (unsigned i = 0; i < test->pairs; i++) {
		const uint8_t *found = test->operation == READ ? source_of(run, i) : target_of(run, i);

		pattern(wanted, test->bytes, run->client, round, i);
		memset(wanted + test->bytes, 0, 8);
		for (uint32_t at = 0; at < test->bytes + 8; at++)
			if (found[at] != wanted[at]) {
				char reason[200];

				snprintf(reason, sizeof reason, "%s of %u bytes, queue pair %u, round %u: byte %u is %#x instead of %#x",
					 names[test->operation], test->bytes, i, round, at, found[at], wanted[at]);
				meet_failed(run->common->peer, reason);
			}
	}
	free(wanted);
}

static void one_test(struct station *station, bool client, const struct test *test)
{
	struct run run = { .test = *test, .client = client, .common = station };

	connect_pairs(&run);
	for (unsigned round = 0; round < test->rounds; round++) {
		prepare(&run, round);
		meet_step(station->peer, 'P');
		transfer(&run, round);
		meet_step(station->peer, 'T');
		compare(&run, round);
	}
	disconnect_pairs(&run);
	printf("verified: %s, %u bytes, %u queue pairs, %u rounds, as %s\n", names[test->operation], test->bytes, test->pairs,
	       test->rounds, client ? "client" : "server");
}

/* As client: every operation with these sizes, on one queue pair and on four. */
static void ask(struct station *station)
{
	static const uint32_t sizes[] = { 0, 1, 8, 64, 101, 102, 1023, 1024, 1025, 4096, 65537, 1u << 20 };
	struct test test = { .mtu = station->ours.path_mtu, .rounds = 2 };

	for (test.operation = WRITE; test.operation <= SEND_IMMEDIATE; test.operation++)
		for (test.pairs = 1; test.pairs <= 4; test.pairs += 3)
			for (unsigned i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= station->options->largest; i++) {
				test.bytes = sizes[i];
				send_test(station->peer, &test);
				read_answer(station->peer);
				one_test(station, true, &test);
			}
	test = (struct test){ .operation = END };
	send_test(station->peer, &test);
	read_answer(station->peer);
}

/* As server: every test that the client requests, until it ends the session. */
static void follow(struct station *station)
{
	unsigned tests = 0;

	for (;;) {
		struct test test = read_test(station->peer);

		if (test.operation == END)
			break;
		one_test(station, false, &test);
		tests++;
	}
	if (!tests)
		fail("the client wanted no test at all");
}

void exchange(struct station *station, bool client)
{
	if (client)
		ask(station);
	else
		follow(station);
}
