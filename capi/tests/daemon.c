/* A program that looks for devices, or uses something and ends it, and then goes on as a daemon: the child opens
 * the device for itself, and everything works there.
 * Arguments: list, context, channel, unused (a channel that the child uses), addresses or socket: what the parent does
 * first. The parent ends with the exit status of the child, or at once with "leave" behind it; the child says "ok". */
#include "connect.h"
#include "ids.h"
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_device **list;
static struct rdma_event_channel *unused;

static void before(const char *what)
{
    union ibv_gid gid;
    if (!strcmp(what, "list")) {
        CHECK((list = ibv_get_device_list(NULL)) && list[0]);
    } else if (!strcmp(what, "context")) {
        struct ibv_context *context = open_first(&gid);
        CHECK(!ibv_close_device(context));
    } else if (!strcmp(what, "channel")) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_id *id;
        CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) && !rdma_destroy_id(id));
        rdma_destroy_event_channel(channel);
    } else if (!strcmp(what, "unused")) {
        CHECK((unused = rdma_create_event_channel()));
    } else if (!strcmp(what, "addresses")) {
        struct rdma_addrinfo *found;
        CHECK(!rdma_getaddrinfo("10.0.0.1", "7000", NULL, &found));
        rdma_freeaddrinfo(found);
    } else {
        CHECK(!strcmp(what, "socket"));
        int descriptor = rsocket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in any = { .sin_family = AF_INET };
        CHECK(descriptor >= 0 && !rbind(descriptor, (struct sockaddr *)&any, sizeof any) && !rclose(descriptor));
    }
}

static void in_the_child(void)
{
    union ibv_gid gid;
    struct ibv_context *context = list ? ibv_open_device(list[0]) : open_first(&gid);
    CHECK(context && !ibv_query_gid(context, 1, GID_INDEX, &gid));
    write_to_itself(context, &gid);
    struct rdma_event_channel *channel = unused ? unused : rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(7000) };
    struct sockaddr_in own = at("10.0.0.1", 7001);
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, EVENT_MS));
    rdma_ack_cm_event(expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(!rdma_destroy_id(id) && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any) && !rdma_listen(id, 1));
    int descriptor = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(descriptor >= 0 && !rclose(descriptor) && !rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
    CHECK(!ibv_close_device(context));
    puts("ok");
}

int main(int count, char **arguments)
{
    CHECK(count == 2 || count == 3);
    before(arguments[1]);
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (!child) {
        if (count == 3)
            while (getppid() == parent)
                usleep(1000);
        in_the_child();
        return 0;
    }
    if (count == 3)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status ? 1 : 0;
}
