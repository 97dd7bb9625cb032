/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* One queue of an NVMe controller over a reliable connection: commands are sends, completions are receives. */
#include "host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fail(const char *format, ...)
{
	va_list words;

	fflush(stdout);
	fputs("nvme_host: ", stderr);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fputc('\n', stderr);
	exit(1);
}

static time_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

/* An event of the connection manager, which must be the expected one; private data that came with it is copied. */
static void expect(struct queue *queue, enum rdma_cm_event_type wanted, void *data, size_t bytes)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(queue->channel, &event))
		fail("rdma_get_cm_event: %s", strerror(errno));
	if (event->event != wanted)
		fail("%s (status %d) instead of %s", rdma_event_str(event->event), event->status, rdma_event_str(wanted));
	if (data && event->param.conn.private_data_len < bytes)
		fail("an accept with %d bytes of private data", event->param.conn.private_data_len);
	if (data)
		memcpy(data, event->param.conn.private_data, bytes);
	rdma_ack_cm_event(event);
}

struct ibv_mr *registered(struct queue *queue, void *memory, size_t bytes, int access)
{
	struct ibv_mr *region = ibv_reg_mr(queue->id->pd, memory, bytes, access);

	if (!region)
		fail("a region of %zu bytes: %s", bytes, strerror(errno));
	return region;
}

static void receive(struct queue *queue, unsigned slot)
{
	struct ibv_sge place = { (uintptr_t)&queue->responses[slot], sizeof *queue->responses, queue->responses_region->lkey };
	struct ibv_recv_wr work = { .wr_id = slot, .sg_list = &place, .num_sge = 1 }, *bad;

	if (ibv_post_recv(queue->id->qp, &work, &bad))
		fail("ibv_post_recv: %s", strerror(errno));
}

static void resolved(struct queue *queue, const struct sockaddr_in *target)
{
	queue->channel = rdma_create_event_channel();
	if (!queue->channel || rdma_create_id(queue->channel, &queue->id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id: %s", strerror(errno));
	if (rdma_resolve_addr(queue->id, NULL, (struct sockaddr *)target, 5000))
		fail("rdma_resolve_addr: %s", strerror(errno));
	expect(queue, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
	if (rdma_resolve_route(queue->id, 5000))
		fail("rdma_resolve_route: %s", strerror(errno));
	expect(queue, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0);
}

void queue_open(struct queue *queue, const struct sockaddr_in *target, uint16_t number)
{
	/* Twice the depth: a command, and the bind of its memory window. */
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 2 * DEPTH, .max_recv_wr = DEPTH,
		.max_send_sge = 2, .max_recv_sge = 1 } };
	struct request_data asked = { .queue = number, .receives = DEPTH, .sends = DEPTH - 1 };
	struct accept_data answered;
	/* The controller reads and writes this host's memory; the host never does the controller's. */
	struct rdma_conn_param parameters = { .private_data = &asked, .private_data_len = sizeof asked, .responder_resources = 16,
		.retry_count = 7, .rnr_retry_count = 7 };

	memset(queue, 0, sizeof *queue);
	queue->number = number;
	resolved(queue, target);
	queue->completions = ibv_create_cq(queue->id->verbs, 4 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = queue->completions;
	if (!queue->completions || rdma_create_qp(queue->id, NULL, &init))
		fail("rdma_create_qp: %s", strerror(errno));
	queue->commands_region = registered(queue, queue->commands, sizeof queue->commands, IBV_ACCESS_LOCAL_WRITE);
	queue->responses_region = registered(queue, queue->responses, sizeof queue->responses, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned slot = 0; slot < DEPTH; slot++)
		receive(queue, slot);
	if (rdma_connect(queue->id, &parameters))
		fail("rdma_connect: %s", strerror(errno));
	expect(queue, RDMA_CM_EVENT_ESTABLISHED, &answered, sizeof answered);
	if (answered.format || answered.receives < DEPTH)
		fail("the controller accepts with format %u and %u receives", answered.format, answered.receives);
}

void queue_close(struct queue *queue)
{
	if (rdma_disconnect(queue->id))
		fail("rdma_disconnect: %s", strerror(errno));
	expect(queue, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	rdma_destroy_qp(queue->id);
	if (ibv_dereg_mr(queue->commands_region) || ibv_dereg_mr(queue->responses_region) || ibv_destroy_cq(queue->completions))
		fail("the queue's objects: %s", strerror(errno));
	if (rdma_destroy_id(queue->id))
		fail("rdma_destroy_id: %s", strerror(errno));
	rdma_destroy_event_channel(queue->channel);
}

void queue_wait(struct queue *queue, struct ibv_wc *done)
{
	time_t end = now() + SECONDS;

	while (!ibv_poll_cq(queue->completions, 1, done))
		if (now() > end)
			fail("queue %u: no completion within %d s", queue->number, SECONDS);
	if (done->status != IBV_WC_SUCCESS)
		fail("queue %u: a completion with %s", queue->number, ibv_wc_status_str(done->status));
}

void queue_send(struct queue *queue, struct command *command, const struct ibv_sge *data)
{
	unsigned slot = command->id;
	struct ibv_sge pieces[2] = { { (uintptr_t)&queue->commands[slot], sizeof *command, queue->commands_region->lkey } };
	struct ibv_send_wr work = { .wr_id = DEPTH + slot, .sg_list = pieces, .num_sge = data ? 2 : 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;

	command->flags = FLAGS_SGL;
	/* A command without data describes a keyed block of no bytes. */
	if (!command->kind && !data)
		command->kind = KEYED;
	queue->commands[slot] = *command;
	if (data)
		pieces[1] = *data;
	if (ibv_post_send(queue->id->qp, &work, &bad))
		fail("ibv_post_send: %s", strerror(errno));
}

struct response queue_response(struct queue *queue)
{
	struct response response;
	struct ibv_wc done;

	/* Completions of sends come in between. */
	do
		queue_wait(queue, &done);
	while (done.opcode != IBV_WC_RECV);
	if (done.byte_len != sizeof response)
		fail("a completion of %u bytes", done.byte_len);
	response = queue->responses[done.wr_id];
	queue->invalidated = done.wc_flags & IBV_WC_WITH_INV ? done.invalidated_rkey : 0;
	if (response.id >= DEPTH)
		fail("a completion for command %u", response.id);
	receive(queue, done.wr_id);
	return response;
}

struct response queue_ask(struct queue *queue, struct command *command, const struct ibv_sge *data)
{
	struct response response;

	command->id = 3;
	queue_send(queue, command, data);
	response = queue_response(queue);
	if (response.id != command->id)
		fail("a completion for command %u instead of %u", response.id, command->id);
	return response;
}

void command_data(struct command *command, uint8_t kind, const void *memory, uint32_t bytes, uint32_t key)
{
	command->address = (uintptr_t)memory;
	memcpy(command->length, &bytes, sizeof command->length);
	memcpy(command->key, &key, sizeof command->key);
	command->kind = kind;
}
