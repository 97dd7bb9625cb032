/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* nvme_host ADDRESS PORT NQN READ-FILE WRITE-FILE   A small NVMe host over RDMA, by verbs and the connection manager.
 *
 * Connects the admin queue and one I/O queue, identifies controller and namespace 1, stores its first MiB in READ-FILE, writes a
 * pattern to the second MiB (keyed data, data in the capsule, memory windows that the controller invalidates), compares what it
 * reads back, and stores the pattern in WRITE-FILE. Exit status 0: every status and every byte was as expected. */
#include "host.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIB = 1 << 20, BLOCK = 512, WAITS = 200 };

static uint8_t scratch[4096] __attribute__((aligned(4096)));
static uint8_t from[MIB] __attribute__((aligned(4096))), to[MIB] __attribute__((aligned(4096)));

static void good(struct response response, const char *what)
{
	if (response.status >> 1)
		fail("%s: status %#x", what, response.status >> 1);
}

static uint16_t connect_queue(struct queue *queue, const char *subsystem, uint16_t controller)
{
	struct connect_data *data = (void *)scratch;
	struct ibv_mr *region = registered(queue, scratch, sizeof scratch, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	struct command command = { .opcode = FABRICS, .namespace_or_type = CONNECT,
		.connect = { .queue = queue->number, .size = DEPTH - 1 } };
	struct response response;

	memset(data, 0, sizeof *data);
	memcpy(data->host, "ringside's host", 16);
	data->controller = controller;
	strcpy(data->subsystem, subsystem);
	strcpy(data->host_name, "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001");
	command_data(&command, KEYED, data, sizeof *data, region->rkey);
	response = queue_ask(queue, &command, NULL);
	good(response, "Connect");
	ibv_dereg_mr(region);
	return response.controller;
}

static uint64_t property(struct queue *admin, uint32_t offset, unsigned bytes)
{
	struct command command = { .opcode = FABRICS, .namespace_or_type = PROPERTY_GET,
		.property = { .size = bytes == 8, .offset = offset } };
	struct response response = queue_ask(admin, &command, NULL);

	good(response, "Property Get");
	return bytes == 8 ? response.value : response.word;
}

static void set_property(struct queue *admin, uint32_t offset, uint32_t value)
{
	struct command command = { .opcode = FABRICS, .namespace_or_type = PROPERTY_SET,
		.property = { .offset = offset, .value = value } };

	good(queue_ask(admin, &command, NULL), "Property Set");
}

static void configured(struct queue *admin, uint32_t value, uint32_t mask, uint32_t wanted)
{
	struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };

	set_property(admin, CONFIGURATION, value);
	for (int i = 0; (property(admin, STATUS, 4) & mask) != wanted; i++) {
		if (i == WAITS)
			fail("CSTS is %#lx", property(admin, STATUS, 4));
		nanosleep(&pause, NULL);
	}
}

/* Fills `scratch` with what the controller tells about itself (1) or about namespace 1 (0). */
static void identify(struct queue *admin, uint32_t kind)
{
	struct ibv_mr *region = registered(admin, scratch, sizeof scratch, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct command command = { .opcode = IDENTIFY, .namespace_or_type = !kind, .words = { kind } };

	memset(scratch, 0xA5, sizeof scratch);
	command_data(&command, KEYED, scratch, sizeof scratch, region->rkey);
	good(queue_ask(admin, &command, NULL), "Identify");
	ibv_dereg_mr(region);
}

static uint64_t number(unsigned at, unsigned bytes)
{
	uint64_t value = 0;

	memcpy(&value, scratch + at, bytes);
	return value;
}

static void transfer(struct command *command, uint8_t opcode, uint32_t place, uint32_t bytes)
{
	memset(command, 0, sizeof *command);
	command->opcode = opcode;
	command->namespace_or_type = 1;
	command->transfer.first_block = place / BLOCK;
	command->transfer.blocks = bytes / BLOCK - 1;
}

/* Moves `bytes` between memory and the namespace at `place` by commands of at most `each` bytes, DEPTH - 1 of them at once. */
static void moved(struct queue *queue, uint8_t opcode, uint8_t *memory, struct ibv_mr *region, uint32_t place, uint32_t bytes, uint32_t each)
{
	bool busy[DEPTH] = { false };
	unsigned outstanding = 0;

	for (uint32_t done = 0; done < bytes || outstanding;) {
		if (done < bytes && outstanding < DEPTH - 1) {
			struct command command;
			uint32_t piece = bytes - done < each ? bytes - done : each;

			transfer(&command, opcode, place + done, piece);
			while (busy[command.id])
				command.id++;
			busy[command.id] = true;
			command_data(&command, KEYED, memory + done, piece, region->rkey);
			queue_send(queue, &command, NULL);
			done += piece;
			outstanding++;
		} else {
			struct response response = queue_response(queue);

			good(response, opcode == READ ? "Read" : "Write");
			if (!busy[response.id])
				fail("command %u completed twice", response.id);
			busy[response.id] = false;
			outstanding--;
		}
	}
}

/* A write whose data is behind the command in its capsule. */
static void written_in_capsule(struct queue *queue, struct ibv_mr *region, uint32_t place, uint32_t bytes)
{
	struct command command;
	struct ibv_sge data = { (uintptr_t)from + place - MIB, bytes, region->lkey };

	transfer(&command, WRITE, place, bytes);
	/* An offset in the capsule, and a length of four bytes. */
	command_data(&command, IN_CAPSULE, NULL, bytes, 0);
	good(queue_ask(queue, &command, &data), "Write in the capsule");
}

/* A read into a memory window, whose key the controller must invalidate. */
static void read_by_window(struct queue *queue, struct ibv_mr *region, uint32_t place, uint32_t bytes)
{
	struct ibv_mw *window = ibv_alloc_mw(queue->id->pd, IBV_MW_TYPE_2);
	uint32_t key = window ? ibv_inc_rkey(window->rkey) : 0;
	struct ibv_send_wr bind = { .wr_id = 2 * DEPTH, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct command command;

	if (!window)
		fail("ibv_alloc_mw");
	bind.bind_mw.mw = window;
	bind.bind_mw.rkey = key;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){ region, (uintptr_t)to + place - MIB, bytes, IBV_ACCESS_REMOTE_WRITE };
	if (ibv_post_send(queue->id->qp, &bind, &bad))
		fail("the bind of a memory window");
	transfer(&command, READ, place, bytes);
	command_data(&command, KEYED_INVALIDATE, to + place - MIB, bytes, key);
	good(queue_ask(queue, &command, NULL), "Read by a memory window");
	if (queue->invalidated != key)
		fail("the controller invalidated key %#x instead of %#x", queue->invalidated, key);
	ibv_dealloc_mw(window);
}

static void store(const char *path, const void *memory)
{
	FILE *file = fopen(path, "wb");

	if (!file || fwrite(memory, 1, MIB, file) != MIB || fclose(file))
		fail("%s cannot be written", path);
}

static void same(const char *what)
{
	for (unsigned i = 0; i < MIB; i++)
		if (from[i] != to[i])
			fail("%s: byte %u is %#x instead of %#x", what, i, to[i], from[i]);
	memset(to, 0, MIB);
}

static void blocks(struct queue *queue, uint32_t in_capsule, const char *read_file, const char *write_file)
{
	struct ibv_mr *out = registered(queue, from, MIB, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *in = registered(queue, to, MIB, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	static const uint32_t pieces[] = { BLOCK, 4096, 65536 };
	struct command command;
	struct response response;

	moved(queue, READ, to, in, 0, MIB, 65536);
	store(read_file, to);
	for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		for (unsigned at = 0; at < MIB; at++)
			from[at] = (at * 7 + (at >> 9) * 31 + i * 101 + 1);
		moved(queue, WRITE, from, out, MIB, MIB, pieces[i]);
		moved(queue, READ, to, in, MIB, MIB, pieces[i]);
		same("what was read back");
	}
	for (uint32_t bytes = BLOCK; bytes <= in_capsule; bytes *= 2) {
		memset(from + bytes, bytes / BLOCK, bytes);
		written_in_capsule(queue, out, MIB + bytes, bytes);
	}
	moved(queue, READ, to, in, MIB, MIB, 65536);
	same("what was written from capsules");
	for (uint32_t bytes = BLOCK; bytes < MIB / 2; bytes *= 2)
		read_by_window(queue, in, MIB + bytes, bytes);
	for (uint32_t at = BLOCK; at < MIB / 2; at++)
		if (to[at] != from[at])
			fail("by a memory window: byte %u is %#x instead of %#x", at, to[at], from[at]);
	/* A refusal ends a command and not the queue. */
	transfer(&command, READ, 0, BLOCK);
	command.namespace_or_type = 2;
	command_data(&command, KEYED, to, BLOCK, in->rkey);
	response = queue_ask(queue, &command, NULL);
	if ((response.status >> 1 & STATUS_CODE) != INVALID_NAMESPACE)
		fail("a read of namespace 2: status %#x", response.status >> 1);
	moved(queue, READ, to, in, MIB, MIB, 4096);
	same("what was read after a refused command");
	store(write_file, from);
	ibv_dereg_mr(in);
	ibv_dereg_mr(out);
}

int main(int count, char **words)
{
	static struct queue admin, io;
	struct sockaddr_in target = { .sin_family = AF_INET };
	struct command features = { .opcode = SET_FEATURES, .words = { 7 } };
	uint32_t in_capsule;
	uint64_t size;
	uint16_t controller;

	if (count != 6 || inet_pton(AF_INET, words[1], &target.sin_addr) != 1)
		fail("nvme_host ADDRESS PORT NQN READ-FILE WRITE-FILE");
	target.sin_port = htons(atoi(words[2]));
	queue_open(&admin, &target, 0);
	controller = connect_queue(&admin, words[3], 0xFFFF);
	printf("controller %u, capabilities %#lx, version %#lx\n", controller, property(&admin, CAPABILITIES, 8), property(&admin, VERSION, 4));
	configured(&admin, ENTRY_SIZES | ENABLE, READY, READY);
	identify(&admin, 1);
	if (number(78, 2) != controller || strcmp((char *)scratch + 768, words[3]))
		fail("controller %lu of '%.256s' was identified", number(78, 2), scratch + 768);
	/* IOCCSZ, in units of 16 bytes, with the command. */
	in_capsule = number(1792, 4) * 16 - sizeof(struct command);
	identify(&admin, 0);
	size = number(0, 8);
	printf("%lu blocks of %u bytes, %u bytes of data in a capsule\n", size, 1u << scratch[128 + 2], in_capsule);
	if (1 << scratch[128 + 2] != BLOCK || size < 2 * MIB / BLOCK)
		fail("that is not the namespace of the test");
	good(queue_ask(&admin, &features, NULL), "Set Features");
	queue_open(&io, &target, 1);
	connect_queue(&io, words[3], controller);
	blocks(&io, in_capsule, words[4], words[5]);
	queue_close(&io);
	configured(&admin, ENTRY_SIZES | ENABLE | SHUTDOWN, SHUTDOWN_MASK, SHUTDOWN_COMPLETE);
	queue_close(&admin);
	printf("every byte compared\n");
	return 0;
}
