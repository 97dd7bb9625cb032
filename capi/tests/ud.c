/* Random datagrams between queue pairs of one device: of any length up to the MTU, by address handles that come and go,
 * over IPv4 and IPv6, to queue pairs and to multicast groups, with wrong queue keys, without receives, with receives
 * that are too short, with shared receive queues, and with queue pairs that fail, are reset or destroyed. A datagram
 * that has to arrive arrives once, whole, with its source, in the order of its sender; no other one does.
 * Arguments: a seed, steps, threads. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>

enum { PAIRS = 5, MTU = 4096, ROUTE = 40, ROUTE_HOPS = 64, DEPTH = 24, RECEIVES = 32, SHARED = 64, HANDLES = 10, GROUPS = 3, QUEUES = 2,
    ASKED_INLINE = 150, PLACES = PAIRS * RECEIVES + SHARED, PENDING = 128, ALL = 0xFFFFFF,
    /* a handle that is never one of a group */
    TO_PORT = 0 };

struct datagram {
    uint32_t number, length;
    int must, has_number, is_group, kind;
};

struct list {
    struct datagram all[PENDING];
    unsigned first, count;
};

struct handle {
    struct ibv_ah *ah;
    int group; /* -1: this port */
    int kind;  /* index of the source address: 0 IPv6, 1 IPv4 */
    unsigned users;
};

struct pair {
    struct thread *thread;
    int index;
    struct ibv_qp *qp;
    struct ibv_qp_ex *ex;
    struct ibv_srq *srq;
    uint32_t key;
    int queue, is_in_error, is_member[GROUPS];
    /* requests that may complete, oldest first: the handle that each uses */
    struct { uint64_t number; int handle, is_signalled; } sent[DEPTH];
    unsigned sent_first, sent_count, unsignalled;
    /* receives of its own: numbers, oldest first */
    uint64_t posted[RECEIVES];
    unsigned posted_first, posted_count, shorts;
    /* what it may receive, by sender and group: those to a group may overtake others */
    struct list from[PAIRS * (1 + GROUPS)];
    unsigned coming;
};

struct thread {
    unsigned seed, steps, random, step;
    struct ibv_context *context;
    union ibv_gid gids[2];
    struct ibv_pd *pd;
    struct ibv_cq *queues[QUEUES];
    struct ibv_srq *srq;
    unsigned shared_posted, shared_shorts;
    char is_short[PLACES];
    struct ibv_mr *mr;
    struct pair pairs[PAIRS];
    struct handle handles[HANDLES];
    int places[PLACES], places_count;
    uint32_t next;
    unsigned long sent, received, silent;
    unsigned char *memory, *out;
};

static const char *const groups[GROUPS] = { "::ffff:239.1.2.3", "ff0e::17", "::ffff:239.129.2.3" };
static const int group_kinds[GROUPS] = { 1, 0, 1 };

#include "random.h"

#define WANT(thread, what) WANT_AT(thread, -1, what)

static unsigned char *place(struct thread *thread, unsigned at)
{
    return thread->memory + (size_t)at * (ROUTE + MTU);
}

static union ibv_gid group_of(int group)
{
    union ibv_gid gid;
    CHECK(inet_pton(AF_INET6, groups[group], gid.raw) == 1);
    return gid;
}

/* The address handles. */

static void make_handle(struct thread *thread, struct handle *handle)
{
    handle->group = draw(thread, 3) ? -1 : (int)draw(thread, GROUPS);
    if (handle == &thread->handles[TO_PORT])
        handle->group = -1;
    handle->kind = handle->group < 0 ? (int)draw(thread, 2) : group_kinds[handle->group];
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = handle->kind, .hop_limit = 9,
        .dgid = handle->group < 0 ? thread->gids[handle->kind] : group_of(handle->group) } };
    WANT(thread, handle->ah = ibv_create_ah(thread->pd, &to));
}

static void renew_handle(struct thread *thread, struct handle *handle)
{
    if (handle->users)
        return;
    WANT(thread, !ibv_destroy_ah(handle->ah));
    make_handle(thread, handle);
}

/* Receives. */

static unsigned posted_for(struct pair *pair)
{
    return pair->srq ? pair->thread->shared_posted : pair->posted_count;
}

/* What comes to the pair, or to all pairs with its shared receive queue. */
static unsigned coming_for(struct pair *pair)
{
    unsigned all = pair->coming;
    for (int i = 0; pair->srq && i < PAIRS; i++)
        if (pair->thread->pairs[i].srq && &pair->thread->pairs[i] != pair)
            all += pair->thread->pairs[i].coming;
    return all;
}

/* A datagram to the pair arrives. One to a pair with a shared receive queue uses any receive of it. */
static int is_certain(struct pair *pair, uint32_t length)
{
    unsigned shorts = pair->srq ? pair->thread->shared_shorts : pair->shorts;
    return posted_for(pair) > coming_for(pair) && (!shorts || !length);
}

static struct list *list_of(struct pair *pair, int sender, int kind)
{
    return &pair->from[sender * (1 + GROUPS) + kind];
}

static struct datagram *at(struct list *list, unsigned index)
{
    return &list->all[(list->first + index) % PENDING];
}

/* What is under way to a pair may be lost, if it is longer than this. */
static void may_lose(struct pair *pair, int longest)
{
    for (int s = 0; s < PAIRS * (1 + GROUPS); s++)
        for (unsigned i = 0; i < pair->from[s].count; i++) {
            struct datagram *one = at(&pair->from[s], i);
            one->must &= (int)one->length <= longest;
        }
}

static int has_must(struct list *list)
{
    int found = 0;
    for (unsigned i = 0; i < list->count; i++)
        found |= at(list, i)->must;
    return found;
}

/* Datagrams of a sender that have not arrived are lost; returns if one of them must not be. */
static int lose(struct pair *pair, struct list *list)
{
    int lost = 0;
    for (; list->count; list->count--, pair->coming--)
        lost |= at(list, list->count - 1)->must;
    return lost;
}

static void post_receive(struct pair *pair, uint32_t bytes)
{
    struct thread *thread = pair->thread;
    if (pair->srq ? thread->shared_posted >= SHARED : pair->posted_count >= RECEIVES)
        return;
    int at = thread->places[--thread->places_count], cut = draw(thread, 2) ? ROUTE : 1 + draw(thread, ROUTE + bytes - 1);
    struct ibv_sge parts[2] = { { (uintptr_t)place(thread, at), cut, thread->mr->lkey },
        { (uintptr_t)place(thread, at) + cut, ROUTE + bytes - cut, thread->mr->lkey } };
    struct ibv_recv_wr wr = { .wr_id = at, .sg_list = parts, .num_sge = 2 }, *bad;
    memset(place(thread, at), 0xEE, ROUTE + MTU);
    thread->is_short[at] = bytes < MTU;
    if (pair->srq) {
        thread->shared_posted++;
        thread->shared_shorts += bytes < MTU;
        for (int p = 0; p < PAIRS && bytes < MTU; p++)
            if (thread->pairs[p].srq)
                may_lose(&thread->pairs[p], 0);
        WANT(thread, !ibv_post_srq_recv(pair->srq, &wr, &bad));
        return;
    }
    pair->posted[(pair->posted_first + pair->posted_count++) % RECEIVES] = at;
    if (bytes < MTU) {
        /* Longer datagrams are dropped from when it is the oldest one. */
        pair->shorts++;
        may_lose(pair, bytes);
    }
    WANT(thread, !ibv_post_recv(pair->qp, &wr, &bad));
}

static void check_route(struct thread *thread, struct ibv_wc *wc, const unsigned char *at, struct datagram *one)
{
    struct ibv_ah_attr back;
    union ibv_gid to = thread->gids[one->kind];
    if (one->is_group)
        to = group_of(one->is_group - 1);
    if (one->kind) {
        WANT(thread, at[20] == 0x45 && !memcmp(at + 32, thread->gids[1].raw + 12, 4) && !memcmp(at + 36, to.raw + 12, 4));
        WANT(thread, at[28] == (one->is_group ? 9 : ROUTE_HOPS));
    } else {
        WANT(thread, at[0] >> 4 == 6 && !memcmp(at + 8, thread->gids[0].raw, 16) && !memcmp(at + 24, to.raw, 16));
        WANT(thread, at[7] == (one->is_group ? 9 : ROUTE_HOPS));
    }
    WANT(thread, !ibv_init_ah_from_wc(thread->context, 1, wc, (struct ibv_grh *)at, &back));
    WANT(thread, back.grh.sgid_index == one->kind && !memcmp(&back.grh.dgid, &thread->gids[one->kind], 16));
    WANT(thread, back.is_global && back.port_num == 1 && back.grh.hop_limit == (one->is_group ? 9 : ROUTE_HOPS));
    errno = 0;
    WANT(thread, ibv_init_ah_from_wc(thread->context, 2, wc, (struct ibv_grh *)at, &back) == -1 && errno == EINVAL);
    /* Without a global route no bytes are read. */
    struct ibv_wc bare = *wc;
    bare.wc_flags &= ~IBV_WC_GRH;
    WANT(thread, !ibv_init_ah_from_wc(thread->context, 1, &bare, NULL, &back) && !back.is_global && back.port_num == 1);
}

static void received(struct pair *pair, struct ibv_wc *wc)
{
    struct thread *thread = pair->thread;
    unsigned char *bytes = place(thread, wc->wr_id);
    thread->places[thread->places_count++] = wc->wr_id;
    if (pair->srq) {
        thread->shared_posted--;
        thread->shared_shorts -= thread->is_short[wc->wr_id];
    } else {
        uint64_t oldest = pair->posted[pair->posted_first];
        WANT(thread, pair->posted_count && oldest == wc->wr_id);
        pair->posted_first = (pair->posted_first + 1) % RECEIVES;
        pair->posted_count--;
        pair->shorts -= thread->is_short[oldest];
    }
    if (wc->status == IBV_WC_WR_FLUSH_ERR && pair->is_in_error && !pair->srq)
        return;
    if (wc->status)
        fprintf(stderr, "pair %d%s: %s\n", pair->index, pair->srq ? " (shared)" : "", ibv_wc_status_str(wc->status));
    WANT(thread, wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV && wc->byte_len >= ROUTE);
    struct pair *sender = NULL;
    for (int s = 0; s < PAIRS; s++)
        if (thread->pairs[s].qp->qp_num == wc->src_qp)
            sender = &thread->pairs[s];
    WANT(thread, sender);
    uint32_t length = wc->byte_len - ROUTE, number = 0;
    if (wc->wc_flags & IBV_WC_WITH_IMM)
        number = ntohl(wc->imm_data);
    else
        for (int i = 0; i < 4; i++)
            number |= (uint32_t)bytes[ROUTE + i] << 8 * i;
    struct list *list = NULL;
    for (int g = 0; g <= GROUPS; g++)
        for (unsigned i = 0; i < list_of(pair, sender->index, g)->count; i++)
            if (at(list_of(pair, sender->index, g), i)->number == number)
                list = list_of(pair, sender->index, g);
    if (!list)
        fprintf(stderr, "pair %d from %d: number %u of %u bytes\n", pair->index, sender->index, number, length);
    WANT(thread, list);
    struct datagram one;
    do {
        one = *at(list, 0);
        list->first = (list->first + 1) % PENDING;
        list->count--;
        pair->coming--;
        if (one.number != number && one.must)
            fprintf(stderr, "pair %d%s from %d: number %u instead of %u of %u bytes, group %d, %u posted, %u coming\n",
                pair->index, pair->srq ? " (shared)" : "", sender->index, number, one.number, one.length, one.is_group,
                posted_for(pair), pair->coming);
        WANT(thread, one.number == number || !one.must);
    } while (one.number != number);
    unsigned char *wanted = thread->out;
    fill_numbered(wanted, number, length);
    WANT(thread, length == one.length && !memcmp(bytes + ROUTE, wanted, length));
    /* A receive of a shared queue may have been used before, by a queue pair that was reset then. */
    WANT(thread, pair->srq || length >= MTU || bytes[ROUTE + length] == 0xEE);
    WANT(thread, wc->wc_flags == (IBV_WC_GRH | (one.has_number ? IBV_WC_WITH_IMM : 0u)));
    check_route(thread, wc, bytes, &one);
    thread->received++;
}

/* Requests. */

static void completed(struct pair *pair, struct ibv_wc *wc)
{
    struct thread *thread = pair->thread;
    WANT(thread, wc->status == IBV_WC_SUCCESS || (pair->is_in_error && wc->status == IBV_WC_WR_FLUSH_ERR));
    for (int is_last = 0; !is_last;) {
        WANT(thread, pair->sent_count);
        is_last = pair->sent[pair->sent_first].number == (wc->wr_id & ~(1ULL << 63));
        WANT(thread, is_last || !pair->sent[pair->sent_first].is_signalled);
        thread->handles[pair->sent[pair->sent_first].handle].users--;
        pair->sent_first = (pair->sent_first + 1) % DEPTH;
        pair->sent_count--;
    }
}

static int take(struct thread *thread)
{
    int all = 0;
    for (int q = 0; q < QUEUES; q++) {
        struct ibv_wc done[6];
        int count = ibv_poll_cq(thread->queues[q], 1 + draw(thread, 6), done);
        WANT(thread, count >= 0);
        for (int i = 0; i < count; i++) {
            struct pair *pair = NULL;
            for (int p = 0; p < PAIRS; p++)
                if (thread->pairs[p].qp->qp_num == done[i].qp_num)
                    pair = &thread->pairs[p];
            WANT(thread, pair && pair->queue == q);
            if (done[i].wr_id >> 63)
                completed(pair, &done[i]);
            else
                received(pair, &done[i]);
        }
        all += count;
    }
    return all;
}

static int is_receiver(struct pair *pair, struct handle *handle, struct pair *to, uint32_t key)
{
    if (pair->key != key)
        return 0;
    return handle->group < 0 ? pair == to : pair->is_member[handle->group];
}

/* Posts a datagram, by one of the two interfaces. False if there is no room. */
static int post(struct pair *pair, int with, struct pair *to, uint32_t length, int is_wrong)
{
    struct thread *thread = pair->thread;
    struct handle *handle = &thread->handles[with];
    struct datagram one = { .number = thread->next, .length = length, .has_number = length < 4 || draw(thread, 2),
        .is_group = handle->group + 1, .kind = handle->kind };
    uint32_t key = is_wrong ? to->key ^ 0x100 : to->key, number = handle->group < 0 ? to->qp->qp_num : ALL;
    int is_inline = length <= ASKED_INLINE && draw(thread, 2), is_signalled = draw(thread, 2) || pair->unsignalled > 5;
    if (pair->sent_count >= DEPTH || pair->is_in_error)
        return 0;
    for (int p = 0; p < PAIRS; p++)
        if (list_of(&thread->pairs[p], pair->index, handle->group + 1)->count >= PENDING)
            return 0;
    unsigned slot = (pair->sent_first + pair->sent_count++) % DEPTH;
    unsigned char *data = thread->out + (size_t)(1 + pair->index * DEPTH + slot) * (MTU + 8);
    thread->next++;
    pair->sent[slot].number = one.number;
    pair->sent[slot].handle = with;
    pair->sent[slot].is_signalled = is_signalled;
    pair->unsignalled = is_signalled ? 0 : pair->unsignalled + 1;
    handle->users++;
    fill_numbered(data, one.number, length);
    for (int p = 0; p < PAIRS; p++) {
        struct pair *receiver = &thread->pairs[p];
        if (!is_receiver(receiver, handle, to, key) || receiver->is_in_error)
            continue;
        one.must = is_certain(receiver, length);
        /* Without a receive for each, a later one may take that of an earlier one. */
        for (int q = 0; q < PAIRS && !one.must; q++)
            if (&thread->pairs[q] == receiver || (receiver->srq && thread->pairs[q].srq))
                may_lose(&thread->pairs[q], -1);
        struct list *list = list_of(receiver, pair->index, handle->group + 1);
        *at(list, list->count++) = one;
        receiver->coming++;
    }
    uint32_t cut = length ? draw(thread, length + 1) : 0;
    struct ibv_sge parts[2] = { { (uintptr_t)data, cut, thread->mr->lkey },
        { (uintptr_t)data + cut, length - cut, thread->mr->lkey } };
    unsigned flags = is_signalled ? IBV_SEND_SIGNALED : 0;
    thread->sent++;
    if (draw(thread, 2)) {
        struct ibv_send_wr wr = { .wr_id = one.number | 1ULL << 63, .sg_list = parts, .num_sge = length ? 2 : 0,
            .opcode = one.has_number ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htonl(one.number),
            .send_flags = flags | (is_inline ? IBV_SEND_INLINE : 0), .wr.ud = { handle->ah, number, key } }, *bad;
        WANT(thread, !ibv_post_send(pair->qp, &wr, &bad));
    } else {
        struct ibv_data_buf pieces[2] = { { data, cut }, { data + cut, length - cut } };
        ibv_wr_start(pair->ex);
        pair->ex->wr_id = one.number | 1ULL << 63;
        pair->ex->wr_flags = flags;
        if (one.has_number)
            ibv_wr_send_imm(pair->ex, htonl(one.number));
        else
            ibv_wr_send(pair->ex);
        ibv_wr_set_ud_addr(pair->ex, handle->ah, number, key);
        if (is_inline)
            ibv_wr_set_inline_data_list(pair->ex, 2, pieces);
        else
            ibv_wr_set_sge_list(pair->ex, length ? 2 : 0, parts);
        WANT(thread, !ibv_wr_complete(pair->ex));
    }
    if (is_inline)
        memset(data, 0xDD, length);
    return 1;
}

/* Datagrams that are refused when they are posted. */
static void post_wrong(struct pair *pair, struct pair *to)
{
    struct thread *thread = pair->thread;
    struct ibv_sge part = { (uintptr_t)thread->memory, MTU + 1 + draw(thread, 5000), thread->mr->lkey };
    struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, .wr.ud = { thread->handles[0].ah, to->qp->qp_num, to->key } }, *bad = NULL;
    if (pair->is_in_error)
        return;
    if (draw(thread, 2)) {
        part.length = 8;
        if (draw(thread, 2))
            wr.wr.ud.ah = NULL;
        else
            wr.opcode = IBV_WR_RDMA_WRITE;
    }
    WANT(thread, ibv_post_send(pair->qp, &wr, &bad) == EINVAL && bad == &wr);
}

/* A datagram without data goes through, behind all that its sender has sent. */
static void pass(struct pair *pair, struct pair *to)
{
    struct thread *thread = pair->thread;
    time_t end = time(NULL) + SECONDS;
    while (!is_certain(to, 0) && posted_for(to) < (unsigned)(to->srq ? SHARED : RECEIVES)) {
        post_receive(to, MTU);
        take(thread);
    }
    while (to->srq && coming_for(to) >= SHARED && time(NULL) < end) {
        may_lose(to, -1);
        if (!take(thread))
            break;
    }
    pair->unsignalled = DEPTH;
    while (!post(pair, TO_PORT, to, 0, 0)) {
        take(thread);
        WANT(thread, time(NULL) < end);
    }
    struct list *list = list_of(to, pair->index, 0);
    at(list, list->count - 1)->must = 1;
    while (list->count || pair->sent_count) {
        take(thread);
        if (to->srq)
            post_receive(to, MTU);
        if (time(NULL) >= end)
            fprintf(stderr, "from %d to %d: %u coming, %u posted, %u shorts%s, %u sent\n", pair->index, to->index,
                list->count, posted_for(to), to->shorts, to->srq ? " (shared)" : "", pair->sent_count);
        WANT(thread, time(NULL) < end);
    }
}

/* Nothing is under way any more. */
static void settle(struct thread *thread)
{
    for (int s = 0; s < PAIRS; s++)
        for (int r = 0; r < PAIRS; r++)
            pass(&thread->pairs[s], &thread->pairs[r]);
    /* Those to groups may be later. */
    time_t end = time(NULL) + 3;
    for (int r = 0; r < PAIRS; r++)
        for (int s = 0; s < PAIRS * (1 + GROUPS); s++) {
            struct list *list = &thread->pairs[r].from[s];
            while (list->count && time(NULL) < end && has_must(list))
                take(thread);
            WANT(thread, !lose(&thread->pairs[r], list));
        }
}

/* Queue pairs. */

static void start(struct pair *pair)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = pair->key };
    struct thread *thread = pair->thread;
    WANT(thread, !ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    WANT(thread, !ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    WANT(thread, !ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void make_pair(struct pair *pair)
{
    struct thread *thread = pair->thread;
    pair->queue = draw(thread, QUEUES);
    pair->srq = draw(thread, 2) ? thread->srq : NULL;
    pair->key = 0x1230 + thread->seed % 8 * 2 + draw(thread, 2); /* groups are of all threads */
    memset(pair->is_member, 0, sizeof pair->is_member);
    struct ibv_qp_init_attr_ex init = { .send_cq = thread->queues[pair->queue], .recv_cq = thread->queues[pair->queue],
        .srq = pair->srq, .cap = { DEPTH, RECEIVES, 2, 2, ASKED_INLINE }, .qp_type = IBV_QPT_UD, .pd = thread->pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM };
    WANT(thread, pair->qp = ibv_create_qp_ex(thread->context, &init));
    WANT(thread, pair->ex = ibv_qp_to_qp_ex(pair->qp));
    start(pair);
}

static void forget_sent(struct pair *pair)
{
    for (; pair->sent_count; pair->sent_count--, pair->sent_first = (pair->sent_first + 1) % DEPTH)
        pair->thread->handles[pair->sent[pair->sent_first].handle].users--;
    pair->is_in_error = 0;
}

/* A queue pair that is a member is not destroyed. */
static void leave_groups(struct pair *pair)
{
    for (int g = 0; g < GROUPS; g++) {
        union ibv_gid gid = group_of(g);
        if (pair->is_member[g])
            WANT(pair->thread, !ibv_detach_mcast(pair->qp, &gid, 0));
    }
}

/* A queue pair fails with receives posted; then it begins again, or another one takes its place. */
static void break_pair(struct pair *pair)
{
    struct thread *thread = pair->thread;
    struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
    time_t end = time(NULL) + SECONDS;
    settle(thread);
    for (unsigned i = draw(thread, 4); i; i--)
        post_receive(pair, MTU);
    for (unsigned i = draw(thread, 5); i; i--)
        post(pair, draw(thread, HANDLES), &thread->pairs[draw(thread, PAIRS)], draw(thread, 200), 0);
    /* What it has sent may have left it or not, what comes to it may come too late. */
    for (int p = 0; p < PAIRS; p++)
        may_lose(&thread->pairs[p], -1);
    pair->is_in_error = 1;
    WANT(thread, !ibv_modify_qp(pair->qp, &error, IBV_QP_STATE));
    while (pair->posted_count || (pair->sent_count &&
        pair->sent[(pair->sent_first + pair->sent_count - 1) % DEPTH].is_signalled)) {
        take(thread);
        WANT(thread, time(NULL) < end);
    }
    if (draw(thread, 2)) {
        WANT(thread, !ibv_modify_qp(pair->qp, &reset, IBV_QP_STATE));
        forget_sent(pair);
        start(pair);
        return;
    }
    /* What it sent last has arrived, so that its number may belong to another one. */
    for (int p = 0; p < PAIRS; p++)
        for (int q = 0; q < PAIRS; q++)
            if (p != pair->index && q != pair->index)
                pass(&thread->pairs[p], &thread->pairs[q]);
    leave_groups(pair);
    WANT(thread, !ibv_destroy_qp(pair->qp));
    forget_sent(pair);
    for (int p = 0; p < PAIRS; p++)
        for (int g = 0; g <= GROUPS; g++) {
            lose(&thread->pairs[p], list_of(&thread->pairs[p], pair->index, g));
            lose(pair, list_of(pair, p, g));
        }
    make_pair(pair);
}

static void change_group(struct pair *pair)
{
    struct thread *thread = pair->thread;
    int group = draw(thread, GROUPS), error = 0;
    union ibv_gid gid = group_of(group);
    settle(thread);
    if (pair->is_member[group])
        WANT(thread, !ibv_detach_mcast(pair->qp, &gid, 0));
    else
        error = ibv_attach_mcast(pair->qp, &gid, 0);
    /* A group takes eight queue pairs, of all threads. */
    WANT(thread, !error || error == ENOMEM);
    pair->is_member[group] ^= !error;
}

static void step(struct thread *thread)
{
    struct pair *pair = &thread->pairs[draw(thread, PAIRS)], *to = &thread->pairs[draw(thread, PAIRS)];
    unsigned what = draw(thread, 400);
    uint32_t length = draw(thread, 3) ? draw(thread, 200) : draw(thread, 8) ? draw(thread, MTU + 1) : MTU;
    if (what < 150)
        post(pair, draw(thread, HANDLES), to, length, draw(thread, 12) == 0);
    else if (what < 160)
        post_wrong(pair, to);
    else if (what < 250)
        for (unsigned i = 1 + draw(thread, 4); i; i--)
            post_receive(pair, MTU);
    else if (what < 254)
        post_receive(pair, draw(thread, 300));
    else if (what < 360)
        take(thread);
    else if (what < 385)
        renew_handle(thread, &thread->handles[draw(thread, HANDLES)]);
    else if (what < 388)
        settle(thread);
    else if (what < 395)
        change_group(pair);
    else
        break_pair(pair);
}

static int has_done_enough(const struct thread *thread)
{
    return thread->sent > thread->steps / 4 && thread->received > thread->steps / 4;
}

static void *run(void *given)
{
    struct thread *thread = given;
    size_t bytes = (size_t)PLACES * (ROUTE + MTU), out = (size_t)(PAIRS * DEPTH + 1) * (MTU + 8);
    CHECK(thread->pd = ibv_alloc_pd(thread->context));
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_query_gid(thread->context, 1, i, &thread->gids[i]));
    for (int i = 0; i < QUEUES; i++)
        CHECK(thread->queues[i] = ibv_create_cq(thread->context, 2000, NULL, NULL, 0));
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = SHARED, .max_sge = 2 } };
    CHECK(thread->srq = ibv_create_srq(thread->pd, &shared));
    CHECK(thread->memory = calloc(1, bytes + out));
    thread->out = thread->memory + bytes;
    CHECK(thread->mr = ibv_reg_mr(thread->pd, thread->memory, bytes + out, IBV_ACCESS_LOCAL_WRITE));
    for (int i = 0; i < PLACES; i++)
        thread->places[thread->places_count++] = i;
    for (int h = 0; h < HANDLES; h++)
        make_handle(thread, &thread->handles[h]);
    for (int p = 0; p < PAIRS; p++) {
        thread->pairs[p].thread = thread;
        thread->pairs[p].index = p;
        make_pair(&thread->pairs[p]);
    }
    for (thread->step = 0; has_steps(thread, has_done_enough(thread)); thread->step++)
        step(thread);
    settle(thread);
    for (int p = 0; p < PAIRS; p++) {
        leave_groups(&thread->pairs[p]);
        CHECK(!ibv_destroy_qp(thread->pairs[p].qp));
    }
    for (int h = 0; h < HANDLES; h++)
        CHECK(!ibv_destroy_ah(thread->handles[h].ah));
    for (int i = 0; i < QUEUES; i++)
        CHECK(!ibv_destroy_cq(thread->queues[i]));
    CHECK(!ibv_destroy_srq(thread->srq) && !ibv_dereg_mr(thread->mr) && !ibv_dealloc_pd(thread->pd));
    free(thread->memory);
    return NULL;
}

/* A datagram that is longer than the oldest receive is dropped, and the receive stays for the next one: whatever other
 * stations send, no queue pair stops. */
static void drop_longer(struct ibv_context *context, union ibv_gid *gid, int shares)
{
    static struct thread thread;
    static unsigned char memory[2][64 + ROUTE];
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 64, .max_sge = 2 } };
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    memset(&thread, 0, sizeof thread);
    CHECK(thread.pd = ibv_alloc_pd(context));
    thread.context = context;
    CHECK(thread.queues[0] = thread.queues[1] = ibv_create_cq(context, 64, NULL, NULL, 0));
    CHECK(thread.srq = ibv_create_srq(thread.pd, &shared));
    struct ibv_mr *mr = ibv_reg_mr(thread.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah_attr own = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = GID_INDEX, .dgid = *gid, .hop_limit = 9 } };
    struct ibv_ah *ah = ibv_create_ah(thread.pd, &own);
    CHECK(mr && ah);
    for (int p = 0; p < 2; p++) {
        thread.pairs[p] = (struct pair) { .thread = &thread, .index = p };
        do {
            if (thread.pairs[p].qp)
                CHECK(!ibv_destroy_qp(thread.pairs[p].qp));
            make_pair(&thread.pairs[p]);
        } while (!thread.pairs[p].srq == (shares > p));
    }
    struct ibv_sge into = { (uintptr_t)memory[1], ROUTE + 8, mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 5, .sg_list = &into, .num_sge = 1 }, *bad_receive;
    for (int i = 0; i < 1 + 63 * (shares == 1); i++)
        CHECK(shares ? !ibv_post_srq_recv(thread.srq, &receive, &bad_receive) :
            !ibv_post_recv(thread.pairs[0].qp, &receive, &bad_receive));
    for (int length = 20; length >= 8; length -= 12) {
        struct ibv_sge from = { (uintptr_t)memory[0], length, mr->lkey };
        struct ibv_send_wr send = { .wr_id = length, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED, .wr.ud = { ah, thread.pairs[0].qp->qp_num, thread.pairs[0].key } }, *bad;
        CHECK(!ibv_post_send(thread.pairs[1].qp, &send, &bad));
        struct ibv_wc wc = next(thread.queues[0]);
        CHECK(wc.status == IBV_WC_SUCCESS && (int)wc.wr_id == length);
    }
    struct ibv_wc wc = next(thread.queues[0]);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.byte_len == ROUTE + 8);
    CHECK(!ibv_query_qp(thread.pairs[0].qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
    for (int p = 0; p < 2; p++)
        CHECK(!ibv_destroy_qp(thread.pairs[p].qp));
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_srq(thread.srq) && !ibv_destroy_cq(thread.queues[0]));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(thread.pd));
}

int main(int count, char **words)
{
    union ibv_gid gid;
    CHECK(count == 4);
    struct ibv_context *context = open_first(&gid);
    for (int shares = 0; shares <= 2; shares++)
        drop_longer(context, &gid, shares);
    for (int i = 0; i < MAX_THREADS; i++)
        threads[i].context = context;
    int number = run_threads(words + 1, run);
    for (int i = 0; i < number; i++)
        CHECK(has_done_enough(&threads[i]));
    CHECK(!ibv_close_device(context));
    puts("ok");
    return 0;
}
