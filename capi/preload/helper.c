/* Starts a process that opens the device and writes the files, for a program that reads them and has not opened the
 * device: a shell, ls, ibstat, and a program with verbs that looks at the files first.
 *
 * The files are written when a device is opened. The device serves one process at a time, so another process
 * opens it here and ends: a shell that looked at the files must not keep the device from the programs
 * that it starts. That process is an ordinary one with this object loaded, whose constructor does the work.
 *
 * The program must not notice: no SIGCHLD, and no process that its wait() returns. So an intermediate
 * process starts the helper and waits for it. It makes system calls only, and ends without a signal.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

/* Says that this process is the helper. */
#define HELPER "RINGSIDE_FILES_HELPER"
/* The most variables that are passed on. */
enum { MOST = 4000 };
/* Waits of 5 ms: the helper has 20 s. */
enum { WAITS = 4000 };
/* Whether the helper was started. */
enum { NOT_YET, RUNS, OVER };

static const struct timespec pause_of_a_wait = {0, 5000000};
/* Variables that daemons remove when they start, and without which the helper finds neither device nor folder. */
static const char *const needed[] = {"RINGSIDE_FILES", "RINGSIDE_DEVICE", "RINGSIDE_CONFIG", "RINGSIDE_LOG_FORMAT",
				     "LD_PRELOAD", "LD_LIBRARY_PATH"};
enum { FILES, NEEDED = sizeof(needed) / sizeof(needed[0]) };
/* Copies of NAME=VALUE as they were when this object was loaded, or null. */
static char *at_load[NEEDED];
static char *variables[MOST + NEEDED + 2];

extern char **environ;

/* The value of a variable when this object was loaded; null if there was none. */
static const char *value_at_load(int which)
{
	return at_load[which] == NULL ? NULL : at_load[which] + strlen(needed[which]) + 1;
}

const char *files_folder(void)
{
	const char *now = getenv(needed[FILES]);

	return now != NULL ? now : value_at_load(FILES);
}

/* Forks without the handlers of the C library, which may take locks that another thread has. */
static pid_t plain_fork(unsigned long signal_at_the_end)
{
	return (pid_t)syscall(SYS_clone, signal_at_the_end, NULL, NULL, NULL, NULL);
}

static void become_helper(void)
{
	char *const words[] = {(char *)"true", NULL};

	/* The reason of a failure is for programs that open the device themselves. */
	if (getenv("RUST_LOG") == NULL) {
		int nothing = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY);

		if (nothing >= 0)
			dup2(nothing, STDERR_FILENO);
	}
	execve("/usr/bin/true", words, variables);
	execve("/bin/true", words, variables);
	_exit(127);
}

/* Waits for a child, which is killed when its time is over. */
static void wait_for(pid_t helper)
{
	int waited;

	for (waited = 0; waited < WAITS; waited++) {
		pid_t ended = waitpid(helper, NULL, WNOHANG | __WALL);

		if (ended == helper || (ended < 0 && errno != EINTR))
			return;
		nanosleep(&pause_of_a_wait, NULL);
	}
	kill(helper, SIGKILL);
	while (waitpid(helper, NULL, __WALL) < 0 && errno == EINTR)
		;
}

static void run_helper(void)
{
	sigset_t all, before;
	int count = 0, which;
	pid_t intermediate;

	while (environ != NULL && environ[count] != NULL && count < MOST) {
		variables[count] = environ[count];
		count++;
	}
	for (which = 0; which < NEEDED; which++)
		if (at_load[which] != NULL && getenv(needed[which]) == NULL)
			variables[count++] = at_load[which];
	variables[count++] = (char *)HELPER "=1";
	variables[count] = NULL;
	/* Handlers of the program do not run in the other processes. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	intermediate = plain_fork(0);
	if (intermediate == 0) {
		pid_t helper = plain_fork(SIGCHLD);

		if (helper == 0)
			become_helper();
		if (helper > 0)
			wait_for(helper);
		_exit(0);
	}
	while (intermediate > 0 && waitpid(intermediate, NULL, __WALL) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void write_files_by_helper(void)
{
	static int state;
	int found = NOT_YET, before = errno;

	if (getenv(HELPER) != NULL)
		return;
	if (__atomic_compare_exchange_n(&state, &found, RUNS, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		run_helper();
		__atomic_store_n(&state, OVER, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == RUNS)
		nanosleep(&pause_of_a_wait, NULL);
	errno = before;
}

void (*ringside_function(const char *name))(void)
{
	void *found = dlsym(RTLD_DEFAULT, name), *library;
	int before = errno;

	if (found != NULL)
		return (void (*)(void))found;
	/* Plugins (Python, UCX, NCCL) bring the library with them, out of the global scope. It stays where it is when it
	 * is closed (-z nodelete). */
	library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (library != NULL) {
		found = dlsym(library, name);
		dlclose(library);
	}
	errno = before;
	return (void (*)(void))found;
}

void write_files_for_a_list(void)
{
	if (ringside_function("ringside_write_files") != NULL)
		write_files_by_helper();
}

/* Before the program may change its variables. */
__attribute__((constructor)) static void keep_variables(void)
{
	const char *value;
	int which;

	for (which = 0; which < NEEDED; which++) {
		value = getenv(needed[which]);
		if (value != NULL && asprintf(&at_load[which], "%s=%s", needed[which], value) < 0)
			at_load[which] = NULL;
	}
}

__attribute__((constructor)) static void be_helper(void)
{
	void (*write_files)(void);
	void *library;

	if (getenv(HELPER) == NULL)
		return;
	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
	write_files = library == NULL ? NULL : (void (*)(void))dlsym(library, "ringside_write_files");
	if (write_files != NULL)
		write_files();
	_exit(write_files == NULL);
}
