/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Data moved by every operation, one requester at a time, compared byte by byte. */
#include "peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define IMMEDIATE 0x51de0000u

static const uint32_t lengths[] = { 1, 2, 63, 64, 65, 1023, 1024, 1025, 4096, 65537, 1u << 20 };
static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
					      IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM };

static void fill(uint8_t *buffer, uint32_t length, unsigned round)
{
	for (uint32_t i = 0; i < length; i++)
		buffer[i] = i * 7 + (i >> 8) * 31 + round * 13 + 1;
}

static void compare(const uint8_t *buffer, uint32_t length, unsigned round, const char *what)
{
	for (uint32_t i = 0; i < length; i++) {
		uint8_t wanted = i * 7 + (i >> 8) * 31 + round * 13 + 1;

		if (buffer[i] != wanted)
			fail("%s of %u bytes: byte %u is %#x instead of %#x", what, length, i, buffer[i], wanted);
	}
	if (buffer[length] != 0)
		fail("%s of %u bytes: the byte behind it was changed", what, length);
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_READ;
}

static void request_round(struct station *station, enum ibv_wr_opcode opcode, uint32_t length, unsigned round)
{
	struct request request = request_of(station, opcode, round, length);

	request.immediate = IMMEDIATE + round;
	if (opcode != IBV_WR_RDMA_READ)
		fill(station->buffer, length, round);
	post(station, &request);
	expect_completion(station, round, IBV_WC_SUCCESS);
	if (opcode == IBV_WR_RDMA_READ)
		compare(station->buffer, length, round, "read");
}

static void respond_round(struct station *station, enum ibv_wr_opcode opcode, uint32_t length, unsigned round)
{
	struct ibv_wc done;

	if (!takes_receive(opcode))
		return;
	done = expect_completion(station, round, IBV_WC_SUCCESS);
	if (opcode != IBV_WR_SEND && (!(done.wc_flags & IBV_WC_WITH_IMM) || ntohl(done.imm_data) != IMMEDIATE + round))
		fail("round %u: immediate data %#x", round, ntohl(done.imm_data));
	if (done.byte_len != length)
		fail("round %u: %u bytes came instead of %u", round, done.byte_len, length);
}

/* One round: both sides prepare, the requester works, both sides compare. */
static void traffic_round(struct station *station, bool requester, enum ibv_wr_opcode opcode, uint32_t length, unsigned round)
{
	memset(station->buffer, 0, length + 1);
	if (!requester && opcode == IBV_WR_RDMA_READ)
		fill(station->buffer, length, round);
	if (!requester && takes_receive(opcode))
		post_receive(station, round, 0, length);
	meet_step(station->peer, 'A');
	if (requester)
		request_round(station, opcode, length, round);
	else
		respond_round(station, opcode, length, round);
	meet_step(station->peer, 'B');
	if (!requester && opcode != IBV_WR_RDMA_READ)
		compare(station->buffer, length, round, "write or send");
}

void verify_traffic(struct station *station, bool requester)
{
	unsigned round = 1;

	for (unsigned turn = 0; turn < 2; turn++, requester = !requester)
		for (unsigned i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
			for (unsigned j = 0; j < sizeof lengths / sizeof *lengths; j++)
				traffic_round(station, requester, opcodes[i], lengths[j], round++);
	printf("verified: %u rounds, each side as requester and as responder\n", round - 1);
}
