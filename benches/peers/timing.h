/* Time, and the median of samples: what every program that drives a peer prints. */
#ifndef RINGSIDE_PEERS_TIMING_H
#define RINGSIDE_PEERS_TIMING_H

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* Nanoseconds of a clock that never goes back. */
static inline double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static inline int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the samples. */
static inline double median(double *samples, size_t count)
{
	qsort(samples, count, sizeof(samples[0]), compare);
	return samples[count / 2];
}

#endif
