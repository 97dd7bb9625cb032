/* The own addresses that peers are reached from: sources [stay] PEER...
 *
 * Resolves each PEER, and prints the own address of its id, or the error. "stay" prints "ready" instead, and keeps
 * the device until its standard input ends. */
#include "ids.h"
#include <stdio.h>
#include <string.h>

static int stay(void)
{
    int count;
    struct ibv_context **devices = rdma_get_devices(&count);
    CHECK(devices && count == 1);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    rdma_free_devices(devices);
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 2 && !strcmp(arguments[1], "stay"))
        return stay();
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    for (int i = 1; i < count; i++) {
        struct sockaddr_storage to = { 0 };
        struct sockaddr_in *four = (struct sockaddr_in *)&to;
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&to;
        to.ss_family = strchr(arguments[i], ':') ? AF_INET6 : AF_INET;
        void *place = to.ss_family == AF_INET ? (void *)&four->sin_addr : &six->sin6_addr;
        CHECK(inet_pton(to.ss_family, arguments[i], place) == 1);
        struct rdma_cm_id *id;
        CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
        CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, EVENT_MS));
        struct rdma_cm_event *event;
        CHECK(!rdma_get_cm_event(channel, &event));
        char shown[INET6_ADDRSTRLEN] = "";
        struct sockaddr *own = rdma_get_local_addr(id);
        const void *address = own->sa_family == AF_INET ? (void *)&((struct sockaddr_in *)own)->sin_addr
                                                         : &((struct sockaddr_in6 *)own)->sin6_addr;
        if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
            CHECK(inet_ntop(own->sa_family, address, shown, sizeof shown));
        else
            snprintf(shown, sizeof shown, "error %d", event->status);
        printf("%s from %s\n", arguments[i], shown);
        CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
    }
    rdma_destroy_event_channel(channel);
    return 0;
}
