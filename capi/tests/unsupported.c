/* Every call that docs/rdma-programs.md lists as refused is made, and refused with EOPNOTSUPP, by its result or in
 * errno; a request of an unknown operation with EINVAL. rdma-core gives the same for what its irdma provider does not have (libibverbs, dummy_ops.c). Functions that the
 * headers of some releases lack are found by their names. */
#define _GNU_SOURCE
#include "connect.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

/* A call that returns an object. */
#define NO_OBJECT(call)                                 \
    do {                                                \
        errno = 0;                                      \
        CHECK((call) == NULL && errno == EOPNOTSUPP);   \
    } while (0)
/* A call that returns an errno value. */
#define NO_NUMBER(call) CHECK((call) == EOPNOTSUPP)
/* A call that returns -1. */
#define MINUS_ONE(call)                                 \
    do {                                                \
        errno = 0;                                      \
        CHECK((call) == -1 && errno == EOPNOTSUPP);     \
    } while (0)

static void *named(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        fprintf(stderr, "no %s\n", name);
    CHECK(found);
    return found;
}

/* Each argument is a number or an address: the calls look at none of them. */
static long long call(const char *name, const void *first, const void *second)
{
    return ((long long (*)(const void *, const void *, long, long, long, long))named(name))(first, second, 0, 0, 0, 0);
}
#define NO_NAMED_OBJECT(name, first, second) NO_OBJECT((void *)call(name, first, second))
#define NO_NAMED_NUMBER(name, first, second) NO_NUMBER((int)call(name, first, second))
#define NAMED_MINUS_ONE(name, first, second) MINUS_ONE((int)call(name, first, second))

static void imports_and_memory(struct ibv_context *context, struct ibv_pd *pd)
{
    static char page[4096];
    struct ibv_alloc_dm_attr device_memory = { .length = 64 };
    struct ibv_dm dm = { .context = context };
    struct ibv_sge piece = { .addr = (uintptr_t)page, .length = sizeof(page) };
    NO_OBJECT(ibv_import_device(0));
    NO_OBJECT(ibv_import_pd(context, 1));
    NO_OBJECT(ibv_import_mr(pd, 1));
    NO_OBJECT(ibv_import_dm(context, 1));
    NO_OBJECT(ibv_alloc_dm(context, &device_memory));
    NO_OBJECT(ibv_reg_dm_mr(pd, &dm, 0, 64, 0));
    NO_NUMBER(ibv_free_dm(&dm));
    NO_OBJECT(ibv_alloc_null_mr(pd));
    NO_OBJECT(ibv_reg_dmabuf_mr(pd, 0, sizeof(page), 0, 0, 0));
    NO_OBJECT(ibv_reg_mr(pd, page, sizeof(page), IBV_ACCESS_ON_DEMAND));
    NO_NUMBER(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1));
    NO_NAMED_OBJECT("ibv_alloc_dmah", context, page);
    NO_NAMED_NUMBER("ibv_dealloc_dmah", page, NULL);
    NAMED_MINUS_ONE("ibv_dm_export_dmabuf_fd", &dm, NULL);
    /* These return nothing. */
    errno = 0;
    ibv_unimport_pd(pd);
    CHECK(errno == EOPNOTSUPP);
    errno = 0;
    ibv_unimport_mr(NULL);
    CHECK(errno == EOPNOTSUPP);
    errno = 0;
    ibv_unimport_dm(&dm);
    CHECK(errno == EOPNOTSUPP);
}

static void domains_and_queues(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
    struct ibv_xrcd xrcd = { .context = context };
    struct ibv_srq_init_attr plain = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq_init_attr_ex wanted = { .attr = plain.attr, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
        IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = &xrcd, .cq = cq };
    struct ibv_qp_open_attr opened = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD, .xrcd = &xrcd };
    struct ibv_wq_init_attr queue = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq };
    struct ibv_wq work_queue = { .context = context };
    struct ibv_wq_attr changed = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
    struct ibv_rwq_ind_table_init_attr table = { 0 };
    struct ibv_rwq_ind_table made_table = { .context = context };
    struct ibv_parent_domain_init_attr parent = { .pd = pd, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS };
    struct ibv_ops_wr tagged = { 0 }, *bad = NULL;
    uint32_t number;
    NO_OBJECT(ibv_open_xrcd(context, &domain));
    NO_NUMBER(ibv_close_xrcd(&xrcd));
    NO_OBJECT(ibv_create_srq_ex(context, &wanted));
    wanted.srq_type = IBV_SRQT_TM;
    NO_OBJECT(ibv_create_srq_ex(context, &wanted));
    struct ibv_srq *srq = ibv_create_srq(pd, &plain);
    CHECK(srq);
    NO_NUMBER(ibv_get_srq_num(srq, &number));
    NO_NUMBER(ibv_post_srq_ops(srq, &tagged, &bad));
    CHECK(!ibv_destroy_srq(srq));
    NO_OBJECT(ibv_open_qp(context, &opened));
    NO_OBJECT(ibv_create_wq(context, &queue));
    NO_NUMBER(ibv_modify_wq(&work_queue, &changed));
    NO_NUMBER(ibv_destroy_wq(&work_queue));
    NO_OBJECT(ibv_create_rwq_ind_table(context, &table));
    NO_NUMBER(ibv_destroy_rwq_ind_table(&made_table));
    NO_OBJECT(ibv_alloc_parent_domain(context, &parent));
}

static void completions(struct ibv_context *context, struct ibv_cq *cq)
{
    static const uint64_t fields[] = { IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
        IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO };
    struct ibv_moderate_cq moderation = { .cq_count = 8, .cq_period = 8 };
    struct ibv_modify_cq_attr changed = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = moderation };
    struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        struct ibv_cq_init_attr_ex wanted = { .cqe = 4, .wc_flags = fields[i] };
        NO_OBJECT(ibv_create_cq_ex(context, &wanted));
    }
    struct ibv_cq_init_attr_ex overflows = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
        .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
    NO_OBJECT(ibv_create_cq_ex(context, &overflows));
    NO_NUMBER(ibv_modify_cq(cq, &changed));
    NO_NUMBER(ibv_query_rt_values_ex(context, &values));
    NO_NAMED_OBJECT("ibv_create_comp_cntr", context, cq);
    static const char *const counts[] = { "ibv_destroy_comp_cntr", "ibv_set_comp_cntr", "ibv_inc_comp_cntr", "ibv_read_comp_cntr",
        "ibv_set_err_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_read_err_comp_cntr", "ibv_qp_attach_comp_cntr" };
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        NO_NAMED_NUMBER(counts[i], cq, NULL);
}

static void flows_and_counters(struct ibv_context *context, struct ibv_qp *qp)
{
    struct ibv_flow_attr rule = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .port = 1 };
    struct ibv_flow flow = { .context = context };
    struct ibv_flow_action action = { .context = context };
    struct ibv_flow_action_esp_attr esp = { 0 };
    struct ibv_counters_init_attr none = { 0 };
    struct ibv_counters counters = { .context = context };
    struct ibv_counter_attach_attr attached = { 0 };
    uint64_t value;
    NO_OBJECT(ibv_create_flow(qp, &rule));
    NO_NUMBER(ibv_destroy_flow(&flow));
    NO_OBJECT(ibv_create_flow_action_esp(context, &esp));
    NO_NUMBER(ibv_modify_flow_action_esp(&action, &esp));
    NO_NUMBER(ibv_destroy_flow_action(&action));
    NO_OBJECT(ibv_create_counters(context, &none));
    NO_NUMBER(ibv_attach_counters_point_flow(&counters, &attached, &flow));
    NO_NUMBER(ibv_read_counters(&counters, &value, 1, 0));
    NO_NUMBER(ibv_destroy_counters(&counters));
}

/* Kinds and options of queue pairs, and requests that the card does not have. */
static void queue_pairs(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp *qp)
{
    static const enum ibv_qp_type kinds[] = { IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER };
    static const uint64_t operations[] = { IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_TSO };
    static const enum ibv_wr_opcode atomics[] = { IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD };
    static uint64_t word;
    struct ibv_ece options = { .vendor_id = 0x15B3, .options = 1 };
    struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct ibv_qp_init_attr wanted = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = kinds[i] };
        NO_OBJECT(ibv_create_qp(pd, &wanted));
    }
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
        struct ibv_qp_init_attr_ex wanted = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC, .pd = pd,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = operations[i] };
        NO_OBJECT(ibv_create_qp_ex(context, &wanted));
    }
    NO_NUMBER(ibv_set_ece(qp, &options));
    NO_NUMBER(ibv_query_ece(qp, &options));
    NO_NUMBER(ibv_modify_qp_rate_limit(qp, &rate));
    struct ibv_mr *mr = ibv_reg_mr(pd, &word, sizeof(word), IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    for (size_t i = 0; i < sizeof(atomics) / sizeof(*atomics); i++) {
        struct ibv_sge piece = { (uintptr_t)&word, sizeof(word), mr->lkey };
        struct ibv_send_wr request = { .opcode = atomics[i], .sg_list = &piece, .num_sge = 1 }, *bad = NULL;
        request.wr.atomic.remote_addr = piece.addr;
        request.wr.atomic.rkey = mr->rkey;
        CHECK(ibv_post_send(qp, &request, &bad) == EINVAL && bad == &request);
    }
    CHECK(!ibv_dereg_mr(mr));
}

static void connections(void)
{
    struct rdma_cm_id *id;
    struct ibv_ece options = { .vendor_id = 0x15B3, .options = 1 };
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    MINUS_ONE(rdma_set_local_ece(id, &options));
    CHECK(!rdma_destroy_id(id));
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_qp_init_attr wanted = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
    struct ibv_qp *one = ibv_create_qp(pd, &wanted), *two = ibv_create_qp(pd, &wanted);
    CHECK(one && two);
    join(one, two, &gid);
    imports_and_memory(context, pd);
    domains_and_queues(context, pd, cq);
    completions(context, cq);
    flows_and_counters(context, one);
    queue_pairs(context, pd, cq, one);
    connections();
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
