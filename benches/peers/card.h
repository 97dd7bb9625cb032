/* The card's side of the rings, and the program that drives them: what every peer is measured with.
 *
 * A peer gives three functions and the place of its rings (struct peer). The card here writes
 * completions and nothing else, in the layout of the E810 (docs/hardware.md): four 64-bit words, the
 * one with the valid bit last. It writes what the consumer of `benches/src/lib.rs` writes.
 */
#ifndef RINGSIDE_PEERS_CARD_H
#define RINGSIDE_PEERS_CARD_H

#include <stdint.h>

#define RING 512u /* quanta of the send ring, slots of the completion ring */

struct card {
	uint64_t (*slots)[4];
	uint64_t context;
	uint64_t queue_pair;
	uint64_t written;
};

/* A success of the oldest request, which is at the place that the count of completions tells: every
 * request takes one quantum. */
static inline void card_complete(struct card *card)
{
	uint64_t index = card->written % RING;
	uint64_t valid = (card->written / RING) % 2 == 0;
	uint64_t *slot = card->slots[index];

	slot[0] = 0;
	slot[1] = card->context;
	slot[2] = card->queue_pair << 32;
	__atomic_store_n(&slot[3], index << 32 | (uint64_t)1 << 62 | valid << 63, __ATOMIC_RELEASE);
	card->written++;
}

/* What a peer offers: set up its rings, post one signalled 8-byte RDMA write and ring, take one
 * completion (1) or none (0). */
struct card *peer_set_up(void);
int peer_post(uint64_t id, int data_inline);
int peer_poll(void);
const char *peer_name(void);

#endif
