/* A device with one address on VLANs 7 and 8, 10.1.0.1/24, and 10.3.0.1/24 without one: the GID table has an entry for
 * each, whose index chooses the VLAN of what is sent. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>
#include "ids.h"

enum { FIRST = 7, UNTAGGED = 0xFFFF, MOST = 16, QKEY = 0x1234 };

static union ibv_gid gid_of(const char *address)
{
    union ibv_gid gid = { .raw = { [10] = 0xFF, [11] = 0xFF } };
    CHECK(inet_pton(AF_INET, address, gid.raw + 12) == 1);
    return gid;
}

static int vlan_to(struct ibv_context *context, int index, const char *peer)
{
    struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = (uint8_t)index, .hop_limit = 64 } };
    uint8_t mac[ETHERNET_LL_SIZE];
    uint16_t vlan = 1;
    way.grh.dgid = gid_of(peer);
    CHECK(!ibv_resolve_eth_l2_from_gid(context, &way, mac, &vlan));
    return vlan;
}

/* A write between two queue pairs that use an entry of the table. */
static void write_by(struct ibv_pd *pd, struct ibv_cq *cq, int index)
{
    static char memory[16];
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 2, 2, 1, 1, 0 } };
    struct ibv_qp *pair[2] = { ibv_create_qp(pd, &init), ibv_create_qp(pd, &init) };
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(pair[0] && pair[1] && mr);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .min_rnr_timer = 12,
            .dest_qp_num = pair[!i]->qp_num, .ah_attr = { .is_global = 1, .port_num = 1,
                .grh = { .dgid = gid_of("10.1.0.1"), .sgid_index = (uint8_t)index, .hop_limit = 64 } } };
        to_init(pair[i], IBV_ACCESS_REMOTE_WRITE);
        CHECK(!ibv_modify_qp(pair[i], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
        to_rts(pair[i], 0);
    }
    memcpy(memory, "abcdefgh", 8);
    struct ibv_sge data = { (uintptr_t)memory, 8, mr->lkey };
    struct ibv_send_wr write = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)memory + 8, mr->rkey } }, *bad;
    CHECK(!ibv_post_send(pair[0], &write, &bad));
    CHECK(next(cq).status == IBV_WC_SUCCESS && !memcmp(memory + 8, "abcdefgh", 8));
    CHECK(!ibv_destroy_qp(pair[0]) && !ibv_destroy_qp(pair[1]) && !ibv_dereg_mr(mr));
}

/* A datagram to a group, sent by an entry of the table, arrives once at a member. */
static void send_to_group(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp *member, int index)
{
    static char memory[128];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = (uint8_t)index, .hop_limit = 1 } };
    way.grh.dgid = gid_of("239.1.2.3");
    struct ibv_ah *handle = ibv_create_ah(pd, &way);
    struct ibv_sge into = { (uintptr_t)memory, 64, mr->lkey }, from = { (uintptr_t)memory + 64, 8, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, .wr.ud = { handle, 0xFFFFFF, QKEY } }, *bad;
    CHECK(handle && !ibv_post_recv(member, &receive, &bad_receive) && !ibv_post_send(member, &send, &bad));
    for (int i = 0; i < 2; i++)
        CHECK(next(cq).status == IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_ah(handle) && !ibv_dereg_mr(mr));
}

static struct ibv_qp *member_of(struct ibv_pd *pd, struct ibv_cq *cq, union ibv_gid *group)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = { 2, 2, 1, 1, 0 } };
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
    CHECK(made && !ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    CHECK(!ibv_attach_mcast(made, group, 0));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(made, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    return made;
}

/* An id joins on the VLAN of its own address. */
static void join_by_id(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct rdma_cm_event *joined;
    struct sockaddr_in own = at("10.1.0.1", 0), group = at("239.1.2.4", 0);
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own));
    struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 2, 2, 1, 1, 0 } };
    CHECK(!rdma_create_qp(id, NULL, &init) && !rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
    joined = expect_of(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    static char memory[128];
    struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah *handle = ibv_create_ah(id->pd, &joined->param.ud.ah_attr);
    struct ibv_sge into = { (uintptr_t)memory, 64, mr->lkey }, from = { (uintptr_t)memory + 64, 8, mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = { handle, joined->param.ud.qp_num, joined->param.ud.qkey } }, *bad;
    CHECK(handle && !ibv_post_recv(id->qp, &receive, &bad_receive) && !ibv_post_send(id->qp, &send, &bad));
    CHECK(next(id->send_cq).status == IBV_WC_SUCCESS && next(id->recv_cq).status == IBV_WC_SUCCESS);
    CHECK(!rdma_ack_cm_event(joined) && !ibv_destroy_ah(handle) && !ibv_dereg_mr(mr));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

/* An id reaches its own address on the first VLAN, and is answered there. */
static void connect_ids(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener, *id;
    struct sockaddr_in own = at("10.1.0.1", 7471);
    CHECK(channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&own) && !rdma_listen(listener, 1));
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, 2000));
    CHECK(!rdma_ack_cm_event(expect_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED)) && !rdma_resolve_route(id, 2000));
    CHECK(!rdma_ack_cm_event(expect_of(channel, RDMA_CM_EVENT_ROUTE_RESOLVED)));
    make_pair(id);
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_id *request = request_of(channel);
    make_pair(request);
    CHECK(!rdma_accept(request, NULL));
    for (int end = 0; end < 2; end++)
        CHECK(!rdma_ack_cm_event(expect_of(channel, RDMA_CM_EVENT_ESTABLISHED)));
    rdma_destroy_qp(id);
    rdma_destroy_qp(request);
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(request) && !rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
}

/* An address of the device that is on none of the VLANs of an id's own address is not reached from it. */
static void refuse_other_vlan(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in from = at("10.1.0.1", 0), to = at("10.3.0.1", 7471);
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, 2000));
    struct rdma_cm_event *refused = expect_of(channel, RDMA_CM_EVENT_ADDR_ERROR);
    CHECK(refused->status == -EHOSTUNREACH && !rdma_ack_cm_event(refused) && !rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    struct ibv_gid_entry entries[MOST];
    union ibv_gid any, own = gid_of("10.1.0.1");
    struct ibv_context *context = open_first(&any);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    ssize_t count = ibv_query_gid_table(context, entries, MOST, 0);
    int found = 0, sent = 0;
    CHECK(pd && cq && count > 0);
    union ibv_gid group = gid_of("239.1.2.3"), untagged = gid_of("10.3.0.1");
    struct ibv_qp *member = member_of(pd, cq, &group);
    for (ssize_t i = 0; i < count; i++) {
        int index = (int)entries[i].gid_index;
        if (!memcmp(entries[i].gid.raw, untagged.raw, sizeof untagged.raw)) {
            send_to_group(pd, cq, member, index);
            sent++;
        }
        if (memcmp(entries[i].gid.raw, own.raw, sizeof own.raw))
            continue;
        CHECK(vlan_to(context, index, "10.1.0.1") == FIRST + found);
        CHECK(vlan_to(context, index, "239.1.2.3") == FIRST + found);
        CHECK(vlan_to(context, index, "10.3.0.1") == UNTAGGED);
        write_by(pd, cq, index);
        send_to_group(pd, cq, member, index);
        found++;
    }
    CHECK(found == 2 && sent == 1);
    CHECK(ibv_destroy_qp(member) == EBUSY && !ibv_detach_mcast(member, &group, 0) && !ibv_destroy_qp(member));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    connect_ids();
    refuse_other_vlan();
    join_by_id();
    puts("ok");
    return 0;
}
