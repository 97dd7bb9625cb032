/* The address that a DHCP server grants: leased [ADDRESS]
 *
 * The GID table has it once the device is open, and so has the kernel's file of that index; an id is bound to it.
 * Without an ADDRESS the device is opened only. Says "ok" and ends with 0. */
#include "ids.h"
#include <stdio.h>
#include <string.h>

/* The index of an IPv4 address in the GID table, or -1. */
static int index_of(struct ibv_context *context, struct in_addr address)
{
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port));
    for (int index = 0; index < port.gid_tbl_len; index++) {
        union ibv_gid gid;
        CHECK(!ibv_query_gid(context, 1, index, &gid));
        if (gid.raw[10] == 0xFF && gid.raw[11] == 0xFF && !memcmp(gid.raw + 12, &address, 4))
            return index;
    }
    return -1;
}

static void check_file(int index, struct in_addr address)
{
    const unsigned char *bytes = (const unsigned char *)&address;
    char path[100], expected[48], found[48] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/ringside0/ports/1/gids/%d", index);
    snprintf(expected, sizeof expected, "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n", bytes[0], bytes[1], bytes[2],
        bytes[3]);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(found, sizeof found, file) && !fclose(file));
    CHECK(!strcmp(found, expected));
}

int main(int count, char **arguments)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    if (count > 1) {
        struct sockaddr_in granted = at(arguments[1], 0);
        int index = index_of(context, granted.sin_addr);
        CHECK(index >= 0);
        check_file(index, granted.sin_addr);
        struct rdma_cm_id *id;
        CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
        CHECK(!rdma_bind_addr(id, (struct sockaddr *)&granted) && id->verbs);
        CHECK(!rdma_destroy_id(id));
    }
    CHECK(!ibv_close_device(context));
    ibv_free_device_list(list);
    puts("ok");
    return 0;
}
