/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * verbs_peer: a program of ours for guests, which uses Linux's RDMA stack (libibverbs, irdma) against another copy of itself or
 * against `ringside bench`. It connects to its peer over TCP as docs/exchange.md specifies.
 *
 * Everything that can fail ends the program with a sentence on standard error and status 1; every wait has a deadline.
 */
#ifndef PEER_H
#define PEER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGIONS_MAX 64
#define BUFFER_BYTES (4u << 20)
#define QUEUE_DEPTH 128
#define WAIT_MS 20000
/* The wait for a client, which may have to bring its device up first. */
#define LISTEN_MS 120000

/* Ends the program with a sentence. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
uint64_t now_ms(void);
void sleep_ms(unsigned ms);

/* ---- meeting.c: two processes over TCP ---- */

struct region {
	uint64_t address, length_bytes;
	uint32_t key;
};

struct greeting {
	uint32_t queue_pair, start_psn, path_mtu;
	uint8_t mac[6];
	uint16_t family; /* 4 or 6 */
	uint8_t address[16]; /* IPv4 is mapped into IPv6 */
	unsigned regions;
	struct region region[REGIONS_MAX];
};

int meet_listen(unsigned port, unsigned wait_ms);
int meet_connect(const char *host, unsigned port, unsigned wait_ms);
void meet_greet(int peer, const struct greeting *ours, struct greeting *theirs);
/* Sends a step and waits for the same step of the peer. */
void meet_step(int peer, char step);
/* Sends the reason of the failure to the peer, and ends the program. */
void meet_failed(int peer, const char *reason) __attribute__((noreturn));
void meet_write(int peer, const void *bytes, size_t length);
void meet_read(int peer, void *bytes, size_t length);

/* ---- station.c: a device and one connection ---- */

struct options {
	const char *device, *netdev;
	unsigned gid_index, mtu; /* mtu 0: that of the port */
	unsigned timeout, retries, rnr_retries;
	unsigned seconds;
	bool asks; /* the kernel asks the network for the peer's MAC address; otherwise it is entered */
	bool eventless; /* a refused request gives no event here: rdma_rxe */
	uint32_t largest; /* message that `exchange` requests */
	const char *host; /* null: listens */
	unsigned port;
};

struct station {
	const struct options *options;
	int peer;
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_cq *completions;
	struct ibv_qp *queue_pair;
	/* `region` may be used by the peer in every way; `poor` only locally. */
	uint8_t *buffer, *poor_buffer;
	struct ibv_mr *region, *poor;
	struct greeting ours, theirs;
};

void station_open(struct station *station, const struct options *options, int peer);
void station_close(struct station *station);
/* The parts of `station_connect`: a queue pair in INIT, and to RTR and RTS once the peer's greeting is known. */
void station_make(struct station *station);
void station_join(struct station *station);
/* Enters the peer's MAC address into the kernel's neighbour table, after its greeting, unless the kernel is to ask for it. */
void station_introduce(const struct station *station);
/* Makes a queue pair, greets, connects, and keeps step 'R'. Receives are to be posted by `ready`, before the step. */
void station_connect(struct station *station, void (*ready)(struct station *));
/* Takes the queue pair down and empties the completion queue. */
void station_disconnect(struct station *station);

struct request {
	enum ibv_wr_opcode opcode;
	uint64_t id;
	uint32_t offset, length; /* in our buffer */
	uint32_t local_key;
	uint64_t remote_address;
	uint32_t remote_key;
	uint32_t immediate;
	bool inlined;
};

/* A request on the first `length` bytes of our buffer and of the peer's first region. */
struct request request_of(const struct station *station, enum ibv_wr_opcode opcode, uint64_t id, uint32_t length);
void post(struct station *station, const struct request *request);
/* True if there was room. */
bool try_post(struct station *station, const struct request *request);
void post_receive(struct station *station, uint64_t id, uint32_t offset, uint32_t length);
/* False if nothing completed in time. */
bool completion(struct station *station, struct ibv_wc *done, unsigned wait_ms);
/* The next completion must be this one. */
struct ibv_wc expect_completion(struct station *station, uint64_t id, enum ibv_wc_status status);
/* The next asynchronous event of the queue pair must be this one. */
void expect_event(struct station *station, enum ibv_event_type wanted);

/* ---- cases.c, verify.c, exchange.c and datagrams.c: work on a connection ---- */

struct scene {
	const char *name, *what;
	void (*run)(struct station *station, bool requester);
};

extern const struct scene scenes[];
void verify_traffic(struct station *station, bool requester);
/* exchange.c: the whole session of docs/exchange.md */
void exchange(struct station *station, bool client);
/* datagrams.c: datagrams of both sides, answered */
void datagrams(struct station *station, bool client);

#endif
