/* Programs of random steps, in threads that have nothing in common but the process. Included behind `struct thread`,
 * which has `seed`, `steps`, `random` and `step`. */
#ifndef RANDOM_H
#define RANDOM_H
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Prints the condition that failed, its line and the seed, and ends the program. `side` is negative where there are none. */
static inline void complain(const struct thread *thread, int line, int side, const char *what)
{
    fprintf(stderr, "line %d, seed %u, step %u", line, thread->seed, thread->step);
    if (side >= 0)
        fprintf(stderr, ", side %d", side);
    fprintf(stderr, ": %s (errno %d)\n", what, errno);
    exit(1);
}

#define WANT_AT(thread, side, what)                                                                        \
    do {                                                                                                   \
        if (!(what))                                                                                       \
            complain(thread, __LINE__, side, #what);                                                       \
    } while (0)

static inline unsigned draw(struct thread *thread, unsigned below)
{
    return rand_r(&thread->random) % below;
}

/* Fills with bytes that differ by key and place. */
static inline void fill(unsigned char *to, unsigned key, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        to[i] = (unsigned char)(key + i * 31 + i / 251);
}

static inline int is_filled(const unsigned char *from, unsigned key, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (from[i] != (unsigned char)(key + i * 31 + i / 251))
            return 0;
    return 1;
}

/* Fills as `fill` does; the first four bytes hold the number of the message. */
static inline void fill_numbered(unsigned char *to, uint32_t number, uint32_t length)
{
    fill(to, number, length);
    for (uint32_t i = 0; i < length && i < 4; i++)
        to[i] = number >> 8 * i;
}

/* True while a thread has steps to take. On a busy machine the device answers late, and many steps find nothing to do:
 * then there are more steps, until the thread has done what the program wants to see, or five minutes are over. */
static inline int has_steps(const struct thread *thread, int has_done_enough)
{
    static _Thread_local time_t end;
    if (!end)
        end = time(NULL) + 300;
    return thread->step < thread->steps || (!has_done_enough && time(NULL) < end);
}

enum { MAX_THREADS = 8 };
static struct thread threads[MAX_THREADS];

/* Runs a thread for each of so many seeds that follow from the first word; the others are steps and threads. Returns
 * the number of threads. */
static inline int run_threads(char **words, void *(*run)(void *))
{
    pthread_t ids[MAX_THREADS];
    int number = atoi(words[2]);
    CHECK(number >= 1 && number <= MAX_THREADS);
    for (int i = 0; i < number; i++) {
        threads[i].seed = threads[i].random = strtoul(words[0], NULL, 10) * MAX_THREADS + i;
        threads[i].steps = strtoul(words[1], NULL, 10);
        CHECK(!pthread_create(&ids[i], NULL, run, &threads[i]));
    }
    for (int i = 0; i < number; i++)
        CHECK(!pthread_join(ids[i], NULL));
    return number;
}

#endif
