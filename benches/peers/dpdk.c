/* The peer "dpdk": receive and transmit bursts of DPDK's ice driver, on queues that its own functions set up and
 * that a card of ordinary memory completes. It writes back what the device of `benches/src/lan.rs` writes.
 *
 * Usage: drive CASE PACKETS PATH WAY
 * CASE: receive, forward (measured_receive and measured_send are there to be counted), time-receive, time-forward
 * (prints nanoseconds a packet, median). PATH: scalar, avx2, avx512. WAY: what the application configured:
 *   offloads   checksums and the hash with each received packet; packets to send may have several owners
 *   plain      neither; packets to send may still have several owners
 *   fast-free  as plain, and each packet to send has one owner and comes from one pool
 * PEER_HUGE_PAGES=1 takes huge pages; without it memory is ordinary.
 */
#include <ethdev_driver.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_vect.h>
#include <rte_version.h>

#include "ice_ethdev.h"
#include "ice_rxtx.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURST = 32, RING = 1024, PACKET_BYTES = 60, BUFFERS = 8192, BAR_BYTES = 16 << 20, ROUNDS_MAX = 1 << 20 };

/* The queues of 24.11 are the ice driver's own; later ones are shared with Intel's other drivers. */
#if RTE_VERSION < RTE_VERSION_NUM(25, 7, 0, 0)
typedef struct ice_rx_queue receive_queue;
typedef struct ice_tx_queue send_queue;
#define RECEIVE_RING(queue) ((volatile uint64_t *)(queue)->rx_ring)
#define SEND_RING(queue) ((volatile uint64_t *)(queue)->tx_ring)
#else
typedef struct ci_rx_queue receive_queue;
typedef struct ci_tx_queue send_queue;
#define RECEIVE_RING(queue) ((volatile uint64_t *)(queue)->rx_flex_ring)
#if RTE_VERSION < RTE_VERSION_NUM(26, 3, 0, 0)
#define SEND_RING(queue) ((volatile uint64_t *)(queue)->ice_tx_ring)
#else
#define SEND_RING(queue) ((volatile uint64_t *)(queue)->ci_tx_ring)
#endif
#endif

static struct rte_eth_dev *device;
static receive_queue *receives;
static send_queue *sends;
static unsigned int next;

static void need(int met, const char *what)
{
	if (!met) {
		fprintf(stderr, "drive: %s\n", what);
		exit(3);
	}
}

__attribute__((noinline)) uint16_t measured_receive(struct rte_mbuf **packets)
{
	return device->rx_pkt_burst(receives, packets, BURST);
}

__attribute__((noinline)) uint16_t measured_send(struct rte_mbuf **packets, uint16_t count)
{
	return device->tx_pkt_burst(sends, packets, count);
}

/* The card writes a burst of packets back: flexible descriptors of profile 22, which this driver chooses, IPv4 and
 * UDP (type 24), checksums checked, with a hash and without a flow. The word with the status comes last. */
static void arrive(void)
{
	for (int at = 0; at < BURST; at++) {
		volatile uint64_t *slot = RECEIVE_RING(receives) + 4 * next;

		slot[0] = 22 | (uint64_t)24 << 16 | (uint64_t)PACKET_BYTES << 32;
		slot[2] = 0;
		slot[3] = 0x12345678;
		__atomic_store_n(&slot[1], (uint64_t)0xFFFFFFFF << 32 | 1 << 12 | 1 << 3 | 1 << 1 | 1, __ATOMIC_RELEASE);
		next = (next + 1) % RING;
	}
}

/* The card reports every descriptor for which the driver asked for a report. */
static void complete(void)
{
	for (int at = 0; at < RING; at++) {
		volatile uint64_t *word = SEND_RING(sends) + 2 * at + 1;

		if (*word & (uint64_t)ICE_TX_DESC_CMD_RS << ICE_TXD_QW1_CMD_S)
			__atomic_store_n(word, (uint64_t)ICE_TX_DESC_DTYPE_DESC_DONE, __ATOMIC_RELEASE);
	}
}

/* A port of the driver with registers of ordinary memory: what its probe would have left, as far as queues and
 * bursts look at it. */
static void make_port(const char *way)
{
	struct ice_adapter *adapter = rte_zmalloc(NULL, sizeof(*adapter), 64);
	struct ice_vsi *vsi = rte_zmalloc(NULL, sizeof(*vsi), 64);

	device = rte_eth_dev_allocate("peer");
	need(adapter && vsi && device, "no memory for the port");
	adapter->hw.hw_addr = aligned_alloc(4096, BAR_BYTES);
	need(adapter->hw.hw_addr != NULL, "no memory for the registers");
	memset(adapter->hw.hw_addr, 0, BAR_BYTES);
	adapter->hw.mac_type = ICE_MAC_E810;
	adapter->pf.adapter = adapter;
	adapter->pf.main_vsi = vsi;
	adapter->pf.dev_data = device->data;
	adapter->rx_bulk_alloc_allowed = true;
	vsi->adapter = adapter;
	vsi->type = ICE_VSI_PF;
	device->data->dev_private = adapter;
	device->data->rx_queues = rte_zmalloc(NULL, sizeof(void *), 0);
	device->data->tx_queues = rte_zmalloc(NULL, sizeof(void *), 0);
	need(device->data->rx_queues && device->data->tx_queues, "no memory for the queues");
	device->data->nb_rx_queues = device->data->nb_tx_queues = 1;
	if (strcmp(way, "offloads") == 0)
		device->data->dev_conf.rxmode.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_RSS_HASH;
	if (strcmp(way, "fast-free") == 0)
		device->data->dev_conf.txmode.offloads = RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	ice_set_default_ptype_table(device);
}

/* Thresholds are the defaults that the driver reports to applications. */
static void make_queues(void)
{
	struct rte_eth_rxconf receive = { .rx_free_thresh = 32 };
	struct rte_eth_txconf send = { .tx_free_thresh = 32, .tx_rs_thresh = 32 };
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("pool", BUFFERS, 512, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);

	need(pool != NULL, "no memory for the pool");
	need(ice_rx_queue_setup(device, 0, RING, 0, &receive, pool) == 0, "no receive queue");
	need(ice_tx_queue_setup(device, 0, RING, 0, &send) == 0, "no transmit queue");
	receives = device->data->rx_queues[0];
	sends = device->data->tx_queues[0];
	for (int at = 0; at < RING; at++) {
		struct rte_mbuf *buffer = rte_mbuf_raw_alloc(pool);

		need(buffer != NULL, "the pool is empty");
		buffer->data_off = RTE_PKTMBUF_HEADROOM;
		buffer->nb_segs = 1;
		buffer->next = NULL;
		buffer->port = 0;
		receives->sw_ring[at].mbuf = buffer;
		RECEIVE_RING(receives)[4 * at] = rte_mbuf_data_iova_default(buffer);
		RECEIVE_RING(receives)[4 * at + 1] = 0;
	}
	receives->rxdid = ICE_RXDID_COMMS_OVS;
	receives->qrx_tail = ((struct ice_adapter *)device->data->dev_private)->hw.hw_addr + QRX_TAIL(0);
	sends->qtx_tail = ((struct ice_adapter *)device->data->dev_private)->hw.hw_addr + QTX_COMM_DBELL(0);
	ice_set_rx_function(device);
	ice_set_tx_function(device);
}

int main(int count, char **arguments)
{
	static double samples[ROUNDS_MAX];
	struct rte_mbuf *packets[BURST];
	const char *path = count > 3 ? arguments[3] : "", *way = count > 4 ? arguments[4] : "";
	const char *width = !strcmp(path, "scalar") ? "64" : !strcmp(path, "avx2") ? "256" : !strcmp(path, "avx512") ? "512" : NULL;
	int known = !strcmp(way, "offloads") || !strcmp(way, "plain") || !strcmp(way, "fast-free");
	unsigned long rounds = count > 2 ? strtoul(arguments[2], NULL, 10) / BURST : 0;
	int timed, forward;
	char bits[64];
	char *pages = getenv("PEER_HUGE_PAGES") ? "--in-memory" : "--no-huge";
	char *eal[] = { arguments[0], pages, "-m", "64", "--no-pci", "--no-shconf", "--no-telemetry",
		"--log-level=error", "--lcores=0", bits, NULL };

	if (count != 5 || rounds == 0 || rounds > ROUNDS_MAX || !width || !known) {
		fprintf(stderr, "usage: drive receive|forward|time-receive|time-forward PACKETS scalar|avx2|avx512 "
				"offloads|plain|fast-free\n");
		return 2;
	}
	timed = strncmp(arguments[1], "time-", 5) == 0;
	forward = strstr(arguments[1], "forward") != NULL;
	snprintf(bits, sizeof(bits), "--force-max-simd-bitwidth=%s", width);
	need(rte_eal_init(10, eal) >= 0, "the environment does not start");
	make_port(way);
	make_queues();
	for (unsigned long round = 0; round < rounds; round++) {
		uint16_t received, sent = 0;
		double began;

		arrive();
		began = timed ? now() : 0;
		received = measured_receive(packets);
		if (forward)
			sent = measured_send(packets, received);
		samples[round] = timed ? (now() - began) / BURST : 0;
		need(received == BURST, "a burst did not arrive as a whole");
		need(!forward || sent == BURST, "a burst was not sent as a whole");
		if (forward)
			complete();
		else
			rte_pktmbuf_free_bulk(packets, received);
	}
	if (timed)
		printf("%.2f\n", median(samples, rounds));
	else
		printf("%lu\n", rounds * BURST);
	return 0;
}
