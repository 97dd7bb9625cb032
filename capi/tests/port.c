/* Says "ready", and then "down" and "up" as the test changes the link of its port. `ibv_query_port` and the file of the
 * kernel agree with each event. Ends with 0 after the second "up". */
#include "connect.h"
#include <poll.h>

/* The file of the kernel says so too. */
static int number_of_state(void)
{
    FILE *file = fopen("/sys/class/infiniband/ringside0/ports/1/state", "r");
    CHECK(file);
    int first = fgetc(file);
    fclose(file);
    return first - '0';
}

static void expect(struct ibv_context *context, enum ibv_event_type wanted, enum ibv_port_state state, const char *word)
{
    struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    struct ibv_port_attr port;
    CHECK(poll(&ready, 1, SECONDS * 1000) == 1);
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == wanted && event.element.port_num == 1);
    ibv_ack_async_event(&event);
    CHECK(!ibv_query_port(context, 1, &port) && port.state == state);
    CHECK(port.phys_state == (state == IBV_PORT_ACTIVE ? 5 : 3));
    CHECK(number_of_state() == (int)state);
    puts(word);
    fflush(stdout);
}

int main(void)
{
    union ibv_gid gid;
    struct ibv_context *context = open_first(&gid);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        expect(context, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN, "down");
        expect(context, IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE, "up");
    }
    CHECK(!ibv_close_device(context));
    return 0;
}
