/* rdma-core's irdma provider on rings of our own: its post_send and poll_cq, without a kernel.
 *
 * The provider's structures are filled as its own queue pair and completion queue creation would
 * leave them, through its own initialisers. Nothing of it is copied here.
 */
#include <config.h>
#include <stdlib.h>
#include <string.h>

#include "umain.h"
#include "card.h"

static struct irdma_uvcontext context;
static struct irdma_ucq queue;
static struct irdma_uqp pair;
static struct card card;
static uint32_t doorbell[1024] __attribute__((aligned(4096)));
static uint64_t shadows[2][64] __attribute__((aligned(4096)));
static struct irdma_sq_uk_wr_trk_info tracked[RING];
static uint64_t data;
static struct ibv_sge piece = {0, 8, 0x100};
static struct ibv_send_wr chain[CHAIN];
static struct irdma_uah handle;

/* Calls into libibverbs of paths that need a kernel: a resize, and the end after an error. Not reached
 * here; a run that came to one would end. */
int ibv_cmd_dereg_mr(struct verbs_mr *region)
{
	(void)region;
	abort();
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	abort();
}

int ibv_cmd_modify_qp_ex(struct ibv_qp *queue_pair, struct ibv_qp_attr *attributes, int mask,
			 struct ibv_modify_qp_ex *command, size_t command_size,
			 struct ib_uverbs_ex_modify_qp_resp *answer, size_t answer_size)
{
	(void)queue_pair;
	(void)attributes;
	(void)mask;
	(void)command;
	(void)command_size;
	(void)answer;
	(void)answer_size;
	abort();
}

static void *ring(void)
{
	void *memory = aligned_alloc(4096, RING * 32);

	if (memory)
		memset(memory, 0, RING * 32);
	return memory;
}

struct card *peer_set_up(enum kind kind)
{
	struct irdma_qp_uk_init_info qp = {0};
	struct irdma_cq_uk_init_info cq = {0};
	void *sends = ring(), *receives = ring(), *completions = ring();

	if (!sends || !receives || !completions)
		return NULL;
	context.uk_attrs.hw_rev = IRDMA_GEN_2;
	context.uk_attrs.max_hw_wq_frags = 13;
	context.uk_attrs.max_hw_read_sges = 13;
	context.uk_attrs.max_hw_inline = 101;
	context.uk_attrs.max_hw_wq_quanta = 32768;
	context.uk_attrs.max_hw_sq_chunk = 128;
	context.uk_attrs.feature_flags = 0;

	cq.cq_base = completions;
	cq.cq_size = RING;
	cq.cq_id = 3;
	cq.shadow_area = (void *)shadows[0];
	cq.cqe_alloc_db = doorbell;
	cq.cq_ack_db = doorbell + 1;
	if (irdma_uk_cq_init(&queue.cq, &cq))
		return NULL;
	list_head_init(&queue.resize_list);
	pthread_spin_init(&queue.lock, PTHREAD_PROCESS_PRIVATE);

	qp.sq = sends;
	qp.rq = receives;
	qp.uk_attrs = &context.uk_attrs;
	qp.wqe_alloc_db = doorbell;
	qp.shadow_area = (void *)shadows[1];
	qp.sq_wrtrk_array = tracked;
	qp.rq_wrid_array = calloc(RING, sizeof(uint64_t));
	qp.qp_id = 7;
	qp.qp_caps = IRDMA_WRITE_WITH_IMM;
	qp.sq_size = RING;
	qp.rq_size = RING;
	qp.max_sq_frag_cnt = 1;
	qp.max_rq_frag_cnt = 1;
	qp.max_inline_data = 8;
	qp.type = kind == DATAGRAM ? IRDMA_QP_TYPE_ROCE_UD : IRDMA_QP_TYPE_ROCE_RC;
	if (irdma_uk_qp_init(&pair.qp, &qp))
		return NULL;
	pair.qp.back_qp = &pair;
	pair.send_cq = &queue;
	pair.recv_cq = &queue;
	pair.ibv_qp.context = &context.ibv_ctx.context;
	pair.ibv_qp.qp_num = 7;
	pair.ibv_qp.qp_type = kind == DATAGRAM ? IBV_QPT_UD : IBV_QPT_RC;
	pair.ibv_qp.state = IBV_QPS_RTS;
	pair.qp_type = pair.ibv_qp.qp_type;
	pthread_spin_init(&pair.lock, PTHREAD_PROCESS_PRIVATE);

	card.slots = completions;
	card.context = (uint64_t)(uintptr_t)&pair.qp;
	card.queue_pair = 7;
	handle.ah_id = 5;
	piece.addr = (uintptr_t)&data;
	for (unsigned i = 0; i < CHAIN; i++) {
		chain[i].wr_id = i;
		chain[i].sg_list = &piece;
		chain[i].num_sge = 1;
		chain[i].opcode = IBV_WR_RDMA_WRITE;
		chain[i].send_flags = IBV_SEND_SIGNALED;
		chain[i].wr.rdma.remote_addr = 0x80000000;
		chain[i].wr.rdma.rkey = 0x200;
		chain[i].next = i + 1 < CHAIN ? &chain[i + 1] : NULL;
	}
	for (unsigned i = 0; kind == RECEIVE && i < RECEIVES; i++)
		if (peer_receive(i))
			return NULL;
	return &card;
}

static inline __attribute__((always_inline)) int post(uint64_t id, enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_send_wr request = {0}, *refused;

	request.wr_id = id;
	request.sg_list = &piece;
	request.num_sge = 1;
	request.opcode = opcode;
	request.send_flags = IBV_SEND_SIGNALED | flags;
	request.wr.rdma.remote_addr = 0x80000000;
	request.wr.rdma.rkey = 0x200;
	return irdma_upost_send(&pair.ibv_qp, &request, &refused);
}

static int post_datagram(uint64_t id)
{
	struct ibv_send_wr request = {0}, *refused;

	request.wr_id = id;
	request.sg_list = &piece;
	request.num_sge = 1;
	request.opcode = IBV_WR_SEND;
	request.send_flags = IBV_SEND_SIGNALED;
	request.wr.ud.ah = &handle.ibv_ah;
	request.wr.ud.remote_qpn = 0x200;
	request.wr.ud.remote_qkey = 0x1234;
	return irdma_upost_send(&pair.ibv_qp, &request, &refused);
}

int peer_post(uint64_t id, enum kind kind)
{
	if (kind == WRITE)
		return post(id, IBV_WR_RDMA_WRITE, 0);
	if (kind == INLINE_WRITE)
		return post(id, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE);
	if (kind == SEND)
		return post(id, IBV_WR_SEND, 0);
	if (kind == READ)
		return post(id, IBV_WR_RDMA_READ, 0);
	return post_datagram(id);
}

int peer_post_chain(void)
{
	struct ibv_send_wr *refused;

	return irdma_upost_send(&pair.ibv_qp, chain, &refused);
}

int peer_receive(uint64_t id)
{
	struct ibv_recv_wr request = {0}, *refused;

	request.wr_id = id;
	request.sg_list = &piece;
	request.num_sge = 1;
	return irdma_upost_recv(&pair.ibv_qp, &request, &refused);
}

int peer_poll(void)
{
	struct ibv_wc batch[CHAIN];
	int count = irdma_upoll_cq(&queue.verbs_cq.cq, CHAIN, batch);

	for (int i = 0; i < count; i++)
		if (batch[i].status != IBV_WC_SUCCESS)
			return -1;
	return count;
}

const char *peer_name(void)
{
	return "rdma-core irdma";
}
