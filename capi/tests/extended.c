/* The extended forms of posting and polling, thread domains and parent domains. With an argument, the
 * objects belong to a thread domain. Says "ok" and ends with 0 if all is as verbs promises. */
#include "connect.h"
#include <unistd.h>

enum { BYTES = 4096, SENDS = 16 };

static char source[BYTES], target[BYTES], got[BYTES];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *source_mr, *target_mr, *got_mr;

static struct ibv_cq_ex *make_cq(uint64_t flags, uint32_t comp_mask, uint32_t cq_flags, struct ibv_pd *parent)
{
    struct ibv_cq_init_attr_ex wanted = { .cqe = 300, .cq_context = &context, .wc_flags = flags,
        .comp_mask = comp_mask, .flags = cq_flags, .parent_domain = parent };
    return ibv_create_cq_ex(context, &wanted);
}

static uint32_t send_fragments = 3;

static struct ibv_qp *make_qp(struct ibv_pd *domain, struct ibv_cq *cq, enum ibv_qp_type type, uint64_t ops)
{
    struct ibv_qp_init_attr_ex wanted = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
        .cap = { .max_send_wr = SENDS, .max_recv_wr = 16, .max_send_sge = send_fragments, .max_recv_sge = 1,
                 .max_inline_data = 300 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = domain, .send_ops_flags = ops };
    return ibv_create_qp_ex(context, &wanted);
}

/* Opens the next completion; the queue stays open. */
static void open_next(struct ibv_cq_ex *cq)
{
    struct ibv_poll_cq_attr attr = { 0 };
    time_t end = time(NULL) + SECONDS;
    int error;
    while ((error = ibv_start_poll(cq, &attr)) == ENOENT)
        CHECK(time(NULL) < end);
    CHECK(!error);
}

/* Takes the next completion, which must be a success of this kind. */
static void expect(struct ibv_cq_ex *cq, uint64_t id, enum ibv_wc_opcode opcode)
{
    open_next(cq);
    CHECK(cq->status == IBV_WC_SUCCESS && cq->wr_id == id && ibv_wc_read_opcode(cq) == opcode);
    ibv_end_poll(cq);
}

static void receive(struct ibv_qp *qp, uint64_t id)
{
    struct ibv_sge into = { (uintptr_t)got, BYTES, got_mr->lkey };
    struct ibv_recv_wr wanted = { .wr_id = id, .sg_list = &into, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_recv(qp, &wanted, &bad));
}

static void refusals(struct ibv_cq *cq)
{
    CHECK(!make_cq(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0, 0, NULL) && errno == EOPNOTSUPP);
    CHECK(!make_cq(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, 0, 0, NULL) && errno == EOPNOTSUPP);
    CHECK(!make_cq(IBV_WC_EX_WITH_FLOW_TAG, 0, 0, NULL) && errno == EOPNOTSUPP);
    CHECK(!make_cq(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, NULL) && errno == EOPNOTSUPP);
    CHECK(!make_cq(0, IBV_CQ_INIT_ATTR_MASK_PD, 0, pd) && errno == EINVAL); /* no parent domain */
    CHECK(!make_cq(0, 1 << 7, 0, NULL) && errno == EOPNOTSUPP);
    CHECK(!make_qp(pd, cq, IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) && errno == EOPNOTSUPP);
    CHECK(!make_qp(pd, cq, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE) && errno == EOPNOTSUPP);
    CHECK(!make_qp(pd, cq, IBV_QPT_UC, IBV_QP_EX_WITH_SEND) && errno == EOPNOTSUPP);
    CHECK(!make_qp(NULL, cq, IBV_QPT_RC, IBV_QP_EX_WITH_SEND) && errno == EINVAL);
    struct ibv_qp_init_attr_ex tso = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, .pd = pd };
    CHECK(!ibv_create_qp_ex(context, &tso) && errno == EOPNOTSUPP);
    tso.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    tso.create_flags = IBV_QP_CREATE_SCATTER_FCS;
    CHECK(!ibv_create_qp_ex(context, &tso) && errno == EOPNOTSUPP);

    struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
    CHECK(ibv_query_rt_values_ex(context, &values) == EOPNOTSUPP);
    struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE };
    CHECK(ibv_modify_cq(cq, &moderate) == EOPNOTSUPP);
    struct ibv_device_attr_ex all;
    memset(&all, 0xFF, sizeof all);
    CHECK(!ibv_query_device_ex(context, NULL, &all));
    CHECK(!all.completion_timestamp_mask && !all.hca_core_clock && !all.raw_packet_caps && !all.comp_mask);
    CHECK(!all.odp_caps.general_caps && !all.tso_caps.max_tso && !all.rss_caps.supported_qpts &&
        !all.max_dm_size && !all.cq_mod_caps.max_cq_count && !all.orig_attr.atomic_cap);
    /* of the RDMA engine and of the PCI function, as irdma reports them */
    CHECK(!strcmp(all.orig_attr.fw_ver, "1.53") && all.orig_attr.hw_ver == 2);
    CHECK(all.device_cap_flags_ex == all.orig_attr.device_cap_flags && all.phys_port_cnt_ex == 1);
    struct ibv_query_device_ex_input input = { .comp_mask = 1 };
    CHECK(ibv_query_device_ex(context, &input, &all) == EINVAL);
    struct ibv_gid_entry entry, table[64];
    CHECK(!ibv_query_gid_ex(context, 1, GID_INDEX, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    CHECK(ibv_query_gid_ex(context, 1, GID_INDEX, &entry, 1) == EOPNOTSUPP);
    CHECK(ibv_query_gid_ex(context, 2, GID_INDEX, &entry, 0) == EINVAL);
    CHECK(ibv_query_gid_ex(context, 1, 10000, &entry, 0) == EINVAL);
    CHECK(ibv_query_gid_table(context, table, 64, 0) >= 2 && ibv_query_gid_table(context, table, 1, 0) == -EINVAL);
    struct ibv_srq_init_attr_ex shared = { .attr = { .max_wr = 8, .max_sge = 1 }, .pd = pd,
        .comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_BASIC };
    struct ibv_srq *srq = ibv_create_srq_ex(context, &shared);
    CHECK(srq && !ibv_destroy_srq(srq));
    shared.srq_type = IBV_SRQT_TM;
    CHECK(!ibv_create_srq_ex(context, &shared) && errno == EOPNOTSUPP);
}

/* Posts a batch of sends of so many fragments. */
static int batch(struct ibv_qp_ex *ex, uint64_t sends, size_t fragments)
{
    struct ibv_sge list[8] = { { (uintptr_t)source, 8, source_mr->lkey } };
    ibv_wr_start(ex);
    for (uint64_t id = 0; id < sends; id++) {
        ex->wr_id = id;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        ibv_wr_set_sge_list(ex, fragments, list);
    }
    return ibv_wr_complete(ex);
}

/* In the error state too, a batch is taken whole or not at all, and requests are checked. */
static void batches_of_a_failed(struct ibv_qp *qp, struct ibv_cq *cq)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_wc wc;
    CHECK(batch(ex, SENDS + 1, 1) == ENOMEM && !ibv_poll_cq(cq, 1, &wc));
    CHECK(batch(ex, 2, send_fragments + 1) == EINVAL && !ibv_poll_cq(cq, 1, &wc));
    CHECK(!batch(ex, SENDS - 2, 1) && batch(ex, 3, 1) == ENOMEM && !batch(ex, 2, 1));
    for (uint64_t id = 0; id < SENDS; id++) {
        CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
        CHECK(wc.wr_id == (id < SENDS - 2 ? id : id - (SENDS - 2)));
    }
    CHECK(!ibv_poll_cq(cq, 1, &wc));
    struct ibv_sge two[2] = { { (uintptr_t)got, 8, got_mr->lkey }, { (uintptr_t)got, 8, got_mr->lkey } };
    struct ibv_send_wr atomic = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = two, .num_sge = 1 }, *bad = NULL;
    struct ibv_recv_wr receive = { .sg_list = two, .num_sge = 2 }, *bad_receive = NULL;
    CHECK(ibv_post_send(qp, &atomic, &bad) == EINVAL && bad == &atomic);
    CHECK(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
    CHECK(!ibv_poll_cq(cq, 1, &wc));
}

static void connection(struct ibv_pd *domain, struct ibv_cq_ex *cq)
{
    uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
        IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ;
    struct ibv_qp *one = make_qp(domain, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, ops);
    struct ibv_qp_init_attr init = { .send_cq = &*ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
        .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *two = ibv_create_qp(domain, &init);
    CHECK(one && two && one->pd == domain && !ibv_qp_to_qp_ex(two));
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(one);
    CHECK(ex && &ex->qp_base == one);
    /* Programs find out by the pointer if the device has these operations; wr_flush is behind the other. */
    CHECK(ex->wr_rdma_write && !ex->wr_atomic_write && !(&ex->wr_atomic_write)[1]);

    /* Before RTS nothing is posted. */
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    CHECK(ibv_wr_complete(ex) == EINVAL); /* no batch was begun */
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    join(one, two, &gid);

    /* A write of three fragments, a write of inline data from two buffers, a read of both: one batch. */
    for (int i = 0; i < BYTES; i++)
        source[i] = (char)(i * 11);
    struct ibv_sge three[3] = { { (uintptr_t)source, 100, source_mr->lkey },
        { (uintptr_t)source + 100, 1, source_mr->lkey }, { (uintptr_t)source + 101, 899, source_mr->lkey } };
    char head[150], tail[150];
    memset(head, 'h', sizeof head);
    memset(tail, 't', sizeof tail);
    struct ibv_data_buf buffers[2] = { { head, sizeof head }, { tail, sizeof tail } };
    ibv_wr_start(ex);
    ex->wr_id = 10;
    ex->wr_flags = 0;
    ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target);
    ibv_wr_set_sge_list(ex, 3, three);
    ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target + 1000);
    ibv_wr_set_inline_data_list(ex, 2, buffers);
    memset(head, 0, sizeof head); /* the data was copied */
    ex->wr_id = 11;
    ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_INLINE; /* the setter decides */
    ibv_wr_rdma_read(ex, target_mr->rkey, (uintptr_t)target);
    ibv_wr_set_sge(ex, got_mr->lkey, (uintptr_t)got, 1300);
    CHECK(!ibv_wr_complete(ex));
    expect(cq, 11, IBV_WC_RDMA_READ);
    CHECK(!memcmp(got, source, 1000) && got[1000] == 'h' && got[1149] == 'h' && got[1150] == 't' && got[1299] == 't');

    /* Sends: plain, with immediate data, to a key; a write with immediate data. Two completions are read in one go. */
    for (uint64_t id = 20; id < 23; id++)
        receive(two, id);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, "hello", 5);
    ibv_wr_send_imm(ex, htobe32(0x01020304));
    ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, 700);
    ex->wr_id = 2;
    ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    ibv_wr_rdma_write_imm(ex, target_mr->rkey, (uintptr_t)target, htobe32(77));
    CHECK(!ibv_wr_complete(ex));
    uint64_t seen = 0;
    for (int done = 0; done < 4;) {
        open_next(cq);
        int error = 0;
        for (; !error; done++, error = ibv_next_poll(cq)) {
            CHECK(cq->status == IBV_WC_SUCCESS && !ibv_wc_read_vendor_err(cq));
            seen |= 1ull << cq->wr_id;
            unsigned flags = ibv_wc_read_wc_flags(cq);
            if (cq->wr_id == 2) {
                CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE && ibv_wc_read_qp_num(cq) == one->qp_num);
                continue;
            }
            CHECK(ibv_wc_read_qp_num(cq) == two->qp_num && !ibv_wc_read_src_qp(cq) && !ibv_wc_read_slid(cq));
            CHECK(!ibv_wc_read_sl(cq) && !ibv_wc_read_dlid_path_bits(cq));
            if (cq->wr_id == 20)
                CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 5 && !flags);
            if (cq->wr_id == 21)
                CHECK(ibv_wc_read_byte_len(cq) == 700 && flags == IBV_WC_WITH_IMM &&
                    be32toh(ibv_wc_read_imm_data(cq)) == 0x01020304);
            if (cq->wr_id == 22)
                CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV_RDMA_WITH_IMM && be32toh(ibv_wc_read_imm_data(cq)) == 77);
        }
        CHECK(error == ENOENT);
        ibv_end_poll(cq);
    }
    CHECK(seen == (1 << 2 | 1 << 20 | 1 << 21 | 1 << 22));

    /* Nothing of a batch is posted if it is aborted, if one of its requests is refused, or if it is too long. */
    receive(two, 30);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ex->wr_id = 31;
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    ibv_wr_start(ex);
    ex->wr_id = 32;
    ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target);
    ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, 1);
    CHECK(!ibv_wr_complete(ex));
    expect(cq, 32, IBV_WC_RDMA_WRITE);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_atomic_fetch_add(ex, target_mr->rkey, (uintptr_t)target, 1);
    CHECK(ibv_wr_complete(ex) == EOPNOTSUPP);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_local_inv(ex, target_mr->rkey); /* the queue pair was not made for it */
    CHECK(ibv_wr_complete(ex) == EOPNOTSUPP);
    ibv_wr_start(ex);
    ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, 1); /* of no request */
    ibv_wr_send(ex);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, source, 301); /* more than it was made for, less than the library's most */
    CHECK(ibv_wr_complete(ex) == EINVAL || !"inline data beyond what was asked for");
    ibv_wr_start(ex);
    for (int i = 0; i < 5000; i++) {
        ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target);
        ibv_wr_set_sge_list(ex, 3, three);
    }
    CHECK(ibv_wr_complete(ex) == ENOMEM);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 0);
    /* As many requests as were asked for fit at once, whatever is in the ring before. */
    for (int turn = 0; turn < 40; turn++) {
        ibv_wr_start(ex);
        for (uint64_t id = 1; id <= SENDS; id++) {
            ex->wr_id = id;
            ex->wr_flags = id == SENDS ? IBV_SEND_SIGNALED : 0;
            ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target);
            if (id % 2)
                ibv_wr_set_inline_data(ex, source, 290);
            else
                ibv_wr_set_sge_list(ex, 1 + turn % 3, three);
        }
        CHECK(!ibv_wr_complete(ex));
        expect(cq, SENDS, IBV_WC_RDMA_WRITE);
    }

    /* The first send after all this takes the receive that waits; the plain form serves this queue too. */
    ibv_wr_start(ex);
    ex->wr_id = 40;
    ex->wr_flags = 0;
    ibv_wr_send_inv(ex, 0x12345600); /* no key of the peer's: its queue pair fails */
    CHECK(!ibv_wr_complete(ex));
    wc = next(ibv_cq_ex_to_cq(cq));
    CHECK(wc.status != IBV_WC_SUCCESS);

    /* A failed queue pair flushes what is posted, also while a completion is open. */
    struct ibv_qp_attr fail = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(one, &fail, IBV_QP_STATE));
    while (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) || wc.wr_id != 51) {
        wc.wr_id = 0;
        ibv_wr_start(ex);
        ex->wr_id = 50;
        ibv_wr_send(ex);
        CHECK(!ibv_wr_complete(ex));
        open_next(cq);
        CHECK(cq->status != IBV_WC_SUCCESS);
        if (cq->wr_id == 50) {
            CHECK(cq->status == IBV_WC_WR_FLUSH_ERR);
            ibv_wr_start(ex);
            ex->wr_id = 51;
            ibv_wr_send(ex);
            CHECK(!ibv_wr_complete(ex)); /* the queue is open: no dead lock */
            CHECK(!ibv_next_poll(cq) && cq->wr_id == 51 && cq->status == IBV_WC_WR_FLUSH_ERR);
            CHECK(ibv_next_poll(cq) == ENOENT);
            wc.wr_id = 51;
        }
        ibv_end_poll(cq);
    }
    batches_of_a_failed(one, ibv_cq_ex_to_cq(cq));
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
}

/* Batches of every shape until the ring is full: those that were accepted arrive, and of the one that was refused
 * nothing does, whatever lies between the end of the ring's blocks. */
static void full(struct ibv_pd *domain, struct ibv_cq_ex *cq)
{
    send_fragments = 13;
    struct ibv_qp *one = make_qp(domain, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
    struct ibv_qp *two = make_qp(domain, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    send_fragments = 3;
    union ibv_gid gid;
    CHECK(one && two && !ibv_query_gid(context, 1, GID_INDEX, &gid));
    join(one, two, &gid);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(one);
    struct ibv_sge many[13];
    for (int i = 0; i < 13; i++)
        many[i] = (struct ibv_sge){ (uintptr_t)source + 1, i == 0, source_mr->lkey };
    source[1] = 1;
    for (int fragments = 1; fragments <= 13; fragments++)
        for (int length = 1; length <= 6; length++) {
            memset(target, 0, sizeof target);
            int batches = 0, error;
            for (;; batches++) {
                ibv_wr_start(ex);
                for (int i = 0; i < length; i++) {
                    ex->wr_id = (uint64_t)batches;
                    ex->wr_flags = i + 1 == length ? IBV_SEND_SIGNALED : 0;
                    ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target + (uintptr_t)(batches * length + i));
                    ibv_wr_set_sge_list(ex, (size_t)fragments, many);
                }
                if ((error = ibv_wr_complete(ex)))
                    break;
            }
            CHECK(error == ENOMEM && batches * length >= SENDS - length);
            for (int i = 0; i < batches; i++)
                expect(cq, (uint64_t)i, IBV_WC_RDMA_WRITE);
            ibv_wr_start(ex);
            ex->wr_id = 1;
            ex->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target + BYTES - 1);
            ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source + 1, 1);
            CHECK(!ibv_wr_complete(ex));
            expect(cq, 1, IBV_WC_RDMA_WRITE);
            for (int i = 0; i < BYTES - 1; i++)
                CHECK(target[i] == (i < batches * length));
        }
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
}

/* A bind that names no region, or one that this library does not have, is refused with all that is before it. */
static void bind(struct ibv_pd *domain, struct ibv_cq_ex *cq)
{
    struct ibv_qp *one = make_qp(domain, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW);
    struct ibv_qp *two = make_qp(domain, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    struct ibv_mw *window = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
    union ibv_gid gid;
    CHECK(one && two && window && !ibv_query_gid(context, 1, GID_INDEX, &gid));
    join(one, two, &gid);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(one);
    struct ibv_mw_bind_info wrong[2] = { { NULL, (uintptr_t)target, 8, IBV_ACCESS_REMOTE_WRITE },
        { target_mr, 0, 8, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED } };
    uint32_t key = window->rkey;
    memset(target, 0, 2);
    source[0] = 1;
    for (int i = 0; i < 2; i++) {
        ibv_wr_start(ex);
        ex->wr_id = 1;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target);
        ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, 1);
        ibv_wr_bind_mw(ex, window, ibv_inc_rkey(key), &wrong[i]);
        CHECK(ibv_wr_complete(ex) == EINVAL && window->rkey == key);
    }
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ibv_wr_rdma_write(ex, target_mr->rkey, (uintptr_t)target + 1);
    ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, 1);
    CHECK(!ibv_wr_complete(ex));
    expect(cq, 2, IBV_WC_RDMA_WRITE);
    CHECK(!target[0] && target[1]);
    CHECK(!ibv_dealloc_mw(window) && !ibv_destroy_qp(one) && !ibv_destroy_qp(two));
}

static void datagrams(struct ibv_pd *domain, struct ibv_cq_ex *cq)
{
    struct ibv_qp *qp = make_qp(domain, ibv_cq_ex_to_cq(cq), IBV_QPT_UD,
        IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
    CHECK(qp);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234 };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    receive(qp, 1);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX } };
    struct ibv_ah *ah = ibv_create_ah(domain, &to);
    CHECK(ah);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    CHECK(ibv_wr_complete(ex) == EINVAL); /* without a destination */
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, qp->qp_num, 0x1234);
    ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, BYTES + 1);
    CHECK(ibv_wr_complete(ex) == EINVAL); /* longer than a packet */
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ex->wr_flags = 0;
    ibv_wr_send_imm(ex, 99);
    ibv_wr_set_ud_addr(ex, ah, qp->qp_num, 0x1234);
    ibv_wr_set_sge(ex, source_mr->lkey, (uintptr_t)source, 60);
    CHECK(!ibv_wr_complete(ex));
    open_next(cq);
    CHECK(cq->wr_id == 1 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(cq) == 100);
    CHECK(ibv_wc_read_src_qp(cq) == qp->qp_num && ibv_wc_read_imm_data(cq) == 99);
    CHECK(ibv_wc_read_wc_flags(cq) == (IBV_WC_GRH | IBV_WC_WITH_IMM));
    ibv_end_poll(cq);
    CHECK(!memcmp(got + 40, source, 60));
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp));
}

static struct ibv_qp *make_fed(struct ibv_pd *domain, struct ibv_cq *cq, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(domain, &init);
    CHECK(qp);
    return qp;
}

/* Sends a message that a receive of the shared queue takes; opens its completion. */
static void open_message(struct ibv_qp *from, struct ibv_srq *srq, struct ibv_cq_ex *cq)
{
    struct ibv_sge data = { (uintptr_t)source, 8, source_mr->lkey }, into = { (uintptr_t)got, 8, got_mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 7, .sg_list = &into, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
    CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive) && !ibv_post_send(from, &send, &bad));
    open_next(cq);
    CHECK(cq->wr_id == 7 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RECV);
}

/* A server makes and destroys queue pairs of its clients' while it has a completion open, and asks for an event. */
static void change_while_open(struct ibv_pd *domain, struct ibv_cq_ex *cq)
{
    struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);
    struct ibv_srq_init_attr wanted = { .attr = { .max_wr = 8, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(domain, &wanted), *other = ibv_create_srq(domain, &wanted);
    union ibv_gid gid;
    CHECK(srq && other && !ibv_query_gid(context, 1, GID_INDEX, &gid));
    struct ibv_qp *one = make_fed(domain, plain, srq), *two = make_fed(domain, plain, srq);
    join(one, two, &gid);
    alarm(2 * SECONDS); /* a call that waits for itself ends the program */
    open_message(one, srq, cq);
    struct ibv_qp *third = make_fed(domain, plain, srq), *fourth = make_fed(domain, plain, other);
    CHECK(ibv_next_poll(cq) == ENOENT && !ibv_req_notify_cq(plain, 0));
    ibv_end_poll(cq);
    join(third, fourth, &gid);
    open_message(third, other, cq);
    CHECK(ibv_wc_read_qp_num(cq) == fourth->qp_num);
    CHECK(!ibv_destroy_qp(fourth) && !ibv_destroy_srq(other) && !ibv_destroy_qp(third));
    ibv_end_poll(cq);
    open_message(two, srq, cq);
    CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_srq(srq));
    ibv_end_poll(cq);
    alarm(0);
}

int main(int count, char **arguments)
{
    union ibv_gid gid;
    context = open_first(&gid);
    pd = ibv_alloc_pd(context);
    struct ibv_td_init_attr no_flags = { 0 };
    struct ibv_td *td = ibv_alloc_td(context, &no_flags);
    CHECK(pd && td);
    struct ibv_parent_domain_init_attr both = { .pd = pd, .td = td };
    if (count < 2)
        both.td = NULL;
    CHECK(arguments[0]);
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &both);
    CHECK(parent && parent->context == context);
    CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_dealloc_td(td) == (count < 2 ? 0 : EBUSY));
    struct ibv_parent_domain_init_attr none = { .td = both.td };
    CHECK(!ibv_alloc_parent_domain(context, &none) && errno == EINVAL);
    none.pd = parent;
    CHECK(!ibv_alloc_parent_domain(context, &none) && errno == EINVAL);
    none.pd = pd;
    none.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    CHECK(!ibv_alloc_parent_domain(context, &none) && errno == EOPNOTSUPP);

    /* Regions of either domain serve queue pairs of both: the keys are the device's. */
    source_mr = ibv_reg_mr(pd, source, BYTES, 0);
    target_mr = ibv_reg_mr(parent, target, BYTES,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    got_mr = ibv_reg_mr(parent, got, BYTES, IBV_ACCESS_LOCAL_WRITE);
    CHECK(source_mr && target_mr && got_mr && target_mr->pd == parent);
    struct ibv_cq_ex *cq = make_cq(IBV_WC_STANDARD_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD | IBV_CQ_INIT_ATTR_MASK_FLAGS,
        count < 2 ? 0 : IBV_CREATE_CQ_ATTR_SINGLE_THREADED, parent);
    CHECK(cq && cq->cqe >= 300 && cq->cq_context == &context && ibv_cq_ex_to_cq(cq)->context == context);
    CHECK(ibv_start_poll(cq, &(struct ibv_poll_cq_attr){ 0 }) == ENOENT);
    CHECK(ibv_start_poll(cq, &(struct ibv_poll_cq_attr){ 1 }) == EINVAL);
    refusals(ibv_cq_ex_to_cq(cq));
    connection(parent, cq);
    full(parent, cq);
    bind(parent, cq);
    datagrams(parent, cq);
    change_while_open(parent, cq);
    CHECK(ibv_dealloc_pd(parent) == EBUSY);
    CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
    CHECK(!ibv_dereg_mr(source_mr) && !ibv_dereg_mr(target_mr) && !ibv_dereg_mr(got_mr));
    CHECK(!ibv_dealloc_pd(parent) && (count < 2 || !ibv_dealloc_td(td)) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
