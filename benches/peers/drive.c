/* Drives a peer: `drive instructions ROUNDS [inline]` once through a counted function, `drive time
 * ROUNDS [inline]` prints nanoseconds a round trip, `drive harness ROUNDS` runs the loop and the card alone.
 */
#include "card.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) uint64_t measured_round_trips(struct card *card, uint64_t rounds, int data_inline)
{
	uint64_t done = 0;

	for (uint64_t id = 0; id < rounds; id++) {
		if (peer_post(id, data_inline) == 0) {
			card_complete(card);
			done += (uint64_t)peer_poll();
		}
	}
	return done;
}

__attribute__((noinline)) uint64_t measured_harness(struct card *card, uint64_t rounds)
{
	for (uint64_t id = 0; id < rounds; id++) {
		card_complete(card);
		__asm__ volatile("" : : "r"(id) : "memory");
	}
	return rounds;
}

int main(int count, char **arguments)
{
	enum { PARTS = 100 };
	double parts[PARTS];
	struct card *card = peer_set_up();
	uint64_t rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 10240;
	int data_inline = count > 3 && strcmp(arguments[3], "inline") == 0;

	if (count < 2 || !card) {
		fprintf(stderr, "usage: drive instructions|harness|time ROUNDS [inline]\n");
		return 2;
	}
	if (strcmp(arguments[1], "harness") == 0) {
		printf("%llu\n", (unsigned long long)measured_harness(card, rounds));
		return 0;
	}
	if (strcmp(arguments[1], "instructions") == 0) {
		uint64_t done = measured_round_trips(card, rounds, data_inline);

		printf("%llu\n", (unsigned long long)done);
		return done == rounds ? 0 : 1;
	}
	for (int part = 0; part < PARTS; part++) {
		double began = now();

		if (measured_round_trips(card, rounds / PARTS, data_inline) != rounds / PARTS) {
			fprintf(stderr, "%s: a request did not complete\n", peer_name());
			return 1;
		}
		parts[part] = (now() - began) / (double)(rounds / PARTS);
	}
	printf("%.2f\n", median(parts, PARTS));
	return 0;
}
