/* denied COMMAND...   Runs a command without any capability, even as root of a user namespace, without new user
 *                     namespaces and userfaultfd (both fail with EPERM), and without huge pages (ENOMEM).
 * denied --check      Says "ok" if that holds for this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ANY(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no)
/* A call is answered so; the number of the call is loaded. */
#define CALL(number, answer) EQUAL(number, 0, 1), RETURN(answer)
/* A call is answered so if its argument has one of these bits. */
#define WITH(number, argument, bits, answer) \
    EQUAL(number, 0, 4), LOAD(args[argument]), ANY(bits, 0, 1), RETURN(answer), RETURN(ALLOW)
/* The highest number of a capability that a kernel may have. */
enum { CAPABILITIES = 64, HUGE_PAGE = 2 << 20, ALLOW = SECCOMP_RET_ALLOW };
enum { REFUSE = SECCOMP_RET_ERRNO | EPERM, NO_CALL = SECCOMP_RET_ERRNO | ENOSYS, NO_MEMORY = SECCOMP_RET_ERRNO | ENOMEM };

static void deny(void)
{
    struct sock_filter filter[] = {
        LOAD(arch),
        EQUAL(AUDIT_ARCH_X86_64, 1, 0),
        RETURN(ALLOW),
        LOAD(nr),
        CALL(SYS_userfaultfd, REFUSE),
        /* Its flags are in memory, which a filter cannot read: a C library goes on with clone. */
        CALL(SYS_clone3, NO_CALL),
        WITH(SYS_clone, 0, CLONE_NEWUSER, REFUSE),
        WITH(SYS_unshare, 0, CLONE_NEWUSER, REFUSE),
        WITH(SYS_mmap, 3, MAP_HUGETLB, NO_MEMORY),
        WITH(SYS_memfd_create, 1, MFD_HUGETLB, NO_MEMORY),
        WITH(SYS_shmget, 2, SHM_HUGETLB, NO_MEMORY),
        RETURN(ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    for (int one = 0; one < CAPABILITIES; one++)
        prctl(PR_CAPBSET_DROP, one, 0, 0, 0);
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void check(void)
{
    char line[256];
    unsigned long long effective = ~0ull;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        sscanf(line, "CapEff: %llx", &effective);
    fclose(status);
    CHECK(effective == 0);
    CHECK(syscall(SYS_userfaultfd, 1) == -1 && errno == EPERM);
    CHECK(unshare(CLONE_NEWUSER) == -1 && errno == EPERM);
    CHECK(syscall(SYS_clone, CLONE_NEWUSER, 0, 0, 0, 0) == -1 && errno == EPERM);
    CHECK(!unshare(CLONE_FILES));
    CHECK(mmap(NULL, HUGE_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(memfd_create("huge", MFD_HUGETLB) == -1 && errno == ENOMEM);
    CHECK(shmget(IPC_PRIVATE, HUGE_PAGE, SHM_HUGETLB | IPC_CREAT) == -1 && errno == ENOMEM);
    CHECK(memfd_create("small", 0) >= 0);
    CHECK(mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    puts("ok");
}

int main(int count, char **words)
{
    CHECK(count > 1);
    if (!strcmp(words[1], "--check")) {
        check();
        return 0;
    }
    deny();
    execvp(words[1], words + 1);
    perror(words[1]);
    return 127;
}
