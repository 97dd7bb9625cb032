/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "peer.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fail(const char *format, ...)
{
	va_list words;

	fflush(stdout);
	fputs("verbs_peer: ", stderr);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fputc('\n', stderr);
	exit(1);
}

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

void sleep_ms(unsigned ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000l };

	nanosleep(&time, NULL);
}

static void usage(void)
{
	fputs("verbs_peer [-d DEVICE] [-n NETDEV] [-g GID] [-m MTU] [-p PORT] [-t TIMEOUT] [-r RETRIES] [-R RNR_RETRIES]\n"
	      "           [-s SECONDS] [-b BYTES] [-a] [-e] (-l | -c HOST) SCENE...\n"
	      "-l listens and answers, -c connects and requests. -b: largest message that `exchange` asks for. -a: the kernel asks the network\n"
	      "for the peer's MAC address. -e: the device has no event for a request that it refuses. Scenes:\n", stderr);
	for (const struct scene *scene = scenes; scene->name; scene++)
		fprintf(stderr, "  %-22s %s\n", scene->name, scene->what);
	exit(2);
}

static const struct scene *find_scene(const char *name)
{
	for (const struct scene *scene = scenes; scene->name; scene++)
		if (!strcmp(scene->name, name))
			return scene;
	usage();
	return NULL;
}

int main(int count, char **words)
{
	struct options options = { .device = "irdma0", .netdev = "eth0", .gid_index = 1, .timeout = 14, .retries = 7,
				   .rnr_retries = 7, .seconds = 3, .largest = 1u << 20, .port = 18515 };
	bool listens = false;
	struct station station;
	int option, peer;

	while ((option = getopt(count, words, "d:n:g:m:p:t:r:R:s:b:aelc:")) != -1)
		switch (option) {
		case 'd': options.device = optarg; break;
		case 'n': options.netdev = optarg; break;
		case 'g': options.gid_index = atoi(optarg); break;
		case 'm': options.mtu = atoi(optarg); break;
		case 'p': options.port = atoi(optarg); break;
		case 't': options.timeout = atoi(optarg); break;
		case 'r': options.retries = atoi(optarg); break;
		case 'R': options.rnr_retries = atoi(optarg); break;
		case 's': options.seconds = atoi(optarg); break;
		case 'b': options.largest = atoi(optarg); break;
		case 'a': options.asks = true; break;
		case 'e': options.eventless = true; break;
		case 'l': listens = true; break;
		case 'c': options.host = optarg; break;
		default: usage();
		}
	if (optind == count || listens == (options.host != NULL))
		usage();
	for (int i = optind; i < count; i++)
		find_scene(words[i]);
	srand(time(NULL) ^ getpid());
	peer = listens ? meet_listen(options.port, LISTEN_MS) : meet_connect(options.host, options.port, WAIT_MS);
	for (int i = optind; i < count; i++) {
		printf("scene: %s\n", words[i]);
		station_open(&station, &options, peer);
		find_scene(words[i])->run(&station, !listens);
		station_close(&station);
	}
	printf("ended well\n");
	return 0;
}
