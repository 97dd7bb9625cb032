/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Datagrams, each answered to its source. The other side is this program or tests/examples/datagrams.rs. */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define QUEUE_KEY 0x01234567u
#define IMMEDIATE 0x51de0000u
/* Datagrams are sent from the beginning of the buffer and arrive here, after the 40 bytes of their route. */
#define ARRIVAL 8192u
#define ROUTE_BYTES 40u
#define LARGEST 4096u

static const uint32_t lengths[] = { 1, 63, 64, 1000, 1024 };

struct round {
	unsigned number;
	uint32_t length;
	bool with_immediate;
};

static uint8_t pattern(uint32_t at, unsigned round, bool server)
{
	return at * 7 + (at >> 8) * 31 + round * 13 + server * 101 + 1;
}

static void make_ready(struct station *station)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = station->completions,
		.recv_cq = station->completions,
		.cap = { .max_send_wr = QUEUE_DEPTH, .max_recv_wr = QUEUE_DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QUEUE_KEY };

	station->queue_pair = ibv_create_qp(station->domain, &wanted);
	if (!station->queue_pair)
		fail("datagram queue pair: %s", strerror(errno));
	if (ibv_modify_qp(station->queue_pair, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		fail("datagram queue pair to INIT: %s", strerror(errno));
	state.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(station->queue_pair, &state, IBV_QP_STATE))
		fail("datagram queue pair to RTR: %s", strerror(errno));
	state.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(station->queue_pair, &state, IBV_QP_STATE | IBV_QP_SQ_PSN))
		fail("datagram queue pair to RTS: %s", strerror(errno));
	station->ours.queue_pair = station->queue_pair->qp_num;
	station->ours.regions = 0;
}

static struct ibv_ah *handle_to_peer(struct station *station)
{
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1,
				   .grh = { .sgid_index = station->options->gid_index, .hop_limit = 64 } };
	struct ibv_ah *handle;

	memcpy(way.grh.dgid.raw, station->theirs.address, 16);
	handle = ibv_create_ah(station->domain, &way);
	if (!handle)
		fail("address handle: %s", strerror(errno));
	return handle;
}

static void send_datagram(struct station *station, const struct round *round, bool server, struct ibv_ah *handle, uint32_t queue_pair)
{
	struct ibv_sge piece = { (uintptr_t)station->buffer, round->length, station->region->lkey };
	struct ibv_send_wr work = {
		.wr_id = round->number, .sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.opcode = round->with_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.imm_data = htonl(IMMEDIATE + round->number),
		.wr.ud = { .ah = handle, .remote_qpn = queue_pair, .remote_qkey = QUEUE_KEY },
	}, *refused;

	for (uint32_t i = 0; i < round->length; i++)
		station->buffer[i] = pattern(i, round->number, server);
	if (ibv_post_send(station->queue_pair, &work, &refused))
		fail("posting a datagram: %s", strerror(errno));
}

/* Checks that the datagram is the peer's of this round, from the peer's queue pair and address to ours. */
static void arrived(const struct station *station, const struct round *round, bool server, const struct ibv_wc *done)
{
	const uint8_t *route = station->buffer + ARRIVAL, *payload = route + ROUTE_BYTES;

	if (!(done->wc_flags & IBV_WC_GRH) || done->byte_len != ROUTE_BYTES + round->length)
		fail("round %u: %u bytes, flags %#x", round->number, done->byte_len, done->wc_flags);
	if (done->src_qp != station->theirs.queue_pair)
		fail("round %u: from queue pair %u instead of %u", round->number, done->src_qp, station->theirs.queue_pair);
	if (!(done->wc_flags & IBV_WC_WITH_IMM) != !round->with_immediate ||
	    (round->with_immediate && ntohl(done->imm_data) != IMMEDIATE + round->number))
		fail("round %u: flags %#x, immediate %#x", round->number, done->wc_flags, ntohl(done->imm_data));
	/* An IPv4 header is in the last 20 of the 40 bytes: source at its byte 12, destination at 16. */
	if (station->ours.family == 4 && (memcmp(route + 32, station->theirs.address + 12, 4) || memcmp(route + 36, station->ours.address + 12, 4)))
		fail("round %u: from %u.%u.%u.%u to %u.%u.%u.%u", round->number, route[32], route[33], route[34], route[35],
		     route[36], route[37], route[38], route[39]);
	for (uint32_t i = 0; i < round->length; i++)
		if (payload[i] != pattern(i, round->number, server))
			fail("round %u, %u bytes: byte %u is %#x", round->number, round->length, i, payload[i]);
	if (payload[round->length])
		fail("round %u: the byte behind the datagram was changed", round->number);
}

static struct ibv_wc succeeded(struct station *station, unsigned round)
{
	return expect_completion(station, round, IBV_WC_SUCCESS);
}

static void play(struct station *station, bool asks, bool server, const struct round *round, struct ibv_ah *handle)
{
	struct ibv_wc done, other;

	memset(station->buffer + ARRIVAL, 0, ROUTE_BYTES + LARGEST);
	post_receive(station, round->number, ARRIVAL, ROUTE_BYTES + LARGEST);
	meet_step(station->peer, 'P');
	if (asks) {
		send_datagram(station, round, server, handle, station->theirs.queue_pair);
		done = succeeded(station, round->number);
		other = succeeded(station, round->number);
		arrived(station, round, !server, done.opcode & IBV_WC_RECV ? &done : &other);
	} else {
		struct ibv_ah *answer;

		done = succeeded(station, round->number);
		arrived(station, round, !server, &done);
		answer = ibv_create_ah_from_wc(station->domain, &done, (struct ibv_grh *)(station->buffer + ARRIVAL), 1);
		if (!answer)
			fail("address handle for the answer: %s", strerror(errno));
		send_datagram(station, round, server, answer, done.src_qp);
		succeeded(station, round->number);
		if (ibv_destroy_ah(answer))
			fail("destroying an address handle: %s", strerror(errno));
	}
	meet_step(station->peer, 'T');
}

void datagrams(struct station *station, bool client)
{
	struct round round = { 0 };
	struct ibv_ah *handle;

	make_ready(station);
	meet_greet(station->peer, &station->ours, &station->theirs);
	station_introduce(station);
	handle = handle_to_peer(station);
	meet_step(station->peer, 'R');
	for (unsigned server_asks = 0; server_asks < 2; server_asks++)
		for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
			for (unsigned immediate = 0; immediate < 2; immediate++) {
				round = (struct round){ round.number + 1, lengths[i], immediate };
				play(station, client != server_asks, !client, &round, handle);
			}
	meet_step(station->peer, 'D');
	if (ibv_destroy_ah(handle))
		fail("destroying an address handle: %s", strerror(errno));
	station_disconnect(station);
	printf("verified: %u datagrams, each answered\n", round.number);
}
