/* Drives a peer through a counted function, or times it; see `usage`. */
#include "card.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"write", "inline", "send", "read", "datagram", "receive"};

/* One request in flight: post, completion, poll. */
__attribute__((noinline)) uint64_t measured_round_trips(struct card *card, uint64_t rounds, enum kind kind)
{
	uint64_t done = 0;

	for (uint64_t id = 0; id < rounds; id++) {
		if (peer_post(id, kind) == 0) {
			card_complete(card, 0);
			done += (uint64_t)peer_poll();
		}
	}
	return done;
}

/* Completion of a receive, poll, and another receive. */
__attribute__((noinline)) uint64_t measured_receives(struct card *card, uint64_t rounds)
{
	uint64_t done = 0;

	for (uint64_t id = 0; id < rounds; id++) {
		card_complete(card, 1);
		if (peer_poll() == 1 && peer_receive(id) == 0)
			done++;
	}
	return done;
}

__attribute__((noinline)) uint64_t measured_chain_of_posts(void)
{
	return peer_post_chain() == 0 ? CHAIN : 0;
}

__attribute__((noinline)) uint64_t measured_chain_of_polls(void)
{
	return (uint64_t)peer_poll();
}

__attribute__((noinline)) uint64_t measured_harness(struct card *card, uint64_t rounds)
{
	for (uint64_t id = 0; id < rounds; id++) {
		card_complete(card, 0);
		__asm__ volatile("" : : "r"(id) : "memory");
	}
	return rounds;
}

static uint64_t rounds_of(struct card *card, uint64_t rounds, enum kind kind)
{
	return kind == RECEIVE ? measured_receives(card, rounds) : measured_round_trips(card, rounds, kind);
}

static uint64_t chains(struct card *card, uint64_t rounds)
{
	uint64_t done = 0;

	while (done < rounds) {
		uint64_t posted = measured_chain_of_posts();

		for (uint64_t i = 0; i < posted; i++)
			card_complete(card, 0);
		if (measured_chain_of_polls() != CHAIN)
			break;
		done += CHAIN;
	}
	return done;
}

static int usage(void)
{
	fprintf(stderr, "usage: drive instructions|time ROUNDS [write|inline|send|read|datagram|receive]\n"
			"       drive chains|harness ROUNDS\n"
			"`instructions`, `chains` and `harness` run counted functions, and print what was completed; `time` prints\n"
			"nanoseconds a round trip. `chains` posts and polls 32 writes at a time; `harness` runs the loop and the card alone.\n");
	return 2;
}

int main(int count, char **arguments)
{
	enum { PARTS = 100 };
	double parts[PARTS];
	uint64_t rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 10240, done;
	enum kind kind = WRITE;
	struct card *card;

	while (count > 3 && kind <= RECEIVE && strcmp(arguments[3], names[kind]) != 0)
		kind++;
	if (count < 2 || kind > RECEIVE || !(card = peer_set_up(kind)))
		return usage();
	if (strcmp(arguments[1], "time") != 0) {
		if (strcmp(arguments[1], "harness") == 0)
			done = measured_harness(card, rounds);
		else if (strcmp(arguments[1], "chains") == 0)
			done = chains(card, rounds);
		else if (strcmp(arguments[1], "instructions") != 0)
			return usage();
		else
			done = rounds_of(card, rounds, kind);
		printf("%llu\n", (unsigned long long)done);
		return done == rounds ? 0 : 1;
	}
	for (int part = 0; part < PARTS; part++) {
		double began = now();

		if (rounds_of(card, rounds / PARTS, kind) != rounds / PARTS) {
			fprintf(stderr, "%s: a request did not complete\n", peer_name());
			return 1;
		}
		parts[part] = (now() - began) / (double)(rounds / PARTS);
	}
	printf("%.2f\n", median(parts, PARTS));
	return 0;
}
