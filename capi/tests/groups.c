/* Multicast groups: a queue pair joins them in any state, and keeps them through RESET. Groups may share a MAC
 * address, with each other and with what the port's own network receives. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>

enum { BYTES = 64, ROUTE = 40, SOURCE = 8, QKEY = 0x1234 };

static char memory[2][ROUTE + BYTES];
static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_pd *pd;
static union ibv_gid own;

static struct ibv_qp *make(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static void to(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
    struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = QKEY };
    CHECK(!ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE));
}

static void start(struct ibv_qp *qp)
{
    to(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    to(qp, IBV_QPS_RTR, 0);
    to(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static union ibv_gid group_of(const char *text)
{
    union ibv_gid gid;
    CHECK(inet_pton(AF_INET6, text, gid.raw) == 1);
    return gid;
}

/* A datagram to the group arrives at this queue pair, which sends it too. */
static void arrives(struct ibv_qp *qp, const char *text)
{
    struct ibv_ah_attr route = { .is_global = 1, .port_num = 1,
        .grh = { .dgid = group_of(text), .sgid_index = GID_INDEX, .hop_limit = 64 } };
    struct ibv_ah *handle = ibv_create_ah(pd, &route);
    CHECK(handle);
    struct ibv_sge from = { (uintptr_t)memory[0], BYTES, mr->lkey },
        into = { (uintptr_t)memory[1], ROUTE + BYTES, mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = { .ah = handle, .remote_qpn = 0xFFFFFF, .remote_qkey = QKEY } }, *bad;
    snprintf(memory[0], BYTES, "to %s", text);
    memset(memory[1], 0, sizeof memory[1]);
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive) && !ibv_post_send(qp, &send, &bad));
    CHECK(next(cq).status == IBV_WC_SUCCESS && next(cq).status == IBV_WC_SUCCESS);
    CHECK(!strcmp(memory[1] + ROUTE, memory[0]) && !ibv_destroy_ah(handle));
    /* By an IPv4 GID, the datagram to a group of IPv6 has the GID as its source. */
    if (strncmp(text, "::ffff:", 7))
        CHECK(!memcmp(memory[1] + SOURCE, own.raw, sizeof own.raw));
}

static void as_many_members_as_promised(void)
{
    enum { MOST = 64 };
    struct ibv_device_attr limits;
    struct ibv_qp *members[MOST + 1];
    union ibv_gid group = group_of("::ffff:239.9.9.9");
    CHECK(!ibv_query_device(context, &limits) && limits.max_mcast_qp_attach > 0 && limits.max_mcast_qp_attach <= MOST);
    CHECK(limits.max_total_mcast_qp_attach == limits.max_mcast_grp * limits.max_mcast_qp_attach);
    for (int i = 0; i <= limits.max_mcast_qp_attach; i++) {
        members[i] = make(IBV_QPT_UD);
        int error = ibv_attach_mcast(members[i], &group, 0);
        CHECK(error == (i < limits.max_mcast_qp_attach ? 0 : ENOMEM));
    }
    for (int i = 0; i <= limits.max_mcast_qp_attach; i++) {
        CHECK(i == limits.max_mcast_qp_attach || !ibv_detach_mcast(members[i], &group, 0));
        CHECK(!ibv_destroy_qp(members[i]));
    }
}

int main(void)
{
    context = open_first(&own);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(pd && cq && mr);
    static const char *const groups[] = { "::ffff:239.1.2.3", "ff0e::17", "::ffff:239.129.2.3" };
    /* The MAC address of the first two is that of the group of all nodes. */
    static const char *const shared[] = { "ff0e::1", "ff0e:0:2:c985::1" };
    struct ibv_qp *qp = make(IBV_QPT_UD), *connection = make(IBV_QPT_RC);
    union ibv_gid first = group_of(groups[0]);
    CHECK(ibv_attach_mcast(connection, &first, 0) == EINVAL);
    for (int i = 0; i < 3; i++) { /* in RESET, in INIT, in RTS; the third shares the MAC address of the first */
        union ibv_gid group = group_of(groups[i]);
        if (i == 1)
            to(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
        if (i == 2) {
            to(qp, IBV_QPS_RTR, 0);
            to(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
        }
        CHECK(!ibv_attach_mcast(qp, &group, 0) && !ibv_attach_mcast(qp, &group, 0));
    }
    for (int i = 0; i < 3; i++)
        arrives(qp, groups[i]);
    to(qp, IBV_QPS_RESET, 0);
    start(qp);
    for (int i = 0; i < 3; i++)
        arrives(qp, groups[i]);
    for (int i = 0; i < 2; i++) {
        union ibv_gid group = group_of(shared[i]);
        CHECK(!ibv_attach_mcast(qp, &group, 0));
    }
    for (int i = 0; i < 3; i++) {
        union ibv_gid group = group_of(groups[i]);
        CHECK(!ibv_detach_mcast(qp, &group, 0) && ibv_detach_mcast(qp, &group, 0) == EINVAL);
    }
    /* A member stays until it has left its groups. */
    CHECK(ibv_destroy_qp(qp) == EBUSY && errno == EBUSY);
    for (int i = 0; i < 2; i++) {
        union ibv_gid group = group_of(shared[i]);
        CHECK(!ibv_detach_mcast(qp, &group, 0));
    }
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(connection));
    as_many_members_as_promised();
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("ok");
    return 0;
}
