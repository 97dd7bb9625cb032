/* Two listeners of one port, one for each family of addresses, as tgtd makes them; ports that are taken;
 * a disconnection after a rejection. Says "ok" and ends with 0. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <string.h>

static struct rdma_event_channel *channel;

static struct rdma_cm_id *made(int family_only)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    if (family_only)
        CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &family_only, sizeof family_only));
    return id;
}

static int bound(struct rdma_cm_id *id, const char *address, int port)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
    if (inet_pton(AF_INET6, address, &six.sin6_addr) == 1)
        return rdma_bind_addr(id, (struct sockaddr *)&six);
    CHECK(inet_pton(AF_INET, address, &four.sin_addr) == 1);
    return rdma_bind_addr(id, (struct sockaddr *)&four);
}

static int refused(int result, int error)
{
    return result == -1 && errno == error;
}

static struct rdma_cm_event *expect(enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != kind)
        fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(kind));
    CHECK(event->event == kind);
    return event;
}

/* An id on its way to the own address 10.0.0.1. */
static struct rdma_cm_id *connecting(int port)
{
    struct rdma_cm_id *id = made(0);
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, "10.0.0.1", &to.sin_addr) == 1);
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(!rdma_resolve_route(id, 2000));
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_ROUTE_RESOLVED));
    struct ibv_qp_init_attr wanted = { .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    CHECK(!rdma_create_qp(id, NULL, &wanted));
    CHECK(rdma_disconnect(id) == -1 && errno == EINVAL);
    struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };
    CHECK(!rdma_connect(id, &parameters));
    return id;
}

static void ended(struct rdma_cm_id *id)
{
    rdma_ack_cm_event(expect(RDMA_CM_EVENT_REJECTED));
    CHECK(!rdma_disconnect(id)); /* as Linux answers: there is nothing left to do */
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
}

int main(void)
{
    enum { PORT = 3260, OTHER = 3261 };
    CHECK((channel = rdma_create_event_channel()));
    struct rdma_cm_id *four = made(1), *six = made(1), *third = made(0);
    CHECK(!bound(four, "0.0.0.0", PORT) && !bound(six, "::", PORT));
    CHECK(!rdma_listen(four, 4) && !rdma_listen(six, 4));
    CHECK(refused(bound(third, "10.0.0.1", PORT), EADDRNOTAVAIL));
    CHECK(refused(bound(third, "::", PORT), EADDRNOTAVAIL));
    CHECK(!bound(third, "10.0.0.1", OTHER));

    struct rdma_cm_id *id = connecting(PORT);
    struct rdma_cm_event *request = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *asked = request->id;
    CHECK(request->listen_id == four);
    CHECK(!rdma_reject(asked, NULL, 0));
    rdma_ack_cm_event(request);
    ended(id);
    CHECK(!rdma_destroy_id(asked));

    /* Without the first listener, nobody listens there: the other one is for IPv6 only. */
    CHECK(!rdma_destroy_id(four));
    ended(connecting(PORT));
    CHECK(!rdma_destroy_id(six) && !rdma_destroy_id(third));

    /* A port for all addresses excludes those of one; shared, it is bound twice and listened at by none. */
    int shared = 1;
    struct rdma_cm_id *all = made(0), *one = made(0), *two = made(0);
    CHECK(!bound(all, "::", PORT) && !rdma_listen(all, 4));
    CHECK(refused(bound(one, "0.0.0.0", PORT), EADDRNOTAVAIL));
    CHECK(!rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &shared, sizeof shared));
    CHECK(!rdma_set_option(two, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &shared, sizeof shared));
    CHECK(!bound(one, "10.0.0.1", OTHER) && !bound(two, "10.0.0.1", OTHER));
    CHECK(refused(rdma_listen(two, 4), EADDRINUSE));
    CHECK(!rdma_destroy_id(one) && !rdma_listen(two, 4));
    /* A port that is listened at is shared with none. */
    struct rdma_cm_id *late = made(0);
    CHECK(!rdma_set_option(late, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &shared, sizeof shared));
    CHECK(refused(bound(late, "10.0.0.1", OTHER), EADDRINUSE) && !rdma_destroy_id(late));
    id = connecting(PORT);
    request = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    asked = request->id;
    CHECK(request->listen_id == all && !rdma_reject(asked, NULL, 0));
    rdma_ack_cm_event(request);
    ended(id);
    CHECK(!rdma_destroy_id(asked) && !rdma_destroy_id(all) && !rdma_destroy_id(two));
    rdma_destroy_event_channel(channel);
    puts("ok");
    return 0;
}
