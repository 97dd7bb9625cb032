/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Wrong requests and their required results: the completion status that verbs define on one side, the event on the other. */
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTOUCHED 0x5a
#define RECEIVE_ID 1000

/* After each error a new connection between the same processes, on the same memory, works. */
static void works_again(struct station *station, bool requester)
{
	station_disconnect(station);
	meet_step(station->peer, 'N');
	station_connect(station, NULL);
	verify_traffic(station, requester);
	meet_step(station->peer, 'D');
	station_disconnect(station);
}

static void one_receive(struct station *station)
{
	post_receive(station, RECEIVE_ID, 0, 4096);
}

/* The statuses of a failure for which a side of irdma has no name: its driver of Linux 6.12 flushes the request as well, and newer
 * ones give a code that older libraries take for a fatal error. */
static bool is_unnamed(enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_FATAL_ERR;
}

/* A request that fails, with three writes behind it that are flushed. irdma may have no name for the failure. */
static void failed(struct station *station, const struct request *bad, enum ibv_wc_status status, bool or_unnamed)
{
	struct ibv_wc done;

	struct request good = request_of(station, IBV_WR_RDMA_WRITE, 0, 64);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	good.remote_address += 8192;
	post(station, bad);
	for (good.id = 2; good.id <= 4; good.id++)
		post(station, &good);
	if (!completion(station, &done, WAIT_MS))
		fail("the request that was to fail did not complete within %u ms", WAIT_MS);
	if (done.wr_id != bad->id || (done.status != status && !(or_unnamed && is_unnamed(done.status))))
		fail("request %llu completed with '%s' instead of '%s'", (unsigned long long)done.wr_id,
		     ibv_wc_status_str(done.status), ibv_wc_status_str(status));
	for (unsigned id = 2; id <= 4; id++)
		expect_completion(station, id, IBV_WC_WR_FLUSH_ERR);
	/* A queue pair in the error state completes every request that is posted to it; irdma's library does so once the program has set the state. */
	if (ibv_modify_qp(station->queue_pair, &error, IBV_QP_STATE))
		fail("queue pair to ERR: %s", strerror(errno));
	good.id = 5;
	post(station, &good);
	expect_completion(station, 5, IBV_WC_WR_FLUSH_ERR);
	printf("status: %s, four requests behind it flushed\n", ibv_wc_status_str(done.status));
}

static void refused(struct station *station, const struct request *bad, enum ibv_wc_status status)
{
	failed(station, bad, status, false);
}

/* The side that refused: it gets an event, unless its device has none; its receive is flushed, its memory is unchanged. */
static void was_refused(struct station *station, enum ibv_event_type event)
{
	if (!station->options->eventless)
		expect_event(station, event);
	expect_completion(station, RECEIVE_ID, IBV_WC_WR_FLUSH_ERR);
	for (unsigned i = 0; i < 16384; i++)
		if (station->buffer[i] != UNTOUCHED)
			fail("byte %u was changed by a request that was refused", i);
}

static void access_error(struct station *station, bool requester, struct request bad)
{
	memset(station->buffer, requester ? 0xee : UNTOUCHED, 16384);
	memset(station->poor_buffer, UNTOUCHED, 4096);
	station_connect(station, requester ? NULL : one_receive);
	if (requester) {
		/* Addresses and keys are the peer's, known only now. */
		struct request request = request_of(station, bad.opcode, 1, 64);
		const struct region *target = &station->theirs.region[bad.remote_key ? 1 : 0];

		request.remote_address = target->address + bad.remote_address;
		request.remote_key = target->key ^ bad.immediate;
		refused(station, &request, IBV_WC_REM_ACCESS_ERR);
	} else {
		was_refused(station, IBV_EVENT_QP_ACCESS_ERR);
		for (unsigned i = 0; i < 4096; i++)
			if (station->poor_buffer[i] != UNTOUCHED)
				fail("byte %u of a local region was changed", i);
	}
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

/* In these, `remote_key` chooses the peer's region, `remote_address` is the distance from its start, `immediate` changes the key. */
static void wrong_key_write(struct station *station, bool requester)
{
	access_error(station, requester, (struct request){ .opcode = IBV_WR_RDMA_WRITE, .immediate = 0x80 });
}

static void wrong_key_read(struct station *station, bool requester)
{
	access_error(station, requester, (struct request){ .opcode = IBV_WR_RDMA_READ, .immediate = 0x80 });
}

static void out_of_bounds(struct station *station, bool requester)
{
	access_error(station, requester, (struct request){ .opcode = IBV_WR_RDMA_WRITE, .remote_address = BUFFER_BYTES - 63 });
}

static void no_right_to_write(struct station *station, bool requester)
{
	access_error(station, requester, (struct request){ .opcode = IBV_WR_RDMA_WRITE, .remote_key = 1 });
}

static void no_right_to_read(struct station *station, bool requester)
{
	access_error(station, requester, (struct request){ .opcode = IBV_WR_RDMA_READ, .remote_key = 1 });
}

static void wrong_local_key(struct station *station, bool requester)
{
	station_connect(station, NULL);
	if (requester) {
		struct request bad = request_of(station, IBV_WR_RDMA_WRITE, 1, 64);

		bad.local_key ^= 0x80;
		refused(station, &bad, IBV_WC_LOC_PROT_ERR);
	}
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

static void receive_too_small(struct station *station, bool requester)
{
	station_connect(station, requester ? NULL : one_receive);
	if (requester) {
		struct request bad = request_of(station, IBV_WR_SEND, 1, 4097);

		refused(station, &bad, IBV_WC_REM_INV_REQ_ERR);
	} else {
		expect_completion(station, RECEIVE_ID, IBV_WC_LOC_LEN_ERR);
	}
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

static void no_receive(struct station *station, bool requester)
{
	station_connect(station, NULL);
	if (requester) {
		struct request send = request_of(station, IBV_WR_SEND, 1, 64);

		failed(station, &send, IBV_WC_RNR_RETRY_EXC_ERR, true);
	}
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

static void late_receive(struct station *station, bool requester)
{
	struct ibv_wc done;

	memset(station->buffer, requester ? 0xab : 0, 4096);
	station_connect(station, NULL);
	if (requester) {
		struct request send = request_of(station, IBV_WR_SEND, 1, 64);
		uint64_t began = now_ms();

		post(station, &send);
		if (completion(station, &done, 150))
			fail("a send completed with '%s' before there was a receive", ibv_wc_status_str(done.status));
		meet_step(station->peer, 'M');
		expect_completion(station, 1, IBV_WC_SUCCESS);
		printf("status: success after %u ms\n", (unsigned)(now_ms() - began));
	} else {
		meet_step(station->peer, 'M');
		post_receive(station, RECEIVE_ID, 0, 64);
		done = expect_completion(station, RECEIVE_ID, IBV_WC_SUCCESS);
		if (done.byte_len != 64 || station->buffer[63] != 0xab)
			fail("the late receive holds %u bytes", done.byte_len);
	}
	meet_step(station->peer, 'E');
	works_again(station, requester);
}

/* Regions taken away while the peer still has their keys. */
static void deregistered(struct station *station, bool requester)
{
	memset(station->buffer, requester ? 0xee : UNTOUCHED, 16384);
	station_connect(station, requester ? NULL : one_receive);
	if (!requester) {
		struct ibv_mr *extra = ibv_reg_mr(station->domain, station->buffer, 8192,
						  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		uint32_t key;

		if (!extra)
			fail("memory region: %s", strerror(errno));
		key = extra->rkey;
		if (ibv_dereg_mr(extra))
			fail("deregistering: %s", strerror(errno));
		meet_write(station->peer, &key, sizeof key);
		was_refused(station, IBV_EVENT_QP_ACCESS_ERR);
	} else {
		struct request late = request_of(station, IBV_WR_RDMA_WRITE, 1, 64);

		meet_read(station->peer, &late.remote_key, sizeof late.remote_key);
		refused(station, &late, IBV_WC_REM_ACCESS_ERR);
	}
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

/* Queue pairs destroyed with outstanding requests, by the requester, by the responder, by both at once. */
static void destroyed_under_load(struct station *station, bool requester)
{
	const unsigned rounds = 30;
	unsigned good = 0, flushed = 0, retried = 0;

	for (unsigned round = 0; round < rounds; round++) {
		struct ibv_wc done;
		bool leaves = round % 3 == 2 || (round % 3 == 0) == requester;

		station_connect(station, NULL);
		if (requester) {
			struct request write = request_of(station, IBV_WR_RDMA_WRITE, 0, 1u << 20);

			for (write.id = 0; write.id < QUEUE_DEPTH / 2; write.id++)
				post(station, &write);
			if (!completion(station, &done, WAIT_MS) || done.status != IBV_WC_SUCCESS)
				fail("round %u: the first write did not complete", round);
			good++;
		}
		meet_step(station->peer, 'L');
		if (requester && !leaves) {
			/* The peer has ended: each outstanding request completes once. */
			for (unsigned left = QUEUE_DEPTH / 2 - 1; left; left--) {
				if (!completion(station, &done, WAIT_MS))
					fail("round %u: %u requests never completed", round, left);
				if (done.status == IBV_WC_SUCCESS)
					good++;
				else if (done.status == IBV_WC_WR_FLUSH_ERR)
					flushed++;
				else if (done.status == IBV_WC_RETRY_EXC_ERR)
					retried++;
				else
					fail("round %u: completed with '%s'", round, ibv_wc_status_str(done.status));
			}
		}
		if (!requester && !leaves)
			sleep_ms(5);
		station_disconnect(station);
		meet_step(station->peer, 'N');
	}
	if (requester)
		printf("status: %u rounds; %u writes done, %u ended by the retry limit, %u flushed\n", rounds, good, retried, flushed);
	station_connect(station, NULL);
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

/* Writes without pause, for a while in which all succeed, or until the connection is `broken`. */
static void stream(struct station *station, bool requester, bool broken)
{
	uint64_t posted = 0, done_count = 0, longest = 0, last, end;
	struct request write;
	struct ibv_wc done;
	enum ibv_wc_status failed = IBV_WC_SUCCESS;

	station_connect(station, NULL);
	write = request_of(station, IBV_WR_RDMA_WRITE, 0, 16384);
	printf("streaming\n");
	fflush(stdout);
	last = now_ms();
	end = last + (broken ? WAIT_MS : station->options->seconds * 1000ull);
	while (requester && (now_ms() < end || done_count < posted)) {
		for (; failed == IBV_WC_SUCCESS && now_ms() < end && posted - done_count < 32; posted++) {
			write.id = posted;
			post(station, &write);
		}
		if (done_count == posted)
			break;
		if (!completion(station, &done, WAIT_MS))
			fail("write %llu never completed", (unsigned long long)done_count);
		if (done.wr_id != done_count++)
			fail("write %llu completed instead of %llu", (unsigned long long)done.wr_id, (unsigned long long)done_count - 1);
		if (now_ms() - last > longest)
			longest = now_ms() - last;
		last = now_ms();
		if (failed != IBV_WC_SUCCESS && done.status != IBV_WC_WR_FLUSH_ERR)
			fail("after the failure a write completed with '%s'", ibv_wc_status_str(done.status));
		if (failed == IBV_WC_SUCCESS)
			failed = done.status;
	}
	if (requester) {
		if (failed != (broken ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS))
			fail("the stream ended with '%s' after %llu writes", ibv_wc_status_str(failed), (unsigned long long)done_count);
		printf("status: %s; %llu writes, each completed once and in order, longest pause %llu ms\n", ibv_wc_status_str(failed),
		       (unsigned long long)done_count, (unsigned long long)longest);
	}
	meet_step(station->peer, 'M');
	works_again(station, requester);
}

static void stream_through(struct station *station, bool requester)
{
	stream(station, requester, false);
}

static void stream_broken(struct station *station, bool requester)
{
	stream(station, requester, true);
}

/* Three connections, each ended by the failure of a request: a wrong key, a send without a receive, a peer that has gone. The steps are
 * those of tests/examples/facade.rs. */
static void failures(struct station *station, bool requester)
{
	struct request request;

	memset(station->buffer, requester ? 0xee : UNTOUCHED, 16384);
	station_connect(station, requester ? NULL : one_receive);
	if (requester) {
		request = request_of(station, IBV_WR_RDMA_WRITE, 1, 64);
		request.remote_key ^= 0x80;
		refused(station, &request, IBV_WC_REM_ACCESS_ERR);
	} else {
		was_refused(station, IBV_EVENT_QP_ACCESS_ERR);
	}
	meet_step(station->peer, 'M');
	meet_step(station->peer, 'D');
	station_disconnect(station);

	station_connect(station, NULL);
	if (requester) {
		request = request_of(station, IBV_WR_SEND, 1, 64);
		failed(station, &request, IBV_WC_RNR_RETRY_EXC_ERR, true);
	}
	meet_step(station->peer, 'M');
	meet_step(station->peer, 'D');
	station_disconnect(station);

	station_connect(station, NULL);
	if (!requester)
		station_disconnect(station);
	meet_step(station->peer, 'P');
	if (requester) {
		request = request_of(station, IBV_WR_RDMA_WRITE, 1, 64);
		refused(station, &request, IBV_WC_RETRY_EXC_ERR);
		station_disconnect(station);
	}
	meet_step(station->peer, 'M');
	meet_step(station->peer, 'D');
}

static void traffic(struct station *station, bool requester)
{
	station_connect(station, NULL);
	verify_traffic(station, requester);
	meet_step(station->peer, 'D');
	station_disconnect(station);
}

const struct scene scenes[] = {
	{ "traffic", "every operation, both ways, compared", traffic },
	{ "exchange", "a session of docs/exchange.md, against ringside bench as well", exchange },
	{ "datagrams", "datagrams both ways, each answered, against tests/examples/datagrams.rs as well", datagrams },
	{ "wrong-key-write", "a write with a key that was never given", wrong_key_write },
	{ "wrong-key-read", "a read with a key that was never given", wrong_key_read },
	{ "out-of-bounds", "a write that ends one byte behind the region", out_of_bounds },
	{ "no-right-to-write", "a write to a region that is not for it", no_right_to_write },
	{ "no-right-to-read", "a read of a region that is not for it", no_right_to_read },
	{ "deregistered", "a write to a region that is no more", deregistered },
	{ "wrong-local-key", "a write from memory with a wrong local key", wrong_local_key },
	{ "receive-too-small", "a send that does not fit", receive_too_small },
	{ "no-receive", "a send for which no receive ever comes", no_receive },
	{ "late-receive", "a send for which the receive comes late", late_receive },
	{ "failures", "a wrong key, a send without a receive, a peer that has gone, against tests/examples/facade.rs as well", failures },
	{ "destroyed-under-load", "queue pairs destroyed with requests under way", destroyed_under_load },
	{ "stream", "writes without pause, which all succeed", stream_through },
	{ "stream-broken", "writes without pause, until retries end them", stream_broken },
	{ 0 },
};
