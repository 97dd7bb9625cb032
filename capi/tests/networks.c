/* A device with addresses of two networks, 10.1.0.1/24 and 10.2.0.1/24: an id reaches a peer from the address of the
 * peer's network. Says "ok" and ends with 0. */
#include "connect.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

static struct sockaddr_in at(const char *address)
{
    struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(7471) };
    CHECK(inet_pton(AF_INET, address, &made.sin_addr) == 1);
    return made;
}

int main(void)
{
    for (int network = 1; network <= 2; network++) {
        struct rdma_cm_id *id;
        struct sockaddr_in own = at(network == 1 ? "10.1.0.1" : "10.2.0.1");
        CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
        CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, 2000));
        CHECK(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr == own.sin_addr.s_addr);
        CHECK(!rdma_destroy_id(id));
    }
    puts("ok");
}
