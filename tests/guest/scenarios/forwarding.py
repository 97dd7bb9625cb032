"""`ringside forward` over the kernel's VFIO in a guest, between two wires with a stock `ice` on each."""
import json
import time

from machine import PATIENCE, Failed, wait_until
from .lan import counters
from .packets import station, traffic, with_same_address
from .steering import PACKETS
from .vfio import FIRST, SECOND, bound, free_huge_pages, guest_with_command

QUEUES = 4
FLOWS = 200
# The rules of a run: a flow to a queue, a flow that is dropped. The port between has none.
# tcpdump takes packets of ports 7000 to 7009 for another protocol.
TO_QUEUE, FREE, DROPPED, QUEUE = 17000, 17001, 17002, 2
RULES = f"--rule 'udp4 dst-port {TO_QUEUE} action {QUEUE}' --rule 'udp4 dst-port {DROPPED} action drop'"


def guests(stage):
    """Our guest with a function on each of two wires, and a guest with `ice` on each wire."""
    stage.serve(2, ("--doorbell-page",))
    # Its numbers, from which MAC addresses follow, differ from those of the first one.
    other = stage.serve_another(2, ("--first", "8", "--doorbell-page"))
    ours = guest_with_command(stage, [stage.server.sockets[1], other.sockets[1]])
    bound(ours, FIRST, SECOND)
    ends = [stage.boot_at(stage.server.sockets[0], "first"), stage.boot_at(other.sockets[0], "second")]
    for last, guest in enumerate(ends, 1):
        station(guest, last, mtu=9000)
        guest.run("sysctl -qw net.ipv6.conf.eth0.router_solicitations=0; ip link add link eth0 name v5 type vlan id 5; "
                  f"ip addr add 10.5.0.{last}/24 dev v5; ip link set v5 up")
    return ours, *ends


class Forwarder:
    """`ringside forward` on both functions, in the background of our guest."""

    def __init__(self, guest, mode, options=""):
        self.guest, self.words = guest, f"ringside forward --device {FIRST} --device {SECOND} --mode {mode} --mtu 9000 --json {options}"
        guest.start("forward", f"exec {self.words}")
        guest.run("for i in $(seq 300); do grep -q interval /run/forward.output && exit 0; [ -e /run/forward.status ] && break; sleep 0.1; done; "
                  "cat /run/forward.output; exit 1", 60)

    def ended(self):
        """Ends it by a signal; returns its totals for each port, which must be those of a device without a fault."""
        self.guest.run("kill $(pidof ringside)")
        status, output = self.guest.finish("forward", 20)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if status != 0 or not lines:
            raise Failed(f"`{self.words}` ended with {status}:\n{output[-2000:]}")
        ports = json.loads(lines[-1])["ports"]
        for port in ports:
            if port["malformed"] or port["malicious_events"] or port["recoveries"] or port["tx_stuck"]:
                raise Failed(f"`{self.words}` reports {port}")
        return ports


def received(port):
    """The packets of each receive queue of a port."""
    return [queue["rx_packets"] for queue in port["queues"]]


def datagrams(count, target, port):
    """Sends datagrams, each from a port that the kernel chooses."""
    return f"for i in $(seq {count}); do echo $i > /dev/udp/{target}/{port}; done"


class Arrivals:
    """The datagrams that reach a guest's stack, by port."""

    def __init__(self, guest):
        self.guest = guest
        for port in (TO_QUEUE, FREE, DROPPED):
            guest.start(f"port{port}", f"exec timeout 300 tcpdump -Z root -i eth0 -n -l 'udp dst port {port}' 2>/run/port{port}.ready")
        for port in (TO_QUEUE, FREE, DROPPED):
            guest.run(f"for i in $(seq 200); do grep -q 'listening on' /run/port{port}.ready && exit 0; sleep 0.1; done; exit 1", 30)

    def counts(self):
        said = self.guest.run("; ".join(f"grep -c UDP /run/port{port}.output || true" for port in (TO_QUEUE, FREE, DROPPED)))
        return tuple(int(line) for line in said.split())

    def wait_for(self, wanted):
        deadline = time.monotonic() + 10 * PATIENCE
        while (found := self.counts()) != wanted and time.monotonic() < deadline:
            time.sleep(0.2)
        if found != wanted:
            raise Failed(f"of the datagrams to ports {TO_QUEUE}, {FREE} and {DROPPED}, {found} arrived, to arrive were {wanted}")

    def end(self):
        self.guest.run("kill $(pidof tcpdump)")


def spread(ours, first, second):
    """All traffic through four queues of each port, then many flows both ways: each queue has its part of them."""
    forwarder = Forwarder(ours, "io", f"--queues {QUEUES}")
    shown = traffic(first, second)
    before = forwarder.ended()
    # On its own, so that the counts are those of the flows.
    forwarder = Forwarder(ours, "io", f"--queues {QUEUES}")
    first.run(datagrams(FLOWS, "10.0.0.2", FREE), 60)
    second.run(datagrams(FLOWS, "10.0.0.1", FREE), 60)
    ports = forwarder.ended()
    for port in ports:
        queues = received(port)
        if len(queues) != QUEUES or min(queues) < FLOWS // QUEUES // 3 or sum(queues) < FLOWS:
            raise Failed(f"{FLOWS} flows through port {port['port']} came by the queues as {queues}")
        if port["dropped"] or port["device_drops"]["rx_dropped"]:
            raise Failed(f"packets of {FLOWS} flows were dropped: {port}")
    if sum(port["rx_packets"] for port in before) < 1000:
        raise Failed(f"the traffic of both guests did not pass: {before}")
    return shown, [received(port) for port in ports]


def ruled(ours, first, second):
    """A rule that chooses a queue and one that drops, judged by what arrives at the other guest and by the queues' counts."""
    forwarder = Forwarder(ours, "io", f"--queues {QUEUES} {RULES}")
    arrivals = Arrivals(second)
    first.run(datagrams(PACKETS, "10.0.0.2", DROPPED), 60)
    first.run(datagrams(PACKETS, "10.0.0.2", TO_QUEUE), 60)
    first.run(datagrams(1, "10.0.0.2", FREE), 60)
    arrivals.wait_for((PACKETS, 1, 0))
    arrivals.end()
    queues = received(forwarder.ended()[0])
    # A few packets that Linux sends by itself come by any queue.
    if queues[QUEUE] < PACKETS or sum(queues) - queues[QUEUE] > PACKETS // 4:
        raise Failed(f"{PACKETS} datagrams should come by queue {QUEUE}, and the queues got {queues}")
    return queues


def forward(stage):
    """`ringside forward` over /dev/vfio joins two wires, a guest with ice on each: ping, IPv6, VLAN, MTU 9000, iperf3, in io and macswap; flows spread
    over four queues; a rule that chooses a queue and one that drops."""
    ours, first, second = guests(stage)
    before = free_huge_pages(ours)
    shown, queues = spread(ours, first, second)
    chosen = ruled(ours, first, second)
    for guest, other in ((first, 2), (second, 1)):
        with_same_address(guest, other)
    forwarder = Forwarder(ours, "macswap")
    swapped = traffic(first, second)
    forwarder.ended()
    for guest in (first, second):
        # ice leaves an address that it has written.
        guest.run("ip link set eth0 down; ip link set eth0 address $(ethtool -P eth0 | cut -d ' ' -f 3)")
    if free_huge_pages(ours) != before or before == 0:
        raise Failed(f"{free_huge_pages(ours)} huge pages are free afterwards, {before} were before")
    return (f"io on {QUEUES} queues: {shown}; {FLOWS} flows each way came by the queues as {queues[0]} and {queues[1]}; by a rule "
            f"{PACKETS} datagrams to queue {QUEUE} ({chosen}), {PACKETS} dropped; macswap: {swapped}")
