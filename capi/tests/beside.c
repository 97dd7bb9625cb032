/* Two threads that use one stream socket: one waits for data while the other one waits for room to send. The
 * argument is an address of the device. Says "ok" and ends with 0. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 7480 };
#include "streams.h"

enum {
    PIECE = 64 << 10,
    PIECES = 256,
    ROUNDS = 21,
    /* The rounds are repeated as often: a machine may be busy during some. */
    TRIES = 8,
    /* Longer than what wakes a call takes in most rounds. */
    SLOW_MS = 40,
    MOST_SLOW = 5,
    LATE_MS = 1000,
    MOST_LATE = 8
};

static char piece[PIECE];
static int near, far;
static atomic_int round_asked, round_done, is_over;
static atomic_long interrupted;

static long now_ms(void)
{
    struct timespec time;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void nothing(int number)
{
    (void)number;
}

/* Waits for the one byte that comes last. */
static void *wait_for_answer(void *unused)
{
    char answer = 0;
    CHECK(rrecv(near, &answer, 1, 0) == 1 && answer == '!');
    return unused;
}

/* Waits in each round for room that it does not get: a signal ends that. */
static void *wait_for_signals(void *unused)
{
    for (int round = 1; !is_over; round++) {
        round_asked = round;
        while (rsend(near, piece, sizeof piece, 0) > 0)
            ;
        CHECK(errno == EINTR);
        interrupted = now_ms();
        while (round_done < round)
            sleep_ms(1);
    }
    return unused;
}

/* Sends more than both sides have room for. */
static void *send_all(void *unused)
{
    int late = 0;
    for (int i = 0; i < PIECES; i++) {
        long began = now_ms();
        CHECK(rsend(near, piece, sizeof piece, 0) == sizeof piece);
        late += now_ms() - began > LATE_MS;
    }
    CHECK(late <= MOST_LATE);
    return unused;
}

/* The other thread sleeps, and is not what a signal waits for. */
static void signals_end_a_send(void)
{
    struct sigaction action = { .sa_handler = nothing };
    pthread_t sends;
    int slow = 0;
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    CHECK(!pthread_create(&sends, NULL, wait_for_signals, NULL));
    for (int round = 1; !is_over; round++) {
        while (round_asked < round)
            sleep_ms(1);
        sleep_ms(50 + round % ROUNDS);
        interrupted = 0;
        long began = now_ms();
        /* One that comes between two calls ends none. */
        for (int ms = 0; !interrupted; ms++, sleep_ms(1))
            CHECK(ms % 500 || !pthread_kill(sends, SIGUSR1));
        slow += interrupted - began > SLOW_MS;
        if (round % ROUNDS == 0) {
            is_over = slow <= MOST_SLOW || round == TRIES * ROUNDS;
            slow = is_over ? slow : 0;
        }
        round_done = round;
    }
    CHECK(!pthread_join(sends, NULL));
    action.sa_handler = SIG_DFL;
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    CHECK(slow <= MOST_SLOW);
    while (rrecv(far, piece, sizeof piece, MSG_DONTWAIT) > 0)
        ;
    CHECK(errno == EAGAIN);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    address = words[1];
    /* A call that waits without end ends the program. */
    alarm(250);
    int listener = listening();
    connect_one(&near);
    CHECK((far = raccept(listener, NULL, NULL)) >= 0);
    pthread_t waits, sends;
    CHECK(!pthread_create(&waits, NULL, wait_for_answer, NULL));
    sleep_ms(50);
    signals_end_a_send();
    CHECK(!pthread_create(&sends, NULL, send_all, NULL));
    for (size_t total = 0; total < (size_t)PIECES * PIECE;) {
        static char block[PIECE];
        ssize_t got = rrecv(far, block, sizeof block, 0);
        CHECK(got > 0);
        total += got;
    }
    CHECK(!pthread_join(sends, NULL));
    CHECK(rsend(far, "!", 1, 0) == 1 && !pthread_join(waits, NULL));
    CHECK(!rclose(near) && !rclose(far) && !rclose(listener));
    puts("ok");
    return 0;
}
