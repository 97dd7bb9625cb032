/* A model has as many objects as programs of many peers want: 1,100 queue pairs, each with two
 * completion queues, 17,000 memory regions, and address handles to 700 destinations, some of them
 * many times, at the same time. More completion queues than ibv_query_device says are refused with
 * ENOMEM. */
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "check.h"

enum { PAIRS = 1100, REGIONS = 17000, DESTINATIONS = 700, HANDLES = 3000, PAGE = 4096 };

static struct ibv_qp *pairs[PAIRS];
static struct ibv_cq *queues[2 * PAIRS];
static struct ibv_mr *regions[REGIONS];
static struct ibv_ah *handles[HANDLES];

static void all(struct ibv_context *context, struct ibv_pd *domain, char *memory)
{
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };

    CHECK(!ibv_query_gid(context, 1, 1, &to.grh.dgid));
    to.grh.sgid_index = 1;
    for (int i = 0; i < 2 * PAIRS; i++)
        CHECK(queues[i] = ibv_create_cq(context, 1, NULL, NULL, 0));
    for (int i = 0; i < PAIRS; i++) {
        struct ibv_qp_init_attr wanted = {
            .send_cq = queues[2 * i], .recv_cq = queues[2 * i + 1], .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC,
        };
        CHECK(pairs[i] = ibv_create_qp(domain, &wanted));
    }
    for (int i = 0; i < REGIONS; i++)
        CHECK(regions[i] = ibv_reg_mr(domain, memory + i % 64 * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE));
    for (int i = 0; i < HANDLES; i++) {
        to.grh.flow_label = i < DESTINATIONS ? i : 7;
        CHECK(handles[i] = ibv_create_ah(domain, &to));
    }

    for (int i = 0; i < HANDLES; i++)
        CHECK(!ibv_destroy_ah(handles[i]));
    for (int i = 0; i < REGIONS; i++)
        CHECK(!ibv_dereg_mr(regions[i]));
    for (int i = 0; i < PAIRS; i++)
        CHECK(!ibv_destroy_qp(pairs[i]));
    for (int i = 0; i < 2 * PAIRS; i++)
        CHECK(!ibv_destroy_cq(queues[i]));
}

/* As many completion queues as the device says; one more is refused. */
static void limit(struct ibv_context *context)
{
    struct ibv_device_attr attr;
    int count = 0;

    CHECK(!ibv_query_device(context, &attr) && attr.max_qp >= PAIRS && attr.max_mr >= REGIONS && attr.max_ah >= DESTINATIONS);
    struct ibv_cq **made = calloc(attr.max_cq + 1, sizeof *made);
    CHECK(made);
    while (count <= attr.max_cq && (made[count] = ibv_create_cq(context, 1, NULL, NULL, 0)))
        count++;
    CHECK(count == attr.max_cq && errno == ENOMEM);
    while (count > 0)
        CHECK(!ibv_destroy_cq(made[--count]));
    free(made);
}

int main(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *domain = context ? ibv_alloc_pd(context) : NULL;
    char *memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(domain && memory != MAP_FAILED);

    limit(context);
    all(context, domain, memory);

    CHECK(!ibv_dealloc_pd(domain) && !ibv_close_device(context));
    ibv_free_device_list(list);
    puts("ok");
    return 0;
}
