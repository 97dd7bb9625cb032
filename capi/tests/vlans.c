/* A device with one address on VLANs 7 and 8, 10.1.0.1/24, and 10.3.0.1/24 without one: the GID table has an entry for
 * each, whose index chooses the VLAN of what is sent. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>
#include "ids.h"

enum { FIRST = 7, UNTAGGED = 0xFFFF, MOST = 16 };

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

int main(void)
{
    struct ibv_gid_entry entries[MOST];
    union ibv_gid any, own = gid_of("10.1.0.1");
    struct ibv_context *context = open_first(&any);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    ssize_t count = ibv_query_gid_table(context, entries, MOST, 0);
    int found = 0;
    CHECK(pd && cq && count > 0);
    for (ssize_t i = 0; i < count; i++) {
        int index = (int)entries[i].gid_index;
        if (memcmp(entries[i].gid.raw, own.raw, sizeof own.raw))
            continue;
        CHECK(vlan_to(context, index, "10.1.0.1") == FIRST + found);
        CHECK(vlan_to(context, index, "239.1.2.3") == FIRST + found);
        CHECK(vlan_to(context, index, "10.3.0.1") == UNTAGGED);
        write_by(pd, cq, index);
        found++;
    }
    CHECK(found == 2);
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    connect_ids();
    puts("ok");
    return 0;
}
