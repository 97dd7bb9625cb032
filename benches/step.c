/* Counts the instructions of functions of a program by single steps, on the processor itself: also those that no
 * simulator knows.
 *
 * Usage: step ADDRESS[,ADDRESS...] PROGRAM [ARGUMENT...]
 * ADDRESS is that of a function in PROGRAM's file, in hexadecimal, as nm prints it. The functions must not call
 * each other or themselves, and only the first thread is counted. Prints one line:
 *   instructions calls median percentile-99.99
 * The last two are of single calls. A call counts from its first instruction to its return, both inside; what it
 * calls is inside, a system call is one instruction. The program's own output goes to where it would go.
 *
 * The processor raises a trap after each iteration of a repeated string instruction: each counts as one, as
 * callgrind counts it. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FUNCTIONS_MAX = 8, CALLS_MAX = 1 << 22, BREAKPOINT = 0xCC };

static pid_t child;
static uint64_t *counts;
static size_t calls;

static void fail(const char *what)
{
    fprintf(stderr, "step: %s: %s\n", what, strerror(errno));
    if (child > 0)
        kill(child, SIGKILL);
    exit(3);
}

static long peek(uint64_t at)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, child, at, 0);
    if (errno)
        fail("cannot read the program's memory");
    return word;
}

static void poke_byte(uint64_t at, unsigned char byte)
{
    long word = (peek(at) & ~0xFFL) | byte;
    if (ptrace(PTRACE_POKETEXT, child, at, word))
        fail("cannot write to the program's memory");
}

/* Continues the program until it stops; false if it has ended. Signals that are not ours go on to it. */
static int go_on(enum __ptrace_request how)
{
    long signal = 0;
    for (;;) {
        int status;
        if (ptrace(how, child, 0, signal) || waitpid(child, &status, 0) < 0)
            fail("the program cannot go on");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return 0;
        if (!WIFSTOPPED(status)) {
            fprintf(stderr, "step: the program failed (status 0x%x)\n", status);
            exit(3);
        }
        if (WSTOPSIG(status) == SIGTRAP)
            return 1;
        signal = WSTOPSIG(status);
    }
}

static struct user_regs_struct registers(void)
{
    struct user_regs_struct all;
    if (ptrace(PTRACE_GETREGS, child, 0, &all))
        fail("no registers");
    return all;
}

/* The difference between addresses in memory and in the file. */
static uint64_t load_offset(const char *program)
{
    Elf64_Ehdr header;
    int file = open(program, O_RDONLY);
    if (file < 0 || read(file, &header, sizeof header) != sizeof header)
        fail(program);
    close(file);
    if (header.e_type == ET_EXEC)
        return 0;
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/%d/maps", (int)child);
    FILE *maps = fopen(name, "r");
    if (!maps || !fgets(line, sizeof line, maps))
        fail("no map of the program's memory");
    fclose(maps);
    /* Before its first instruction the program's own file is the first that is mapped. */
    return strtoull(line, NULL, 16);
}

/* Steps through one call, which is about to execute its first instruction. */
static void count_call(void)
{
    struct user_regs_struct now = registers();
    uint64_t back = (uint64_t)peek(now.rsp), frame = now.rsp, count = 0;
    do {
        if (!go_on(PTRACE_SINGLESTEP)) {
            fprintf(stderr, "step: the program ended inside a function\n");
            exit(3);
        }
        count++;
        now = registers();
    } while (now.rip != back || now.rsp <= frame);
    if (calls == CALLS_MAX) {
        fprintf(stderr, "step: more than %d calls: count fewer\n", CALLS_MAX);
        exit(3);
    }
    counts[calls++] = count;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print(void)
{
    uint64_t total = 0;
    for (size_t at = 0; at < calls; at++)
        total += counts[at];
    if (!calls) {
        fprintf(stderr, "step: no function was called\n");
        exit(3);
    }
    qsort(counts, calls, sizeof *counts, by_size);
    size_t tail = (calls * 9999 + 9999) / 10000 - 1;
    printf("%" PRIu64 " %zu %" PRIu64 " %" PRIu64 "\n", total, calls, counts[calls / 2], counts[tail]);
}

int main(int argc, char **argv)
{
    uint64_t functions[FUNCTIONS_MAX];
    unsigned char first[FUNCTIONS_MAX];
    size_t known = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: step ADDRESS[,ADDRESS...] PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    for (char *text = strtok(argv[1], ","); text; text = strtok(NULL, ",")) {
        if (known == FUNCTIONS_MAX) {
            fprintf(stderr, "step: more than %d functions\n", FUNCTIONS_MAX);
            return 2;
        }
        functions[known++] = strtoull(text, NULL, 16);
    }
    counts = malloc(CALLS_MAX * sizeof *counts);
    if (!counts)
        fail("no memory");
    child = fork();
    if (child < 0)
        fail("fork");
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) {
        fprintf(stderr, "step: %s cannot be run\n", argv[2]);
        return 3;
    }
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
    uint64_t offset = load_offset(argv[2]);
    for (size_t at = 0; at < known; at++) {
        functions[at] += offset;
        first[at] = (unsigned char)peek(functions[at]);
        poke_byte(functions[at], BREAKPOINT);
    }
    while (go_on(PTRACE_CONT)) {
        struct user_regs_struct now = registers();
        for (size_t at = 0; at < known; at++) {
            if (now.rip != functions[at] + 1)
                continue;
            now.rip = functions[at];
            if (ptrace(PTRACE_SETREGS, child, 0, &now))
                fail("registers");
            poke_byte(functions[at], first[at]);
            count_call();
            poke_byte(functions[at], BREAKPOINT);
        }
    }
    print();
    return 0;
}
