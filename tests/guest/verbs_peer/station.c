/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A device, its memory, and one reliable connection. */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	for (unsigned i = 0; devices && devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), name)) {
			struct ibv_context *context = ibv_open_device(devices[i]);

			ibv_free_device_list(devices);
			if (!context)
				fail("device %s cannot be opened: %s", name, strerror(errno));
			return context;
		}
	fail("there is no RDMA device %s", name);
}

static uint8_t *aligned_buffer(size_t bytes)
{
	void *buffer = NULL;

	if (posix_memalign(&buffer, 4096, bytes))
		fail("no memory");
	memset(buffer, 0, bytes);
	return buffer;
}

/* Our MAC address, and our IP address from the table of GIDs. */
static void own_addresses(struct station *station)
{
	char path[128], text[32] = "";
	unsigned part[6];
	union ibv_gid gid;
	FILE *file;

	snprintf(path, sizeof path, "/sys/class/net/%s/address", station->options->netdev);
	file = fopen(path, "r");
	if (!file || !fgets(text, sizeof text, file) ||
	    sscanf(text, "%x:%x:%x:%x:%x:%x", part, part + 1, part + 2, part + 3, part + 4, part + 5) != 6)
		fail("%s cannot be read", path);
	fclose(file);
	for (unsigned i = 0; i < 6; i++)
		station->ours.mac[i] = part[i];
	if (ibv_query_gid(station->context, 1, station->options->gid_index, &gid))
		fail("there is no GID %u", station->options->gid_index);
	memcpy(station->ours.address, gid.raw, 16);
	station->ours.family = IN6_IS_ADDR_V4MAPPED((struct in6_addr *)gid.raw) ? 4 : 6;
}

void station_open(struct station *station, const struct options *options, int peer)
{
	struct ibv_port_attr port;

	memset(station, 0, sizeof *station);
	station->options = options;
	station->peer = peer;
	station->context = open_device(options->device);
	station->domain = ibv_alloc_pd(station->context);
	station->completions = ibv_create_cq(station->context, 4 * QUEUE_DEPTH, NULL, NULL, 0);
	if (!station->domain || !station->completions)
		fail("protection domain or completion queue: %s", strerror(errno));
	station->buffer = aligned_buffer(BUFFER_BYTES);
	station->poor_buffer = aligned_buffer(4096);
	station->region = ibv_reg_mr(station->domain, station->buffer, BUFFER_BYTES, ALL_ACCESS);
	station->poor = ibv_reg_mr(station->domain, station->poor_buffer, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (!station->region || !station->poor)
		fail("memory region: %s", strerror(errno));
	fcntl(station->context->async_fd, F_SETFL, fcntl(station->context->async_fd, F_GETFL) | O_NONBLOCK);
	own_addresses(station);
	if (ibv_query_port(station->context, 1, &port))
		fail("port 1: %s", strerror(errno));
	station->ours.path_mtu = 128u << port.active_mtu;
	if (options->mtu && options->mtu < station->ours.path_mtu)
		station->ours.path_mtu = options->mtu;
	station->ours.regions = 2;
	station->ours.region[0] = (struct region){ (uintptr_t)station->buffer, BUFFER_BYTES, station->region->rkey };
	station->ours.region[1] = (struct region){ (uintptr_t)station->poor_buffer, 4096, station->poor->rkey };
}

void station_close(struct station *station)
{
	if ((station->region && ibv_dereg_mr(station->region)) || ibv_dereg_mr(station->poor) ||
	    ibv_destroy_cq(station->completions) || ibv_dealloc_pd(station->domain))
		fail("taking down: %s", strerror(errno));
	ibv_close_device(station->context);
	free(station->buffer);
	free(station->poor_buffer);
}

void station_make(struct station *station)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = station->completions,
		.recv_cq = station->completions,
		.cap = { .max_send_wr = QUEUE_DEPTH, .max_recv_wr = QUEUE_DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = ALL_ACCESS };

	station->queue_pair = ibv_create_qp(station->domain, &wanted);
	if (!station->queue_pair)
		fail("queue pair: %s", strerror(errno));
	if (ibv_modify_qp(station->queue_pair, &init,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("queue pair to INIT: %s", strerror(errno));
	station->ours.queue_pair = station->queue_pair->qp_num;
	station->ours.start_psn = rand() & 0xffffff;
}

/* The kernel looks the peer's MAC address up in its table of neighbours: a peer that does not answer ARP is entered here. */
void station_introduce(const struct station *station)
{
	struct arpreq entry = { .arp_flags = ATF_PERM | ATF_COM };
	struct sockaddr_in address = { .sin_family = AF_INET };
	int any = socket(AF_INET, SOCK_DGRAM, 0);

	if (station->theirs.family != 4 || station->options->asks)
		return;
	memcpy(&address.sin_addr, station->theirs.address + 12, 4);
	memcpy(&entry.arp_pa, &address, sizeof address);
	entry.arp_ha.sa_family = ARPHRD_ETHER;
	memcpy(entry.arp_ha.sa_data, station->theirs.mac, 6);
	strncpy(entry.arp_dev, station->options->netdev, sizeof entry.arp_dev - 1);
	if (any < 0 || ioctl(any, SIOCSARP, &entry))
		fail("the peer's address cannot be entered into the table of neighbours: %s", strerror(errno));
	close(any);
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	for (unsigned code = IBV_MTU_256; code <= IBV_MTU_4096; code++)
		if (bytes == 128u << code)
			return code;
	fail("no path MTU of %u bytes", bytes);
}

static void connect_queue_pair(struct station *station)
{
	const struct options *options = station->options;
	uint32_t mtu = station->theirs.path_mtu < station->ours.path_mtu ? station->theirs.path_mtu : station->ours.path_mtu;
	struct ibv_qp_attr ready = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_of(mtu), .dest_qp_num = station->theirs.queue_pair,
		.rq_psn = station->theirs.start_psn, .max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = options->gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp_attr sending = {
		.qp_state = IBV_QPS_RTS, .sq_psn = station->ours.start_psn, .timeout = options->timeout,
		.retry_cnt = options->retries, .rnr_retry = options->rnr_retries, .max_rd_atomic = 16,
	};

	memcpy(ready.ah_attr.grh.dgid.raw, station->theirs.address, 16);
	if (ibv_modify_qp(station->queue_pair, &ready,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("queue pair to RTR: %s", strerror(errno));
	if (ibv_modify_qp(station->queue_pair, &sending,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC))
		fail("queue pair to RTS: %s", strerror(errno));
}

void station_join(struct station *station)
{
	station_introduce(station);
	connect_queue_pair(station);
}

void station_connect(struct station *station, void (*ready)(struct station *))
{
	station_make(station);
	meet_greet(station->peer, &station->ours, &station->theirs);
	station_join(station);
	if (ready)
		ready(station);
	meet_step(station->peer, 'R');
}

void station_disconnect(struct station *station)
{
	struct ibv_async_event event;
	struct ibv_wc done;

	/* Acknowledges events that were not waited for; otherwise destroying waits for ever. */
	while (ibv_get_async_event(station->context, &event) == 0)
		ibv_ack_async_event(&event);
	if (ibv_destroy_qp(station->queue_pair))
		fail("destroying the queue pair: %s", strerror(errno));
	station->queue_pair = NULL;
	while (ibv_poll_cq(station->completions, 1, &done) > 0)
		;
}

struct request request_of(const struct station *station, enum ibv_wr_opcode opcode, uint64_t id, uint32_t length)
{
	return (struct request){
		.opcode = opcode, .id = id, .length = length, .local_key = station->region->lkey,
		.remote_address = station->theirs.region[0].address, .remote_key = station->theirs.region[0].key,
	};
}

bool try_post(struct station *station, const struct request *request)
{
	struct ibv_sge piece = { (uintptr_t)station->buffer + request->offset, request->length, request->local_key };
	struct ibv_send_wr work = {
		.wr_id = request->id, .sg_list = &piece, .num_sge = request->length ? 1 : 0, .opcode = request->opcode,
		.send_flags = IBV_SEND_SIGNALED | (request->inlined ? IBV_SEND_INLINE : 0),
		.imm_data = htonl(request->immediate),
		.wr.rdma = { request->remote_address, request->remote_key },
	}, *refused;
	int status = ibv_post_send(station->queue_pair, &work, &refused);

	if (status && status != ENOMEM)
		fail("posting a request: %s", strerror(status));
	return status == 0;
}

void post(struct station *station, const struct request *request)
{
	if (!try_post(station, request))
		fail("posting a request: the queue is full");
}

void post_receive(struct station *station, uint64_t id, uint32_t offset, uint32_t length)
{
	struct ibv_sge piece = { (uintptr_t)station->buffer + offset, length, station->region->lkey };
	struct ibv_recv_wr work = { .wr_id = id, .sg_list = &piece, .num_sge = 1 }, *refused;
	int status = ibv_post_recv(station->queue_pair, &work, &refused);

	if (status)
		fail("posting a receive: %s", strerror(status));
}

bool completion(struct station *station, struct ibv_wc *done, unsigned wait_ms)
{
	uint64_t end = now_ms() + wait_ms;

	for (;;) {
		int found = ibv_poll_cq(station->completions, 1, done);

		if (found < 0)
			fail("polling the completion queue failed");
		if (found)
			return true;
		if (now_ms() > end)
			return false;
	}
}

struct ibv_wc expect_completion(struct station *station, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc done;

	if (!completion(station, &done, WAIT_MS))
		fail("request %llu did not complete within %u ms", (unsigned long long)id, WAIT_MS);
	if (done.wr_id != id || done.status != status)
		fail("request %llu completed with '%s' (vendor %#x); expected request %llu with '%s'",
		     (unsigned long long)done.wr_id, ibv_wc_status_str(done.status), done.vendor_err,
		     (unsigned long long)id, ibv_wc_status_str(status));
	return done;
}

void expect_event(struct station *station, enum ibv_event_type wanted)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_async_event event;

	for (;;) {
		struct pollfd waiting = { .fd = station->context->async_fd, .events = POLLIN };

		if (now_ms() > end)
			fail("no asynchronous event '%s' within %u ms", ibv_event_type_str(wanted), WAIT_MS);
		if (poll(&waiting, 1, 100) != 1 || ibv_get_async_event(station->context, &event))
			continue;
		ibv_ack_async_event(&event);
		printf("event: %s\n", ibv_event_type_str(event.event_type));
		if (event.event_type == wanted)
			return;
		if (event.event_type != IBV_EVENT_COMM_EST)
			fail("asynchronous event '%s' instead of '%s'", ibv_event_type_str(event.event_type),
			     ibv_event_type_str(wanted));
	}
}
