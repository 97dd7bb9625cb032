/* Two programs that are connected, of which one ends without a word.
 *
 *   leave server ADDRESS   listens, and waits until the connection is ended by the peer
 *   leave client ADDRESS   connects, has a child of a fork end, and then ends itself, without destroying anything
 *   leave killed ADDRESS   connects, waits a little, and kills itself
 *   leave both ADDRESS     connects, waits a little, and kills its parent and itself
 *   leave idle ADDRESS     opens the device, and ends
 *
 * The server must hear of the end of the client, and must not take the child's for it.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 7411
/* The client lives this long after its child. */
#define ALONE_MS 400
#define LIMIT_MS 20000

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for an event, which must be the wanted one, and returns its id. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	check(poll(&ready, 1, LIMIT_MS) == 1, rdma_event_str(wanted));
	check(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(wanted));
		exit(1);
	}
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static void make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wanted = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	check(rdma_create_qp(id, NULL, &wanted) == 0, "rdma_create_qp");
}

static void serve(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		  struct sockaddr_in *address)
{
	struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *made;
	long began;

	check(rdma_bind_addr(id, (struct sockaddr *)address) == 0, "rdma_bind_addr");
	check(rdma_listen(id, 1) == 0, "rdma_listen");
	made = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_queue_pair(made);
	check(rdma_accept(made, &parameters) == 0, "rdma_accept");
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	began = now_ms();
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	check(now_ms() - began >= ALONE_MS / 2, "the end of a child was taken for the program's");
	printf("the peer has left\n");
}

static void fork_and_wait(void)
{
	pid_t child = fork();

	check(child >= 0, "fork");
	if (child == 0)
		exit(0);
	check(waitpid(child, NULL, 0) == child, "waitpid");
}

static void connect_to(struct rdma_event_channel *channel, struct rdma_cm_id *id,
			      struct sockaddr_in *address)
{
	struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1,
					     .retry_count = 7, .rnr_retry_count = 7};

	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)address, 2000) == 0, "resolve_addr");
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_queue_pair(id);
	check(rdma_connect(id, &parameters) == 0, "rdma_connect");
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	check(count == 3, "leave server|client|killed|both|idle ADDRESS");
	check(inet_pton(AF_INET, arguments[2], &address.sin_addr) == 1, "the address");
	channel = rdma_create_event_channel();
	check(channel != NULL, "rdma_create_event_channel");
	check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	if (strcmp(arguments[1], "server") == 0)
		serve(channel, id, &address);
	else if (strcmp(arguments[1], "idle") != 0)
		connect_to(channel, id, &address);
	if (strcmp(arguments[1], "client") == 0)
		fork_and_wait();
	if (strcmp(arguments[1], "server") != 0 && strcmp(arguments[1], "idle") != 0)
		usleep(ALONE_MS * 1000);
	if (strcmp(arguments[1], "both") == 0)
		kill(getppid(), SIGKILL);
	if (strcmp(arguments[1], "both") == 0 || strcmp(arguments[1], "killed") == 0)
		raise(SIGKILL);
	return 0;
}
