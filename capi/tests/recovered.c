/* A program that outlives failures of its device: recovered PEER COMMAND...
 *
 * Each COMMAND makes the device fail. The program is told, destroys what it had, opens the device again and
 * goes on: contexts, regions, connections, sockets. What listens on all addresses stays. Says "ok".
 * PEER runs "recovered peer" on another device: it connects, and says "told" when the connection ends. */
#define _GNU_SOURCE
#include "connect.h"
#include "ids.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <unistd.h>

enum { PORT = 4711, BOUND_PORT = 4712, SOCKET_PORT = 4713, BOUND_SOCKET_PORT = 4714, UNANSWERED_PORT = 4716,
    WAIT_MS = EVENT_MS };

static struct rdma_event_channel *channel;

static struct rdma_cm_event *expect(enum rdma_cm_event_type kind)
{
    return expect_of(channel, kind);
}

static struct rdma_cm_id *listening(const char *address, int port)
{
    struct sockaddr_in place = at(address, port);
    return listening_at(channel, RDMA_PS_TCP, &place, 4);
}

static void with_queue_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr wanted = { .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK(!rdma_create_qp(id, NULL, &wanted));
}

/* A connection of this device with itself. */
struct connection {
    struct rdma_cm_id *active, *passive;
};

static struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };

/* An id with a way to the own address, and a queue pair. */
static struct rdma_cm_id *routed(int port)
{
    struct sockaddr_in to = at("10.0.0.1", port);
    struct rdma_cm_id *id = routed_to(channel, RDMA_PS_TCP, &to);
    with_queue_pair(id);
    return id;
}

static struct rdma_cm_id *connecting(int port)
{
    struct rdma_cm_id *id = routed(port);
    CHECK(!rdma_connect(id, &parameters));
    return id;
}

static struct rdma_cm_id *requested(struct rdma_cm_id *listener)
{
    struct rdma_cm_event *request = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(request->listen_id == listener);
    struct rdma_cm_id *id = request->id;
    rdma_ack_cm_event(request);
    with_queue_pair(id);
    return id;
}

static struct rdma_cm_id *accepted(struct rdma_cm_id *listener)
{
    struct rdma_cm_id *id = requested(listener);
    CHECK(!rdma_accept(id, &parameters));
    return id;
}

static struct connection connected(struct rdma_cm_id *listener, int port)
{
    struct connection made = { .active = connecting(port) };
    made.passive = accepted(listener);
    for (int i = 0; i < 2; i++)
        rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED));
    return made;
}

/* The other side of a connection: waits for its end. */
static int peer(void)
{
    CHECK((channel = rdma_create_event_channel()));
    connecting(PORT);
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED));
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED));
    puts("told");
    return 0;
}

static void destroyed(struct rdma_cm_id *id)
{
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
}

/* Sends a message over the connection, from queue pair to queue pair. */
static void message(struct connection *connection, char *memory, int size)
{
    struct rdma_cm_id *from = connection->active, *to = connection->passive;
    struct ibv_mr *mr = ibv_reg_mr(from->pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_sge out = { (uintptr_t)memory, 8, mr->lkey }, in = { (uintptr_t)memory + 8, 8, mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &in, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED }, *bad_send;
    CHECK(!ibv_post_recv(to->qp, &receive, &bad_receive) && !ibv_post_send(from->qp, &send, &bad_send));
    CHECK(next(from->send_cq).status == IBV_WC_SUCCESS && next(to->recv_cq).status == IBV_WC_SUCCESS);
    CHECK(!memcmp(memory, memory + 8, 8));
    CHECK(!ibv_dereg_mr(mr));
}

/* Sockets: a listener, and both ends of a stream. */
static int socket_listener;

static int stream_socket(void)
{
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static int bound_socket(void)
{
    struct sockaddr_in own = at("10.0.0.1", 0);
    int fd = stream_socket();
    CHECK(!rbind(fd, (struct sockaddr *)&own, sizeof own));
    return fd;
}

static void stream(int fd, int ends[2])
{
    struct sockaddr_in to = at("10.0.0.1", SOCKET_PORT);
    ends[0] = fd;
    int flags = rfcntl(ends[0], F_GETFL);
    CHECK(flags >= 0 && !rfcntl(ends[0], F_SETFL, flags | O_NONBLOCK));
    CHECK(!rconnect(ends[0], (struct sockaddr *)&to, sizeof to) || errno == EINPROGRESS);
    CHECK((ends[1] = raccept(socket_listener, NULL, NULL)) >= 0);
    struct pollfd wanted = { .fd = ends[0], .events = POLLOUT };
    CHECK(rpoll(&wanted, 1, WAIT_MS) == 1 && !rfcntl(ends[0], F_SETFL, flags));
    char letters[5] = "";
    CHECK(rsend(ends[0], "hello", 5, 0) == 5);
    CHECK(rrecv(ends[1], letters, 5, MSG_WAITALL) == 5 && !memcmp(letters, "hello", 5));
}

/* Sockets that listen on the own address fail with the device, also for calls that wait. */
struct bound_socket {
    int fd;
    pthread_t thread;
};

static void *accept_none(void *fd)
{
    CHECK(raccept(*(int *)fd, NULL, NULL) == -1 && errno == ENODEV);
    return NULL;
}

static void *poll_failure(void *fd)
{
    struct pollfd wanted = { .fd = *(int *)fd, .events = POLLIN };
    CHECK(rpoll(&wanted, 1, -1) == 1 && (wanted.revents & POLLERR));
    return NULL;
}

static void listen_bound(struct bound_socket *socket, int port, void *(*wait)(void *))
{
    struct sockaddr_in own = at("10.0.0.1", port);
    CHECK((socket->fd = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(!rbind(socket->fd, (struct sockaddr *)&own, sizeof own) && !rlisten(socket->fd, 4));
    CHECK(!pthread_create(&socket->thread, NULL, wait, &socket->fd));
}

static void close_bound(struct bound_socket *socket)
{
    struct timespec limit;
    CHECK(!clock_gettime(CLOCK_REALTIME, &limit));
    limit.tv_sec += WAIT_MS / 1000;
    CHECK(!(errno = pthread_timedjoin_np(socket->thread, NULL, &limit)));
    struct pollfd wanted = { .fd = socket->fd, .events = POLLIN };
    CHECK(rpoll(&wanted, 1, 0) == 1 && (wanted.revents & POLLERR));
    CHECK(raccept(socket->fd, NULL, NULL) == -1 && errno == ENODEV);
    CHECK(!rclose(socket->fd));
}

/* A synchronous id that waits for the answer to its request when the device fails. */
struct waiting_call {
    struct rdma_event_channel *aside;
    struct rdma_cm_id *listener, *id;
    pthread_t thread;
};

static void *connect_without_answer(void *id)
{
    CHECK(rdma_connect(id, &parameters) == -1 && errno == ENODEV);
    return NULL;
}

static void call(struct waiting_call *made)
{
    struct sockaddr_in to = at("10.0.0.1", UNANSWERED_PORT);
    CHECK((made->aside = rdma_create_event_channel()));
    made->listener = listening_at(made->aside, RDMA_PS_TCP, &to, 4);
    CHECK(!rdma_create_id(NULL, &made->id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(made->id, NULL, (struct sockaddr *)&to, WAIT_MS));
    CHECK(!rdma_resolve_route(made->id, WAIT_MS));
    with_queue_pair(made->id);
    CHECK(!pthread_create(&made->thread, NULL, connect_without_answer, made->id));
    CHECK(is_readable(made->aside->fd, WAIT_MS));
}

static void end(struct waiting_call *made)
{
    struct timespec limit;
    CHECK(!clock_gettime(CLOCK_REALTIME, &limit));
    limit.tv_sec += WAIT_MS / 1000;
    CHECK(!(errno = pthread_timedjoin_np(made->thread, NULL, &limit)));
    destroyed(made->id);
    CHECK(!rdma_destroy_id(made->listener));
    rdma_destroy_event_channel(made->aside);
}

/* Descriptors but those of memory: the library's pool of it grows with the largest use. */
static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char target[256] = "";
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        count += length > 0 && !strstr(target, "(deleted)");
    }
    closedir(folder);
    return count;
}

/* An id that was bound before the last failure, and listens since its recovery. */
static struct rdma_cm_id *late_listener;

/* One failure: everything is in use when it happens. */
static void fail(const char *command, const char *peer_command, struct rdma_cm_id *everywhere, int keeps_old)
{
    static char memory[4096];
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    write_to_itself(context, &gid);

    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *told = ibv_create_comp_channel(context);
    CHECK(pd && told);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, told, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(cq && mr && !ibv_req_notify_cq(cq, 0));
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
    CHECK(one && two);
    join(one, two, &gid);
    struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 77, .sg_list = &sge, .num_sge = 1 }, *bad_receive;
    CHECK(!ibv_post_recv(two, &receive, &bad_receive));

    struct connection lost = connected(everywhere, PORT);
    message(&lost, memory, sizeof memory);
    struct rdma_cm_id *bound = listening("10.0.0.1", BOUND_PORT);
    struct bound_socket accepting, polling;
    listen_bound(&accepting, BOUND_SOCKET_PORT, accept_none);
    listen_bound(&polling, BOUND_SOCKET_PORT + 1, poll_failure);
    int ends[2], early = bound_socket(), early_listener = bound_socket();
    stream(stream_socket(), ends);
    FILE *peers_output = popen(peer_command, "r");
    CHECK(peers_output);
    struct rdma_cm_id *of_peer = accepted(everywhere);
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_ESTABLISHED));
    /* One that has an address, one that could connect, one that asks, and one that could accept. */
    struct sockaddr_in own = at("10.0.0.1", 0);
    struct rdma_cm_id *addressed;
    CHECK(!rdma_create_id(channel, &addressed, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(addressed, (struct sockaddr *)&own));
    struct rdma_cm_id *late = routed(PORT), *asking = connecting(PORT), *asked = requested(everywhere);

    struct waiting_call waiting;
    call(&waiting);

    CHECK(!system(command));

    /* The context, its completion channel and every id that uses the device are told. */
    struct ibv_async_event event;
    CHECK(is_readable(context->async_fd, WAIT_MS));
    CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    CHECK(is_readable(told->fd, WAIT_MS));
    struct ibv_wc done = next(cq);
    CHECK(done.wr_id == 77 && done.status == IBV_WC_WR_FLUSH_ERR);
    struct rdma_cm_id *users[] = { lost.active, lost.passive, bound, of_peer, addressed, late, asking, asked, late_listener };
    enum { USERS = sizeof users / sizeof *users };
    for (int i = late_listener ? 0 : 1; i < USERS; i++) {
        struct rdma_cm_event *removal = expect(RDMA_CM_EVENT_DEVICE_REMOVAL);
        int k = 0;
        while (k < USERS && users[k] != removal->id)
            k++;
        CHECK(k < USERS);
        users[k] = NULL; /* told once */
        rdma_ack_cm_event(removal);
    }

    close_bound(&accepting);
    close_bound(&polling);
    end(&waiting);

    /* What was there is of no more use, also once the device works again, and can be destroyed. */
    struct ibv_context *again = keeps_old ? open_first(&gid) : NULL;
    CHECK(!ibv_alloc_pd(context) && errno == EIO);
    CHECK(!ibv_create_cq(context, 1, NULL, NULL, 0) && !ibv_reg_mr(pd, memory, 64, 0));
    CHECK(!ibv_create_qp(pd, &init) && !ibv_post_recv(two, &receive, &bad_receive));
    CHECK(next(cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(rdma_connect(late, &parameters) == -1 && errno == ENODEV);
    CHECK(rdma_accept(asked, &parameters) == -1 && errno == ENODEV);
    char letter;
    CHECK(rrecv(ends[1], &letter, 1, 0) <= 0 && rsend(ends[0], "x", 1, 0) < 0);
    CHECK(!rclose(ends[0]) && !rclose(ends[1]));
    destroyed(lost.active);
    destroyed(lost.passive);
    destroyed(of_peer);
    destroyed(late);
    destroyed(asking);
    destroyed(asked);
    CHECK(!rdma_destroy_id(bound) && (!late_listener || !rdma_destroy_id(late_listener)));
    late_listener = addressed;
    struct ibv_cq *notified;
    void *nothing;
    CHECK(!ibv_get_cq_event(told, &notified, &nothing) && notified == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(told) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));

    char word[8] = "";
    CHECK(fgets(word, sizeof word, peers_output) && !strcmp(word, "told\n") && !pclose(peers_output));
    if (!again)
        again = open_first(&gid);
    write_to_itself(again, &gid);
    struct connection made = connected(everywhere, PORT);
    message(&made, memory, sizeof memory);
    CHECK(!rdma_disconnect(made.active));
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED));
    CHECK(!rdma_disconnect(made.passive));
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_DISCONNECTED));
    destroyed(made.active);
    destroyed(made.passive);
    CHECK(!rdma_destroy_id(listening("10.0.0.1", BOUND_PORT)));
    /* A socket that was bound before the failure connects by the recovered device. */
    int connecting_sockets[] = { early, stream_socket() };
    for (int i = 0; i < 2; i++) {
        stream(connecting_sockets[i], ends);
        CHECK(!rclose(ends[0]) && !rclose(ends[1]));
    }
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    CHECK(!rlisten(early_listener, 1) && !rgetsockname(early_listener, (struct sockaddr *)&to, &length));
    ends[0] = stream_socket();
    CHECK(!rconnect(ends[0], (struct sockaddr *)&to, sizeof to) && (ends[1] = raccept(early_listener, NULL, NULL)) >= 0);
    CHECK(!rclose(ends[0]) && !rclose(ends[1]) && !rclose(early_listener));
    CHECK(!rdma_listen(late_listener, 1));
    CHECK(!is_readable(channel->fd, 0) && !is_readable(again->async_fd, 0));
    CHECK(!ibv_close_device(again));
}

int main(int count, char **commands)
{
    CHECK(count >= 2);
    if (!strcmp(commands[1], "peer"))
        return peer();
    CHECK((channel = rdma_create_event_channel()));
    struct sockaddr_in all = at("0.0.0.0", SOCKET_PORT);
    CHECK((socket_listener = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(!rbind(socket_listener, (struct sockaddr *)&all, sizeof all) && !rlisten(socket_listener, 4));
    struct rdma_cm_id *everywhere = listening("0.0.0.0", PORT);
    int before = 0;
    for (int i = 2; i < count; i++) {
        fail(commands[i], commands[1], everywhere, i % 2);
        if (i == 3)
            before = descriptors();
    }
    /* Ids of former periods may refer to their contexts, so those are kept: three descriptors each. */
    for (int wait = 0; wait < WAIT_MS && descriptors() > before + 3 * (count - 4); wait++)
        usleep(1000); /* threads of the last period close theirs */
    CHECK(descriptors() <= before + 3 * (count - 4));
    CHECK(!rclose(socket_listener) && !rdma_destroy_id(everywhere) && !rdma_destroy_id(late_listener));
    rdma_destroy_event_channel(channel);
    puts("ok");
    return 0;
}
