/* The card's side of the rings, and the program that drives them: what every peer is measured with.
 *
 * A peer gives three functions and the place of its rings (struct peer). The card here writes
 * completions and nothing else, in the layout of the E810 (docs/hardware.md): four 64-bit words, the
 * one with the valid bit last. It writes what the consumer of `benches/src/lib.rs` writes.
 */
#ifndef RINGSIDE_PEERS_CARD_H
#define RINGSIDE_PEERS_CARD_H

#include <stdint.h>

#define RING 512u /* quanta of the rings of requests, slots of the completion ring */
#define CHAIN 32u /* requests of a chain */
#define RECEIVES 16u /* receives that are posted before the first one completes */

/* The case that is measured: requests of 8 bytes, or receives. */
enum kind { WRITE, INLINE_WRITE, SEND, READ, DATAGRAM, RECEIVE };

struct card {
	uint64_t (*slots)[4];
	uint64_t context;
	uint64_t queue_pair;
	uint64_t written;
};

/* A success of the oldest request or receive, which is at the place that the count of completions tells:
 * every one takes one quantum. */
static inline void card_complete(struct card *card, int is_receive)
{
	uint64_t index = card->written % RING;
	uint64_t valid = (card->written / RING) % 2 == 0;
	uint64_t *slot = card->slots[index];

	slot[0] = 0;
	slot[1] = card->context;
	slot[2] = card->queue_pair << 32;
	__atomic_store_n(&slot[3], index << 32 | (uint64_t)!is_receive << 62 | valid << 63, __ATOMIC_RELEASE);
	card->written++;
}

/* What a peer offers. Functions that post return 0, or a number of the peer's. */

/* Makes the rings for one case, with receives posted in that of receives. */
struct card *peer_set_up(enum kind kind);
/* Posts one signalled request and rings. */
int peer_post(uint64_t id, enum kind kind);
/* Posts a chain of signalled writes in one call, and rings once. */
int peer_post_chain(void);
/* Posts one receive. */
int peer_receive(uint64_t id);
/* Polls once, for at most a chain's completions; returns the number of successes, or -1. */
int peer_poll(void);
const char *peer_name(void);

#endif
