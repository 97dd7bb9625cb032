/* What the manual pages say of wrong arguments and of values that calls fill in. */
#include "connect.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 8, WRITES = IBV_ACCESS_LOCAL_WRITE };

/* The program's memory is refused as the kernel refuses to pin it. */
static void memory(struct ibv_pd *pd)
{
    static const char constant[PAGE] = { 1 };
    char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK(!ibv_reg_mr(pd, (void *)8, PAGE, WRITES) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, (void *)-(uintptr_t)(2 * PAGE), 10, WRITES) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, pages, (size_t)-1, WRITES) && errno == EINVAL);
    CHECK(!ibv_reg_mr(pd, pages, 0, WRITES) && errno == EINVAL);
    /* Constants may be read, and no peer may change them. */
    CHECK(!ibv_reg_mr(pd, (void *)constant, sizeof(constant), WRITES) && errno == EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(pd, (void *)constant, sizeof(constant), IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, WRITES) && errno == EFAULT);
    CHECK(!ibv_dereg_mr(mr));
    mr = ibv_reg_mr(pd, pages, PAGES * PAGE, WRITES);
    CHECK(mr && !ibv_dereg_mr(mr));
    CHECK(!mprotect(pages, PAGE, PROT_READ));
    CHECK(!ibv_reg_mr(pd, pages, PAGES * PAGE, WRITES) && errno == EFAULT);
    CHECK(!mprotect(pages, PAGE, PROT_READ | PROT_WRITE));
    /* A hole in the middle, then a last page that may not be accessed at all. */
    CHECK(!munmap(pages + 3 * PAGE, PAGE));
    CHECK(!ibv_reg_mr(pd, pages, PAGES * PAGE, WRITES) && errno == EFAULT);
    CHECK(!mprotect(pages + 7 * PAGE, PAGE, PROT_NONE));
    CHECK(!ibv_reg_mr(pd, pages + 4 * PAGE, 4 * PAGE, 0) && errno == EFAULT);
    mr = ibv_reg_mr(pd, pages + 4 * PAGE + 1, 3 * PAGE - 1, WRITES);
    CHECK(mr && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
}

/* The kernel looks objects up by their handles: it finds none by a wrong one, and the object stays. */
static void handles(struct ibv_context *context)
{
    static char byte;
    union ibv_gid gid;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, &byte, 1, WRITES);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_srq_init_attr receives = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &receives);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } };
    CHECK(!ibv_query_gid(context, 1, 1, &gid));
    to.grh.dgid = gid;
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    CHECK(pd && cq && mr && mw && srq && qp && ah);
    uint32_t *all[] = { &pd->handle, &cq->handle, &mr->handle, &mw->handle, &srq->handle, &qp->handle, &ah->handle };
    enum { OBJECTS = sizeof all / sizeof *all };
    for (int i = 0; i < OBJECTS; i++)
        *all[i] ^= 0x5555;
    CHECK(ibv_destroy_ah(ah) == ENOENT && ibv_destroy_qp(qp) == ENOENT && ibv_destroy_srq(srq) == ENOENT);
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == ENOENT && ibv_query_qp(qp, &attr, 0, &init) == ENOENT);
    CHECK(ibv_dealloc_mw(mw) == ENOENT && ibv_dereg_mr(mr) == ENOENT && ibv_destroy_cq(cq) == ENOENT);
    CHECK(ibv_dealloc_pd(pd) == ENOENT);
    CHECK(!ibv_reg_mr(pd, &byte, 1, WRITES) && errno == ENOENT && !ibv_create_ah(pd, &to) && errno == ENOENT);
    CHECK(!ibv_alloc_mw(pd, IBV_MW_TYPE_1) && errno == ENOENT && !ibv_create_srq(pd, &receives) && errno == ENOENT);
    *all[0] ^= 0x5555;
    CHECK(!ibv_create_qp(pd, &init) && errno == ENOENT);
    for (int i = 1; i < OBJECTS; i++)
        *all[i] ^= 0x5555;
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_dealloc_mw(mw));
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

/* A channel counts the completion queues that report to it. */
static void channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel && channel->refcnt == 0);
    struct ibv_cq *one = ibv_create_cq(context, 4, NULL, channel, 0);
    struct ibv_cq *two = ibv_create_cq(context, 4, NULL, channel, 0);
    CHECK(one && two && channel->refcnt == 2 && ibv_destroy_comp_channel(channel) == EBUSY);
    CHECK(!ibv_destroy_cq(one) && channel->refcnt == 1);
    CHECK(!ibv_destroy_cq(two) && channel->refcnt == 0 && !ibv_destroy_comp_channel(channel));
}

static int is_made(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap)
{
    struct ibv_qp_init_attr wanted = { .send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = IBV_QPT_RC };
    struct ibv_qp *made = ibv_create_qp(pd, &wanted);
    CHECK(made ? !ibv_destroy_qp(made) : errno == EINVAL);
    return !!made;
}

/* The numbers of docs/rdma-programs.md: what the device reports is for requests of any size. */
static void queue_sizes(struct ibv_context *context, struct ibv_pd *pd)
{
    static const struct { uint32_t count, fragments, inline_bytes; } sends[] = {
        { 16376, 2, 39 }, { 8188, 6, 1024 }, { 8188, 3, 0 }, { 8188, 1, 40 }, { 4094, 13, 1024 }, { 4094, 7, 0 },
    };
    static const struct { uint32_t count, fragments; } receives[] = {
        { 16384, 1 }, { 16383, 3 }, { 8191, 7 }, { 4095, 13 },
    };
    struct ibv_device_attr attr;
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(cq && !ibv_query_device(context, &attr) && attr.max_qp_wr == 4094 && attr.max_sge == 13);
    for (size_t i = 0; i < sizeof(sends) / sizeof(*sends); i++) {
        struct ibv_qp_cap cap = { sends[i].count, 1, sends[i].fragments, 1, sends[i].inline_bytes };
        CHECK(is_made(pd, cq, cap));
        cap.max_send_wr++;
        CHECK(!is_made(pd, cq, cap));
    }
    for (size_t i = 0; i < sizeof(receives) / sizeof(*receives); i++) {
        struct ibv_qp_cap cap = { 1, receives[i].count, 1, receives[i].fragments, 0 };
        CHECK(is_made(pd, cq, cap));
        cap.max_recv_wr++;
        CHECK(!is_made(pd, cq, cap));
    }
    CHECK(!is_made(pd, cq, (struct ibv_qp_cap) { 1, 1, 14, 1, 0 }) && !is_made(pd, cq, (struct ibv_qp_cap) { 1, 1, 1, 1, 1025 }));
    CHECK(!ibv_destroy_cq(cq));
}

/* Types that the card lacks, and numbers that are none. */
static void queue_pair_types(struct ibv_context *context, struct ibv_pd *pd)
{
    static const struct { int type, error; } wanted[] = {
        { 0, EINVAL }, { 1, EINVAL }, { IBV_QPT_UC, EOPNOTSUPP }, { 7, EINVAL }, { IBV_QPT_RAW_PACKET, EOPNOTSUPP },
        { IBV_QPT_DRIVER, EOPNOTSUPP }, { 0xFE, EINVAL },
    };
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(cq);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = wanted[i].type };
        CHECK(!ibv_create_qp(pd, &init) && errno == wanted[i].error);
    }
    CHECK(!ibv_destroy_cq(cq));
}

static struct rdma_cm_event *read_event(struct rdma_event_channel *events)
{
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(events, &event));
    return event;
}

/* The event of a join has the program's context; a group that was not joined cannot be left. */
static void groups(int with_pair)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("10.0.0.1") };
    struct sockaddr_in group = own;
    struct ibv_qp_init_attr wanted = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_UD };
    struct rdma_cm_id *id;
    int context;
    group.sin_addr.s_addr = inet_addr("239.7.7.7");
    CHECK(events && !rdma_create_id(events, &id, NULL, RDMA_PS_UDP));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own));
    CHECK(!with_pair || !rdma_create_qp(id, NULL, &wanted));
    CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group) == -1 && errno == EADDRNOTAVAIL);
    CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, &context));
    struct rdma_cm_event *event = read_event(events);
    CHECK(event->event == RDMA_CM_EVENT_MULTICAST_JOIN && event->id == id);
    CHECK(event->param.ud.private_data == &context && event->param.ud.qp_num == 0xFFFFFF);
    CHECK(!rdma_ack_cm_event(event));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group) == -1 && errno == EADDRNOTAVAIL);
    /* A group to which the id only sends is one of its groups, too. */
    struct rdma_cm_join_mc_attr_ex sends = { .comp_mask = 3,
        .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, .addr = (struct sockaddr *)&group };
    CHECK(!rdma_join_multicast_ex(id, &sends, &sends));
    event = read_event(events);
    CHECK(event->param.ud.private_data == &sends && !rdma_ack_cm_event(event));
    CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    if (with_pair)
        rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(events);
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    queue_sizes(context, pd);
    queue_pair_types(context, pd);
    memory(pd);
    handles(context);
    channel(context);
    groups(1);
    groups(0);
    puts("ok");
    return 0;
}
