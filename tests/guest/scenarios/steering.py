"""Rules of Linux for the flow director (`ethtool -N`), and the fields of its hash, judged by the counts of the receive queues."""
import re
import time

from machine import PATIENCE, Failed
from .lan import count, counters, spreading, stations, toeplitz

PACKETS = 60
SOURCE, TARGET = "10.0.0.2", "10.0.0.1"
ADDRESSES = bytes((10, 0, 0, 2, 10, 0, 0, 1))


def datagrams(port):
    """Sends datagrams to a port, each from a port of the sender that the kernel chooses."""
    return f"for i in $(seq {PACKETS}); do echo $i > /dev/udp/{TARGET}/{port}; done"


def segments(port):
    """Asks for connections to a port at which no program listens: one segment each."""
    return f"for i in $(seq {PACKETS}); do (: > /dev/tcp/{TARGET}/{port}) 2>/dev/null; done; true"


ECHOES = f"ping -q -c {PACKETS} -i 0.01 -W 1 {TARGET} || true"


class Steered:
    """Two guests; the first one has the rules, the second one sends."""

    def __init__(self, stage, options=()):
        self.receiver, self.sender = stations(stage, options=options)
        self.queues = len(re.findall("rx-", self.receiver.run("ls /sys/class/net/eth0/queues")))
        if self.queues < 2:
            raise Failed(f"{self.queues} receive queues")
        self.sender.run(f"ping -q -c 2 -i 0.1 {TARGET}")
        self.shown = []

    def counts(self):
        found = counters(self.receiver)
        return [found[f"rx_queue_{queue}_packets"] for queue in range(self.queues)]

    def moved(self, traffic, least):
        """The packets that traffic added to each queue; waits until there are as many as expected, or five seconds have passed."""
        before = self.counts()
        self.sender.run(traffic, 120)
        deadline = time.monotonic() + 5 * PATIENCE
        while True:
            moved = [new - old for new, old in zip(self.counts(), before)]
            if sum(moved) >= least or time.monotonic() > deadline:
                return moved

    def rule(self, text):
        """Adds a rule; returns its number."""
        said = self.receiver.run(f"ethtool -N eth0 {text}")
        found = re.search(r"Added rule with ID (\d+)", said)
        if not found:
            raise Failed(f"ethtool -N {text}: {said}")
        return int(found[1])

    def delete(self, number):
        self.receiver.run(f"ethtool -N eth0 delete {number}")

    def arrives(self, what, traffic, queue):
        """Traffic of PACKETS packets arrives at a queue, beside few others (ARP, neighbour discovery)."""
        moved = self.moved(traffic, PACKETS)
        if moved[queue] < PACKETS or sum(moved) - moved[queue] > PACKETS // 6:
            raise Failed(f"{what}: {PACKETS} packets should come by queue {queue}, and the queues got {moved}")

    def dropped(self, what, traffic):
        """Traffic of PACKETS packets arrives nowhere."""
        moved = self.moved(traffic, PACKETS)
        if sum(moved) > PACKETS // 6:
            raise Failed(f"{what}: the packets should be dropped, and the queues got {moved}")


# Rules with an action for queue 1, and the traffic that they steer. Linux has one set of fields for each type of flow.
RULES = (("udp4 dst-port 7000", datagrams(7000)), ("tcp4 dst-port 7001", segments(7001)), (f"ip4 src-ip {SOURCE}", ECHOES))


def fields(steered):
    """The hash of UDP with addresses only, then with ports; each datagram comes by the queue that an independent hash computes."""
    receiver = steered.receiver
    key, table = spreading(receiver)
    queue_of = [table[toeplitz(key, ADDRESSES) % len(table)]]
    receiver.run("ethtool -N eth0 rx-flow-hash udp4 sd")
    if "L4 bytes" in receiver.run("ethtool -n eth0 rx-flow-hash udp4"):
        raise Failed("the hash of UDP still has ports")
    steered.arrives("hashed by addresses", datagrams(7004), queue_of[0])
    receiver.run("ethtool -N eth0 rx-flow-hash udp4 sdfn")
    receiver.start("dump", f"timeout 60 tcpdump -Z root -i eth0 -n -c {PACKETS} 'udp dst port 7004' 2>/run/dump.ready")
    receiver.run("for i in $(seq 200); do grep -q 'listening on' /run/dump.ready && exit 0; sleep 0.1; done; cat /run/dump.ready; exit 1", 30)
    moved = steered.moved(datagrams(7004), PACKETS)
    _, dumped = receiver.finish("dump", 60)
    ports = [int(port) for port in re.findall(rf"IP {re.escape(SOURCE)}\.(\d+) > ", dumped)]
    wanted = [0] * steered.queues
    for port in ports:
        data = ADDRESSES + port.to_bytes(2, "big") + (7004).to_bytes(2, "big")
        wanted[table[toeplitz(key, data) % len(table)]] += 1
    # A few packets that Linux sends by itself are counted too.
    beyond = [count - least for count, least in zip(moved, wanted)]
    if len(ports) != PACKETS or min(wanted) == 0 or min(beyond) < 0 or sum(beyond) > PACKETS // 6:
        raise Failed(f"{len(ports)} datagrams hashed by ports should come as {wanted}, and the queues got {moved}")
    return wanted


def rules(stage):
    """`ethtool -N`: rules for UDP, TCP, IPv4 and Ethernet to either queue, a rule that drops, deleted rules; the fields of the hash."""
    steered = Steered(stage)
    receiver = steered.receiver
    numbers = {text: steered.rule(f"flow-type {text} action 1") for text, _ in RULES}
    dropping = steered.rule("flow-type udp4 dst-port 7002 action -1")
    for text, traffic in RULES:
        steered.arrives(f"rule '{text}'", traffic, 1)
    matched = count(receiver, "fdir_sb_match.nic")
    steered.dropped("the rule that drops", datagrams(7002))
    for text, traffic in RULES:
        # The same rule with another queue takes the place of the first.
        steered.delete(numbers[text])
        numbers[text] = steered.rule(f"flow-type {text} action 0")
        steered.arrives(f"rule '{text}'", traffic, 0)
    after = count(receiver, "fdir_sb_match.nic")
    if after - matched < 4 * PACKETS:
        raise Failed(f"fdir_sb_match counts {after - matched} packets of {4 * PACKETS}")
    for number in (dropping, *numbers.values()):
        steered.delete(number)
    if "Total 0 rules" not in receiver.run("ethtool -n eth0"):
        raise Failed("rules are left")
    moved = steered.moved(datagrams(7002), PACKETS)
    if sum(moved) < PACKETS or 0 in moved:
        raise Failed(f"without rules the queues got {moved}")
    mac = steered.sender.run("cat /sys/class/net/eth0/address").strip()
    for queue in (0, 1):
        number = steered.rule(f"flow-type ether src {mac} action {queue}")
        steered.arrives("rule 'ether'", datagrams(7003), queue)
        steered.delete(number)
    wanted = fields(steered)
    return (f"rules for UDP, TCP, IPv4 and Ethernet to each queue, one that drops, {after} packets counted; none after they were deleted; hash of "
            f"UDP by addresses, and by ports: {wanted} datagrams as computed")
