/* What the kernel refuses is refused here: objects of another context, attributes and transitions of queue pairs, calls
 * of ids in a state that does not allow them. And shared receive queues of ids. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>
#include <limits.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static struct ibv_context *context, *other;
static union ibv_gid gid;

static struct sockaddr_in at(const char *address, int port)
{
    struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, address, &made.sin_addr) == 1);
    return made;
}

static void contexts(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context), *pd_other = ibv_alloc_pd(other);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(other);
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = 4, .max_sge = 1 } };
    CHECK(pd && pd_other && channel);
    CHECK(!ibv_create_cq(context, 4, NULL, channel, 0) && errno == EINVAL);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0), *cq_other = ibv_create_cq(other, 4, NULL, channel, 0);
    struct ibv_srq *srq_other = ibv_create_srq(pd_other, &receives);
    CHECK(cq && cq_other && srq_other);
    for (int foreign = 0; foreign < 4; foreign++) {
        struct ibv_qp_init_attr init = { .send_cq = foreign == 0 ? cq_other : cq,
            .recv_cq = foreign == 1 ? cq_other : cq, .srq = foreign == 2 ? srq_other : NULL,
            .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
            .qp_type = IBV_QPT_RC };
        errno = 0;
        CHECK(!ibv_create_qp(foreign == 3 ? pd_other : pd, &init) && errno == EINVAL);
    }
    CHECK(!ibv_destroy_srq(srq_other) && !ibv_destroy_cq(cq) && !ibv_destroy_cq(cq_other));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_dealloc_pd(pd_other));
}

static void transitions(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(pd && cq && qp);
    struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
    errno = 0;
    CHECK(ibv_modify_qp(qp, &failed, IBV_QP_STATE) == EINVAL && errno == EINVAL);
    to_init(qp, 0);
    struct ibv_qp_attr ready = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
    int given = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    CHECK(ibv_modify_qp(qp, &ready, given) == EINVAL); /* of port 0 */
    CHECK(!ibv_create_ah(pd, &ready.ah_attr) && errno == EINVAL);
    ready.ah_attr.port_num = 1;
    ready.max_dest_rd_atomic = 200;
    CHECK(ibv_modify_qp(qp, &ready, given) == EINVAL);
    ready.max_dest_rd_atomic = 127;
    /* RoCE has no alternate paths, whatever they say. */
    ready.alt_ah_attr = ready.ah_attr;
    ready.alt_port_num = 1;
    CHECK(ibv_modify_qp(qp, &ready, given | IBV_QP_ALT_PATH) == EINVAL);
    CHECK(ibv_modify_qp(qp, &ready, given | IBV_QP_RATE_LIMIT) == EOPNOTSUPP);
    ready.ah_attr.is_global = 2;
    CHECK(!ibv_modify_qp(qp, &ready, given));
    struct ibv_qp_attr sends = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .max_rd_atomic = 200 };
    given = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    CHECK(ibv_modify_qp(qp, &sends, given) == EINVAL);
    sends.max_rd_atomic = 127;
    CHECK(!ibv_modify_qp(qp, &sends, given) && !ibv_modify_qp(qp, &failed, IBV_QP_STATE));
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

/* Calls that return an errno value leave it in `errno`, too: programs print that with perror(). */
static void error_numbers(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &receives);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .srq = srq,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;
    CHECK(pd && cq && srq && qp);
#define FAILS(call, number) (errno = 0, (call) == (number) && errno == (number))
    CHECK(FAILS(ibv_dealloc_pd(pd), EBUSY) && FAILS(ibv_destroy_cq(cq), EBUSY) && FAILS(ibv_destroy_srq(srq), EBUSY));
    CHECK(FAILS(ibv_query_port(context, 9, &port), EINVAL) && FAILS(ibv_resize_cq(cq, 0), EINVAL));
    CHECK(FAILS(ibv_query_gid_ex(context, 1, 5000, &entry, 0), EINVAL));
    CHECK(FAILS(ibv_attach_mcast(qp, &gid, 0), EINVAL) && FAILS(ibv_detach_mcast(qp, &gid, 0), EINVAL));
    receives.attr.srq_limit = 5000;
    CHECK(FAILS(ibv_modify_srq(srq, &receives.attr, IBV_SRQ_LIMIT), EINVAL));
    CHECK(FAILS(ibv_modify_srq(srq, &receives.attr, IBV_SRQ_MAX_WR), EINVAL) && !ibv_modify_srq(srq, &receives.attr, 0));
    CHECK(!ibv_query_srq(srq, &receives.attr) && !receives.attr.srq_limit);
    CHECK(!ibv_query_port(context, 1, &port) && port.flags == IBV_QPF_GRH_REQUIRED);
    CHECK(port.port_cap_flags & IBV_PORT_REINIT_SUP && port.port_cap_flags & IBV_PORT_CM_SUP);
    CHECK(!ibv_destroy_qp(qp) && FAILS(ibv_destroy_qp(qp), EINVAL));
    CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && FAILS(ibv_destroy_cq(cq), EINVAL));
    CHECK(!ibv_dealloc_pd(pd) && FAILS(ibv_dealloc_pd(pd), EINVAL));
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event) && event->event == kind && !event->status);
    CHECK(!rdma_ack_cm_event(event));
}

static void ids(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in to = at("10.0.0.1", 7471), none = at("0.0.0.0", 7471), group = at("239.1.2.3", 0);
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(rdma_resolve_route(id, 1000) == -1 && errno == EINVAL);
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) == -1 && errno == EINVAL);
    CHECK(rdma_join_multicast(id, (struct sockaddr *)&group, NULL) == -1 && errno == EINVAL);
    CHECK(!rdma_resolve_route(id, 1000));
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(rdma_resolve_route(id, 1000) == -1 && errno == EINVAL);

    /* Its shared receive queue is the one of its queue pair. */
    struct ibv_pd *pd = id->pd;
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq_init_attr_ex extended = { .attr = { .max_wr = 4, .max_sge = 1 },
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_XRC };
    CHECK(pd && rdma_create_srq_ex(id, &extended) == -1 && errno == EOPNOTSUPP);
    CHECK(!rdma_create_srq(id, NULL, &receives) && id->srq && id->srq->pd == pd && receives.attr.max_wr >= 4);
    struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
    CHECK(!rdma_create_qp(id, NULL, &init) && id->qp->srq == id->srq);
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    CHECK(!id->srq);
    extended.srq_type = IBV_SRQT_BASIC;
    CHECK(!rdma_create_srq_ex(id, &extended) && id->srq && id->srq->pd == pd);
    CHECK(extended.pd == pd && (extended.comp_mask & IBV_SRQ_INIT_ATTR_PD)); /* the one that was chosen */
    rdma_destroy_srq(id);
    struct ibv_qp_init_attr_ex chosen = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
    CHECK(!rdma_create_qp_ex(id, &chosen) && chosen.pd == pd && (chosen.comp_mask & IBV_QP_INIT_ATTR_PD));
    rdma_destroy_qp(id);
    /* The reason of ibv_create_cq, which has no queue of so many completions. */
    init.send_cq = init.recv_cq = NULL;
    init.srq = NULL;
    init.cap.max_send_wr = INT_MAX - 1;
    CHECK(rdma_create_qp(id, NULL, &init) == -1 && errno == EINVAL);
    CHECK(!rdma_destroy_id(id));

    /* The unspecified address names the device itself. */
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&none, 2000));
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(((struct sockaddr_in *)rdma_get_peer_addr(id))->sin_addr.s_addr == to.sin_addr.s_addr);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

/* Arguments that no call of an id takes. */
static void arguments(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in to = at("10.0.0.1", 7471), any = at("0.0.0.0", 0);
    struct sockaddr_storage unknown = { .ss_family = AF_UNSPEC };
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1) == -1 && errno == EFAULT);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 0) == -1 && errno == EINVAL);
    /* A source that the program did not write is none of another family, and not the absence of one. */
    CHECK(rdma_resolve_addr(id, (struct sockaddr *)&unknown, (struct sockaddr *)&to, 2000) == -1 && errno == EINVAL);
    unknown.ss_family = AF_IB;
    CHECK(rdma_resolve_addr(id, (struct sockaddr *)&unknown, (struct sockaddr *)&to, 2000) == -1 && errno == EINVAL);
    struct ibv_path_data routes[2] = { { .flags = IBV_PATH_FLAG_ALTERNATE },
        { .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL } };
    CHECK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, routes, sizeof routes) == -1 && errno == EINVAL);
    CHECK(!rdma_resolve_addr(id, (struct sockaddr *)&any, (struct sockaddr *)&to, 2000));
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    /* A route that the program gives, in place of rdma_resolve_route. */
    CHECK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, routes, sizeof routes - 1) == -1 && errno == EINVAL);
    CHECK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, routes, sizeof *routes) == -1 && errno == EINVAL);
    CHECK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, routes, 0) == -1 && errno == EINVAL);
    CHECK(!rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, routes, sizeof routes));
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(id->route.num_paths == 1 && rdma_resolve_route(id, 2000) == -1 && errno == EINVAL);
    CHECK(!rdma_destroy_id(id));
    /* A port space that needs InfiniBand. */
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB));
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&to) == -1 && errno == EINVAL);
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any) && !rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    CHECK(!rdma_get_cm_event(channel, &event));
    CHECK(event->event == RDMA_CM_EVENT_ADDR_ERROR && event->status == -EINVAL && !rdma_ack_cm_event(event));
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

static void names(void)
{
    struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_IPOIB, .ai_flags = RAI_NUMERICHOST }, *found;
    CHECK(!rdma_getaddrinfo("10.0.0.1", "7471", &hints, &found));
    CHECK(found->ai_qp_type == IBV_QPT_UD && found->ai_port_space == RDMA_PS_IPOIB && !found->ai_flags);
    rdma_freeaddrinfo(found);
    hints = (struct rdma_addrinfo) { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST | RAI_PASSIVE };
    CHECK(!rdma_getaddrinfo("10.0.0.1", "7471", &hints, &found));
    CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_flags == RAI_PASSIVE && found->ai_src_len);
    rdma_freeaddrinfo(found);
    CHECK(!rdma_getaddrinfo("10.0.0.1", "7471", NULL, &found));
    CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_port_space == RDMA_PS_TCP && found->ai_dst_len);
    rdma_freeaddrinfo(found);
    /* A kind of queue pairs that the port space does not have. */
    hints = (struct rdma_addrinfo) { .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_UD };
    CHECK(rdma_getaddrinfo("10.0.0.1", "7471", &hints, &found) == EAI_SOCKTYPE);
    hints = (struct rdma_addrinfo) { .ai_port_space = RDMA_PS_UDP, .ai_qp_type = IBV_QPT_RC };
    CHECK(rdma_getaddrinfo("10.0.0.1", "7471", &hints, &found) == EAI_SOCKTYPE);
    /* Without a name, the result is what the hints say, and no more. */
    hints = (struct rdma_addrinfo) { .ai_family = AF_INET };
    CHECK(!rdma_getaddrinfo(NULL, NULL, &hints, &found));
    CHECK(found->ai_family == AF_INET && !found->ai_qp_type && !found->ai_port_space && !found->ai_dst_addr);
    rdma_freeaddrinfo(found);
}

int main(void)
{
    context = open_first(&gid);
    other = open_first(&gid);
    contexts();
    transitions();
    error_numbers();
    ids();
    arguments();
    names();
    CHECK(!ibv_close_device(other) && !ibv_close_device(context));
    puts("ok");
}
