/* Requests that the program answers late or wrongly. "refused": an accept that fails refuses its request, and
 * the peer hears it at once. "backlog": requests that were read do not count for the backlog, and outlive
 * their listener. Says "ok" and ends with 0. */
#include "connect.h"
#include "ids.h"

enum { PORT = 7101, CONSUMER = 28, LONGEST = 196, CALLERS = 5 };

static struct sockaddr_in own;
static struct rdma_event_channel *server, *client;

/* An id whose request is on its way. */
static struct rdma_cm_id *asking(enum rdma_port_space space)
{
    static uint32_t number = 0xF00000; /* no queue pair of the device has such a number */
    struct rdma_conn_param parameters = { .qp_num = number++, .retry_count = 7 };
    struct rdma_cm_id *id = routed_to(client, space, &own);
    CHECK(!rdma_connect(id, &parameters));
    return id;
}

static int state_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

static void end(struct rdma_cm_id *one, struct rdma_cm_id *two)
{
    if (two->qp)
        rdma_destroy_qp(two);
    CHECK(!rdma_destroy_id(one) && !rdma_destroy_id(two));
}

/* `with_pair`: the request has a queue pair; `moved`: which takes no connection any more. */
static void refused(int with_pair, int moved, uint8_t length)
{
    static const char data[256];
    struct rdma_conn_param wanted = { .private_data = data, .private_data_len = length };
    struct rdma_cm_id *caller = asking(RDMA_PS_TCP), *request = request_of(server);
    if (with_pair)
        make_pair(request);
    if (moved)
        CHECK(!ibv_modify_qp(request->qp, &(struct ibv_qp_attr) { .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
    errno = 0;
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    struct rdma_cm_event *event = expect_of(client, RDMA_CM_EVENT_REJECTED);
    CHECK(event->id == caller && event->status == CONSUMER && !rdma_ack_cm_event(event));
    if (with_pair && !moved)
        CHECK(state_of(request->qp) == IBV_QPS_ERR);
    wanted.private_data_len = 0;
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    end(caller, request);
}

/* A request that was accepted stays so, whatever is asked afterwards. */
static void accepted(void)
{
    static const char data[256];
    struct rdma_conn_param wanted = { .private_data = data, .private_data_len = LONGEST };
    struct rdma_cm_id *caller = asking(RDMA_PS_TCP), *request = request_of(server);
    make_pair(request);
    CHECK(!rdma_accept(request, &wanted));
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    CHECK(state_of(request->qp) == IBV_QPS_RTS);
    struct rdma_cm_event *event = expect_of(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(event->param.conn.private_data_len == LONGEST && !rdma_ack_cm_event(event));
    CHECK(!rdma_establish(caller));
    pass(server, RDMA_CM_EVENT_ESTABLISHED);
    end(caller, request);
}

/* The same of a datagram service. */
static void refused_datagrams(void)
{
    static const char data[256];
    struct rdma_conn_param wanted = { .private_data = data, .private_data_len = 137 };
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_UDP, &own, 4), *caller = asking(RDMA_PS_UDP), *request = request_of(server);
    make_pair(request);
    CHECK(rdma_accept(request, &wanted) == -1 && errno == EINVAL);
    struct rdma_cm_event *event = expect_of(client, RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status > 0 && !rdma_ack_cm_event(event));
    end(caller, request);
    CHECK(!rdma_destroy_id(listener));
}

static void backlog(void)
{
    struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 1), *callers[CALLERS], *requests[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = asking(RDMA_PS_TCP);
        requests[i] = request_of(server);
    }
    CHECK(!rdma_destroy_id(listener));
    for (int i = 0; i < CALLERS; i++) {
        make_pair(requests[i]);
        CHECK(!rdma_accept(requests[i], NULL));
        pass(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
        end(callers[i], requests[i]);
    }
}

int main(int count, char **words)
{
    own = at("10.0.0.1", PORT);
    server = rdma_create_event_channel();
    client = rdma_create_event_channel();
    CHECK(count == 2 && server && client);
    if (!strcmp(words[1], "backlog")) {
        backlog();
    } else {
        struct rdma_cm_id *listener = listening_at(server, RDMA_PS_TCP, &own, 4);
        refused(1, 0, LONGEST + 1);
        refused(0, 0, LONGEST + 1);
        refused(1, 1, 0);
        accepted();
        CHECK(!rdma_destroy_id(listener));
        refused_datagrams();
    }
    puts("ok");
    return 0;
}
