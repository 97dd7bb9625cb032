/* Connections that are made, refused, left and broken off at random by several threads. The first bytes of the
 * private data say what a connection is for. Arguments: see roles.h. Says "ok" and ends with 0. */
#include "roles.h"
#include <rdma/rdma_cma.h>
#include <time.h>

enum { PORT = 7450, LIMIT_MS = 20000, BYTES = 8 };

/* What client and server do with a connection. */
enum plan {
    TALKS,            /* a message, then the client disconnects */
    SERVER_LEAVES,    /* the server disconnects once the connection stands */
    REFUSED,          /* the server rejects it, with private data */
    DROPPED,          /* the server destroys the id of the request */
    CLIENT_VANISHES,  /* the client destroys its id after rdma_connect */
    CLIENT_GIVES_UP,  /* the client disconnects after rdma_connect */
    SERVER_VANISHES,  /* the server destroys the id that it has accepted */
    MOVES,            /* as TALKS, over another channel than the request's or the first one */
    PLANS,
    LAST = PLANS      /* the clients have ended; the server rejects it */
};
static const char *names[] = { "talks", "server leaves", "refused", "dropped", "client vanishes",
    "client gives up", "server vanishes", "moves", "last" };

struct greeting {
    uint32_t plan, number;
};

/* Queues and memory of an id. */
struct side {
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint64_t memory[2];
    struct greeting greeting;
};

static atomic_int open_ids;

static void fill_side(struct rdma_cm_id *id)
{
    struct side *side = calloc(1, sizeof *side);
    CHECK(side && (side->pd = ibv_alloc_pd(id->verbs)));
    CHECK(side->cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0));
    CHECK(side->mr = ibv_reg_mr(side->pd, side->memory, sizeof side->memory, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_qp_init_attr init = { .send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK(!rdma_create_qp(id, side->pd, &init));
    struct ibv_sge part = { (uintptr_t)&side->memory[0], BYTES, side->mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &part, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_recv(id->qp, &receive, &bad));
    id->context = side;
    open_ids++;
}

static void end_side(struct rdma_cm_id *id)
{
    struct side *side = id->context;
    rdma_destroy_qp(id);
    CHECK(!ibv_destroy_cq(side->cq) && !ibv_dereg_mr(side->mr) && !ibv_dealloc_pd(side->pd));
    CHECK(!rdma_destroy_id(id));
    free(side);
    open_ids--;
}

static struct ibv_wc completion(struct side *side, const char *what)
{
    struct ibv_wc done;
    time_t limit = time(NULL) + LIMIT_MS / 1000;
    int count;
    while (!(count = ibv_poll_cq(side->cq, 1, &done)))
        if (time(NULL) > limit) {
            fprintf(stderr, "no completion of %s\n", what);
            exit(1);
        }
    CHECK(count == 1);
    return done;
}

/* The server. */

static void serve_request(struct rdma_cm_event *event, struct rdma_event_channel *other)
{
    struct rdma_cm_id *id = event->id;
    struct greeting greeting;
    CHECK(event->param.conn.private_data_len >= sizeof greeting);
    memcpy(&greeting, event->param.conn.private_data, sizeof greeting);
    CHECK(!rdma_ack_cm_event(event));
    CHECK(greeting.plan <= LAST);
    if (greeting.plan == LAST)
        is_last = 1;
    if (greeting.plan == REFUSED || greeting.plan == LAST) {
        CHECK(!rdma_reject(id, &greeting, sizeof greeting) && !rdma_destroy_id(id));
        return;
    }
    if (greeting.plan == DROPPED) {
        CHECK(!rdma_destroy_id(id));
        return;
    }
    fill_side(id);
    ((struct side *)id->context)->greeting = greeting;
    if (greeting.plan == MOVES)
        CHECK(!rdma_migrate_id(id, other));
    struct rdma_conn_param answer = { .private_data = &greeting, .private_data_len = sizeof greeting,
        .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
    /* A client that has gone may have ended the request. */
    int result = rdma_accept(id, &answer);
    CHECK(!result || greeting.plan == CLIENT_VANISHES || greeting.plan == CLIENT_GIVES_UP);
    if (result || greeting.plan == SERVER_VANISHES)
        end_side(id);
}

static void serve_event(struct rdma_cm_event *event, struct rdma_event_channel *other)
{
    struct rdma_cm_id *id = event->id;
    int kind = event->event;
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
        serve_request(event, other);
        return;
    }
    CHECK(!rdma_ack_cm_event(event));
    struct side *side = id->context;
    struct greeting greeting = side->greeting;
    switch (kind) {
    case RDMA_CM_EVENT_ESTABLISHED:
        if (greeting.plan == SERVER_LEAVES)
            CHECK(!rdma_disconnect(id));
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        rdma_disconnect(id);
        if (greeting.plan == TALKS || greeting.plan == MOVES) {
            struct ibv_wc done = completion(side, "a receive");
            CHECK(done.status == IBV_WC_SUCCESS && done.byte_len == BYTES);
            CHECK(side->memory[0] == greeting.number);
        }
        end_side(id);
        break;
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        if (greeting.plan != CLIENT_VANISHES && greeting.plan != CLIENT_GIVES_UP) {
            fprintf(stderr, "server, %s: %s\n", names[greeting.plan], rdma_event_str(kind));
            exit(1);
        }
        end_side(id);
        break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
    default:
        fprintf(stderr, "server, %s: %s\n", names[greeting.plan], rdma_event_str(kind));
        exit(1);
    }
}

static void *serve(void *unused)
{
    struct rdma_event_channel *both[2] = { rdma_create_event_channel(), rdma_create_event_channel() };
    struct rdma_cm_id *listener;
    (void)unused;
    CHECK(both[0] && both[1] && !rdma_create_id(both[0], &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&own) && !rdma_listen(listener, 64));
    is_listening = 1;
    time_t limit = 0;
    while (!is_last || open_ids) {
        struct pollfd two[2] = { { .fd = both[0]->fd, .events = POLLIN },
            { .fd = both[1]->fd, .events = POLLIN } };
        if (is_last && !limit)
            limit = time(NULL) + LIMIT_MS / 1000;
        if (limit && time(NULL) > limit) {
            fprintf(stderr, "%d ids of the server do not end\n", open_ids);
            exit(1);
        }
        CHECK(poll(two, 2, 50) >= 0);
        for (int i = 0; i < 2; i++)
            if (two[i].revents) {
                struct rdma_cm_event *event;
                CHECK(!rdma_get_cm_event(both[i], &event));
                serve_event(event, both[!i]);
            }
    }
    CHECK(!rdma_destroy_id(listener));
    rdma_destroy_event_channel(both[0]);
    rdma_destroy_event_channel(both[1]);
    return NULL;
}

/* A client. */

static __thread const char *doing;

static int next_event(struct rdma_event_channel *channel, struct greeting *into)
{
    struct pollfd one = { .fd = channel->fd, .events = POLLIN };
    struct rdma_cm_event *event;
    if (poll(&one, 1, LIMIT_MS) != 1) {
        fprintf(stderr, "no event: %s\n", doing);
        exit(1);
    }
    CHECK(!rdma_get_cm_event(channel, &event));
    int kind = event->event;
    if (into && event->param.conn.private_data_len >= sizeof *into)
        memcpy(into, event->param.conn.private_data, sizeof *into);
    CHECK(!rdma_ack_cm_event(event));
    return kind;
}

static void expect(struct rdma_event_channel *channel, struct greeting *into, int wanted)
{
    int kind = next_event(channel, into);
    if (kind != wanted) {
        fprintf(stderr, "client, %s: %s instead of %s\n", doing, rdma_event_str(kind),
            rdma_event_str(wanted));
        exit(1);
    }
}

static void talk(struct rdma_cm_id *id, uint32_t number)
{
    struct side *side = id->context;
    side->memory[1] = number;
    struct ibv_sge part = { (uintptr_t)&side->memory[1], BYTES, side->mr->lkey };
    struct ibv_send_wr send = { .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(id->qp, &send, &bad));
    struct ibv_wc done = completion(side, "a send");
    CHECK(done.status == IBV_WC_SUCCESS);
}

static void one_connection(struct rdma_event_channel *channels[2], struct greeting greeting)
{
    struct rdma_event_channel *channel = channels[0];
    struct rdma_cm_id *id;
    struct greeting back = { PLANS, 0 };
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, LIMIT_MS));
    expect(channel, NULL, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(id, LIMIT_MS));
    expect(channel, NULL, RDMA_CM_EVENT_ROUTE_RESOLVED);
    fill_side(id);
    struct rdma_conn_param wanted = { .private_data = &greeting, .private_data_len = sizeof greeting,
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
    CHECK(!rdma_connect(id, &wanted));
    switch (greeting.plan) {
    case MOVES:
        channel = channels[1];
        CHECK(!rdma_migrate_id(id, channel));
        /* fall through */
    case TALKS:
        expect(channel, &back, RDMA_CM_EVENT_ESTABLISHED);
        CHECK(!memcmp(&back, &greeting, sizeof back));
        talk(id, greeting.number);
        CHECK(!rdma_disconnect(id));
        expect(channel, NULL, RDMA_CM_EVENT_DISCONNECTED);
        break;
    case SERVER_LEAVES:
        expect(channel, NULL, RDMA_CM_EVENT_ESTABLISHED);
        expect(channel, NULL, RDMA_CM_EVENT_DISCONNECTED);
        break;
    case SERVER_VANISHES: {
        /* Its answer and the rejection that follows it may cross with the last message of the client. */
        int kind = next_event(channel, NULL);
        if (kind == RDMA_CM_EVENT_ESTABLISHED)
            kind = next_event(channel, NULL);
        if (kind != RDMA_CM_EVENT_DISCONNECTED && kind != RDMA_CM_EVENT_REJECTED &&
            kind != RDMA_CM_EVENT_CONNECT_ERROR) {
            fprintf(stderr, "client, %s: %s\n", doing, rdma_event_str(kind));
            exit(1);
        }
        break;
    }
    case REFUSED:
    case LAST:
        expect(channel, &back, RDMA_CM_EVENT_REJECTED);
        CHECK(!memcmp(&back, &greeting, sizeof back));
        break;
    case DROPPED:
        expect(channel, NULL, RDMA_CM_EVENT_REJECTED);
        break;
    case CLIENT_GIVES_UP:
        rdma_disconnect(id);
        break;
    }
    end_side(id);
}

static void *ask(void *which)
{
    unsigned state = seed * 31 + (unsigned)(uintptr_t)which;
    struct rdma_event_channel *channels[2] = { rdma_create_event_channel(), rdma_create_event_channel() };
    CHECK(channels[0] && channels[1]);
    for (unsigned round = 0; round < rounds; round++) {
        struct greeting greeting = { rand_r(&state) % PLANS, rand_r(&state) };
        doing = names[greeting.plan];
        one_connection(channels, greeting);
    }
    rdma_destroy_event_channel(channels[0]);
    rdma_destroy_event_channel(channels[1]);
    return NULL;
}

static void tell_of_the_end(void)
{
    struct rdma_event_channel *channels[2] = { rdma_create_event_channel(), NULL };
    CHECK(channels[0]);
    doing = names[LAST];
    one_connection(channels, (struct greeting) { LAST, 0 });
    rdma_destroy_event_channel(channels[0]);
}

int main(int count, char **words)
{
    return run_roles(count, words, PORT, serve, ask, tell_of_the_end);
}
