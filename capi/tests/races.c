/* Two threads call the same function of one id at once: one of the calls succeeds, and the other one is refused, as the
 * kernel refuses a second call. The id can be destroyed afterwards. Says "ok" and ends with 0. */
#include "ids.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { PORT = 7461, ROUNDS = 150, THREADS = 2 };

typedef int call(struct rdma_cm_id *id);

static struct sockaddr_in own;

/* A round: the threads begin together, and count what they were told. */
struct race {
    struct rdma_cm_id *id;
    call *call;
    atomic_int ready, succeeded, refused;
};

static int connects(struct rdma_cm_id *id)
{
    struct rdma_conn_param wanted = { .qp_num = 0xF00077, .retry_count = 7 };
    return rdma_connect(id, &wanted);
}

static int binds(struct rdma_cm_id *id)
{
    struct sockaddr_in any_port = own;
    any_port.sin_port = 0;
    return rdma_bind_addr(id, (struct sockaddr *)&any_port);
}

static int listens(struct rdma_cm_id *id)
{
    return rdma_listen(id, 1);
}

static void *run(void *argument)
{
    struct race *race = argument;
    atomic_fetch_add(&race->ready, 1);
    while (atomic_load(&race->ready) < THREADS)
        sched_yield();
    if (!race->call(race->id))
        atomic_fetch_add(&race->succeeded, 1);
    else if (errno == EINVAL)
        atomic_fetch_add(&race->refused, 1);
    return NULL;
}

static void one_of_two_succeeds(struct rdma_cm_id *id, call *call)
{
    struct race race = { .id = id, .call = call };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, run, &race));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    if (race.succeeded != 1 || race.refused != 1)
        fprintf(stderr, "%d succeeded, %d were refused\n", race.succeeded, race.refused);
    CHECK(race.succeeded == 1 && race.refused == 1);
}

/* Each connection asks the listener once, and the answer comes to an id that is there or gone. */
static void connected_at_once(struct rdma_event_channel *server, struct rdma_event_channel *client, enum rdma_port_space space)
{
    struct rdma_cm_id *listener = listening_at(server, space, &own, 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct rdma_cm_id *id = routed_to(client, space, &own);
        one_of_two_succeeds(id, connects);
        struct rdma_cm_id *request = request_of(server);
        if (round % 2)
            CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(request));
        else
            CHECK(!rdma_destroy_id(request) && !rdma_destroy_id(id));
        CHECK(!is_readable(server->fd, 0));
    }
    CHECK(!rdma_destroy_id(listener));
}

static void bound_at_once(struct rdma_event_channel *channel)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct rdma_cm_id *id;
        CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
        one_of_two_succeeds(id, binds);
        one_of_two_succeeds(id, listens);
        CHECK(!rdma_destroy_id(id));
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    own = at(arguments[1], PORT);
    struct rdma_event_channel *server = rdma_create_event_channel(), *client = rdma_create_event_channel();
    CHECK(server && client);
    connected_at_once(server, client, RDMA_PS_TCP);
    connected_at_once(server, client, RDMA_PS_UDP);
    bound_at_once(client);
    rdma_destroy_event_channel(server);
    rdma_destroy_event_channel(client);
    puts("ok");
    return 0;
}
