"""Traffic of the guests' network stacks through the model's LAN engine, everything that Linux does by itself included."""
import json
import os
import re
import subprocess

from machine import Failed, Skipped, end, wait_until
from .netdev import SAFE_MODE
from .stage import carrier, load, rdma_active


def stations(stage, mtu=1500, options=(), **settings):
    """Two guests on one wire with ARP and IPv6 on, as a machine comes up by itself: 10.0.0.1 and 10.0.0.2, fd00::1 and fd00::2."""
    stage.serve(2, options)
    guests = stage.boot(2, **settings)
    for index, guest in enumerate(guests):
        load(guest)
        # No router solicitations while counters are compared.
        guest.run(f"sysctl -qw net.ipv6.conf.eth0.router_solicitations=0; ip link set eth0 mtu {mtu}; ip addr add 10.0.0.{index + 1}/24 dev eth0; "
                  f"ip -6 addr add fd00::{index + 1}/64 dev eth0 nodad; ip link set eth0 up")
        carrier(guest)
    return guests


def count(guest, name, device="eth0"):
    """One counter of ethtool -S."""
    found = re.search(rf"^\s*{re.escape(name)}: (\d+)$", guest.run(f"ethtool -S {device}"), re.M)
    if not found:
        raise Failed(f"{guest.name}: ethtool -S has no '{name}'")
    return int(found[1])


def counters(guest, device="eth0"):
    """All counters of ethtool -S."""
    return {name: int(value) for name, value in re.findall(r"^\s*(.+): (\d+)$", guest.run(f"ethtool -S {device}"), re.M)}


def iperf(server, client, address, options="", seconds=3):
    """One iperf3 run; returns the client's report, and fails if the client fails."""
    server.start("iperf", f"timeout {seconds + 40} iperf3 -s -1 -J")
    server.run("for i in $(seq 100); do netstat -ltn | grep -q :5201 && exit 0; sleep 0.1; done; exit 1", 30)
    status, output = client.ask(f"timeout {seconds + 30} iperf3 -c {address} -t {seconds} -J {options}", seconds + 40)
    server.finish("iperf", 20)
    if status != 0:
        raise Failed(f"iperf3 {options} ended with {status}:\n{output[-1500:]}")
    return json.loads(output)["end"]


def megabits(end, direction="sum_received"):
    return end[direction]["bits_per_second"] / 1e6


def ping(stage):
    """ARP, neighbour discovery, ping over IPv4 and IPv6, small and fragmented, both ways."""
    guests = stations(stage)
    for guest, other in ((guests[0], 2), (guests[1], 1)):
        guest.run(f"ping -q -c 20 -i 0.05 10.0.0.{other}", 30)
        guest.run(f"ping -q -c 20 -i 0.05 fd00::{other}", 30)
        guest.run(f"ping -q -c 5 -i 0.05 -s 20000 10.0.0.{other}", 30)
        guest.run(f"ping -q -c 5 -i 0.05 -s 20000 fd00::{other}", 30)
    neighbours = guests[0].run("ip neigh show dev eth0")
    for address in ("10.0.0.2", "fd00::2"):
        if address not in neighbours:
            raise Failed(f"{address} is no neighbour that was found:\n{neighbours}")
    return "100 echoes over IPv4 and IPv6, 20,000 bytes in fragments, neighbours found by ARP and by discovery"


def tcp(stage):
    """TCP both ways over IPv4 and IPv6, with segmentation and checksums by the card; no checksum is found wrong."""
    guests = stations(stage)
    first, second = guests
    before = [counters(guest) for guest in guests]
    rates = []
    # The packets that the stack passes to the card, before the card cuts them.
    second.start("dump", "timeout 20 tcpdump -Z root -i eth0 -n -c 50 'tcp dst port 5201 and greater 3000' 2>/dev/null")
    second.run("sleep 3")
    for address, options in (("10.0.0.1", ""), ("10.0.0.1", "-R"), ("fd00::1", ""), ("fd00::1", "-R"), ("10.0.0.1", "-P 4")):
        end = iperf(first, second, address, options)
        rates.append(f"{megabits(end):.0f}")
    end = iperf(first, second, "10.0.0.1", "-u -b 5M -l 1400")
    lost = end["sum"]["lost_percent"]
    # A guest without hardware acceleration loses some, because it is slow.
    if lost > 50:
        raise Failed(f"{lost} % of the datagrams were lost")
    features = second.run("ethtool -k eth0")
    for feature in ("tx-checksumming: on", "rx-checksumming: on", "tcp-segmentation-offload: on"):
        if feature not in features:
            raise Failed(f"'{feature}' is not in:\n{features}")
    after = [counters(guest) for guest in guests]
    for guest, old, new in zip(guests, before, after):
        wrong = {name: new[name] - old[name] for name in ("rx_csum_bad.nic", "rx_crc_errors.nic", "tx_errors", "tx_timeout.nic")
                 if name in new and new[name] != old[name]}
        if wrong:
            raise Failed(f"{guest.name}: {wrong}")
    _, dumped = second.finish("dump", 25)
    longest = max((int(length) for length in re.findall(r"length (\d+)", dumped)), default=0)
    large = after[1]["tx_size_big.nic"] - before[1]["tx_size_big.nic"]
    if longest < 3000 or large:
        raise Failed(f"the stack handed over packets of {longest} bytes at most, {large} frames above 1518 were sent")
    wire = after[1]["tx_bytes.nic"] - before[1]["tx_bytes.nic"]
    retransmitted = second.run("cat /proc/net/snmp | grep '^Tcp:' | tail -1").split()[12]
    return (f"{', '.join(rates)} Mbit/s (IPv4 there and back, IPv6 there and back, four streams), datagrams lost {lost:.1f} %, "
            f"packets of {longest} bytes handed to the card and {wire} bytes in frames of at most 1518 sent, "
            f"{retransmitted} segments sent again")


def vlan(stage):
    """VLANs with tags inserted and taken off by the card, by the stack, filtered by the card, and priority kept."""
    guests = stations(stage)
    for index, guest in enumerate(guests):
        guest.run("modprobe 8021q; ip link add link eth0 name five type vlan id 5 egress-qos-map 0:3; "
                  f"ip addr add 10.5.0.{index + 1}/24 dev five; ip link set five up")
        # A VLAN that the other guest does not have.
        guest.run(f"ip link add link eth0 name own type vlan id {100 + index}; "
                  f"ip addr add 10.9.0.{index + 1}/24 dev own; ip link set own up")
    first, second = guests
    for features in ("on", "off"):
        for guest in guests:
            guest.run(f"ethtool -K eth0 rxvlan {features} txvlan {features}")
        for guest in guests:
            # A change of features restarts the link.
            carrier(guest)
        second.run("ping -q -c 10 -i 0.05 10.5.0.1", 30)
        first.run("ping -q -c 10 -i 0.05 -s 5000 10.5.0.2", 30)
        second.run("ping -q -c 3 -i 0.05 10.0.0.1", 30)
        status, _ = second.ask("ping -q -c 3 -i 0.05 -W 1 10.9.0.1", 30)
        if status == 0:
            raise Failed("a frame of VLAN 101 reached VLAN 100")
        # The card's filter: the stack of the other guest never receives it.
        seen = first.run("cat /proc/net/dev | grep own: || true; ip -s link show dev own")
        if not re.search(r"RX:.*\n\s+0\s+0", seen):
            raise Failed(f"VLAN 100 received something:\n{seen}")
    for guest in guests:
        guest.run("ethtool -K eth0 rxvlan on txvlan on")
    for guest in guests:
        carrier(guest)
    first.start("dump", "timeout 20 tcpdump -Z root -i eth0 -e -n -c 3 'vlan 5 and icmp' 2>&1")
    first.run("sleep 3")
    second.run("ping -q -c 5 -i 0.2 10.5.0.1", 30)
    _, dumped = first.finish("dump", 25)
    if "vlan 5, p 3" not in dumped:
        raise Failed(f"no tag with id 5 and priority 3 in:\n{dumped}")
    end = iperf(first, second, "10.5.0.1")
    return f"VLAN 5 with offloads and without, priority 3 kept, VLANs 100 and 101 apart, TCP in VLAN 5 at {megabits(end):.0f} Mbit/s"


def toeplitz(key, data):
    """The hash that the card computes, by an independent implementation."""
    window = int.from_bytes(key, "big")
    bits = len(key) * 8
    value = 0
    for index in range(len(data) * 8):
        if data[index // 8] >> (7 - index % 8) & 1:
            value ^= window >> (bits - 32 - index) & 0xFFFFFFFF
    return value


def spreading(guest):
    """The key and the table of a guest's card."""
    text = guest.run("ethtool -x eth0")
    key = bytes.fromhex(re.search(r"RSS hash key:\n([0-9a-f:]+)", text)[1].replace(":", ""))
    table = [int(entry) for line in re.findall(r"^\s*\d+:((?:\s+\d+)+)\s*$", text, re.M) for entry in line.split()]
    return key, table


def classes(stage):
    """Two traffic classes by `dcb ets`, and one again: the interface stays up, traffic of both classes passes."""
    guests = stations(stage)
    for tables in ("tc-bw 0:50 1:50 prio-tc 0:0 1:0 2:0 3:1 4:1 5:0 6:0 7:0", "tc-bw 0:100 1:0 prio-tc all:0"):
        for guest in guests:
            guest.run(f"dcb ets set dev eth0 tc-tsa all:ets {tables}", 60)
        for guest in guests:
            # The driver takes the link down for it.
            carrier(guest)
        for priority in (0, 3):
            guests[0].run(f"ping -q -c 10 -i 0.05 -Q {priority << 5} 10.0.0.2", 30)
        iperf(guests[0], guests[1], "10.0.0.1", seconds=2)
    return "two classes and one again: link up, ping by both priorities, TCP"


def rss(stage):
    """Datagrams of several flows arrive at the queues that an independent hash predicts; the table is obeyed."""
    guests = stations(stage)
    first, second = guests
    queues = len(re.findall("rx-", first.run("ls /sys/class/net/eth0/queues")))
    if queues < 2:
        raise Failed(f"{queues} receive queues")
    key, table = spreading(first)
    hits = [0] * queues
    port, tried = 40000, 0
    while (min(hits) == 0 or sum(hits) < 4) and tried < 12:
        tried += 1
        port += 1
        data = bytes([10, 0, 0, 2, 10, 0, 0, 1]) + port.to_bytes(2, "big") + (5201).to_bytes(2, "big")
        wanted = table[toeplitz(key, data) % len(table)]
        before = [count(first, f"rx_queue_{queue}_packets") for queue in range(queues)]
        iperf(first, second, "10.0.0.1", f"-u -b 20M -l 500 --cport {port}", 1)
        moved = [count(first, f"rx_queue_{queue}_packets") - old for queue, old in enumerate(before)]
        hits[wanted] += 1
        if moved[wanted] < 200 or max(moved) != moved[wanted]:
            raise Failed(f"port {port} should go to queue {wanted}, but queues got {moved}")
    # All packets to the last queue.
    first.run("ethtool -X eth0 weight " + " ".join(["0"] * (queues - 1) + ["1"]))
    before = [count(first, f"rx_queue_{queue}_packets") for queue in range(queues)]
    iperf(first, second, "10.0.0.1", "-P 4", 1)
    moved = [count(first, f"rx_queue_{queue}_packets") - old for queue, old in enumerate(before)]
    # Frames without a hash (ARP) go by the first entry, too.
    if sum(moved[:-1]) != 0 or moved[-1] < 100:
        raise Failed(f"the table sends everything to the last queue, and queues got {moved}")
    return f"{sum(hits)} flows over {queues} queues as predicted ({hits}), table of {len(table)} entries changed and obeyed"


def mtu(stage):
    """Frames of 9000 bytes, in buffers that are chained; frames too long for the other side are dropped and counted."""
    guests = stations(stage, mtu=9000)
    first, second = guests
    second.run("ping -q -c 10 -i 0.05 -s 8972 -M do 10.0.0.1", 30)
    first.run("ping -q -c 10 -i 0.05 -s 8952 -M do fd00::2", 30)
    end = iperf(first, second, "10.0.0.1")
    first.run("sleep 2.5")
    large = count(first, "rx_size_big.nic")
    if large < 100:
        raise Failed(f"{large} frames above 1522 bytes were received")
    first.run("ip link set eth0 mtu 1500")
    carrier(first)
    status, _ = second.ask("ping -q -c 3 -i 0.1 -W 1 -s 8972 -M do 10.0.0.1", 30)
    second.run("ping -q -c 3 -i 0.1 10.0.0.1", 30)
    return f"TCP with frames of 9000 bytes at {megabits(end):.0f} Mbit/s, {large} of them received; with 1500 on one side echo of 9000 ended with {status}"


def counted(stage):
    """The counts sent by one side equal those received by the other, by number, kind, size and bytes, and those of the stack."""
    guests = stations(stage)
    first, second = guests
    first.run("sleep 4")
    before = [counters(guest) for guest in guests]
    second.run("ping -q -c 50 -i 0.02 -s 1000 10.0.0.1", 30)
    second.run("ping -q -c 20 -i 0.02 -s 100 fd00::1", 30)
    second.run("ping -b -q -c 7 -i 0.05 10.0.0.255 || true", 30)
    iperf(first, second, "10.0.0.1", "", 1)
    for guest in guests:
        # The driver reads the counters once a second or two.
        guest.run("sleep 5")
    after = [counters(guest) for guest in guests]
    moved = [{name: new[name] - old[name] for name in new if name in old} for old, new in zip(before, after)]
    sizes = [f"size_{size}.nic" for size in ("64", "127", "255", "511", "1023", "1522", "big")]
    for name in ("bytes.nic", "unicast.nic", "multicast.nic", "broadcast.nic", *sizes):
        for sender, receiver in ((0, 1), (1, 0)):
            sent, received = moved[sender][f"tx_{name}"], moved[receiver][f"rx_{name}"]
            if sent != received:
                raise Failed(f"{name}: guest{sender} sent {sent}, guest{receiver} received {received}")
    for number, guest in enumerate(moved):
        frames = sum(guest[f"rx_{kind}"] for kind in ("unicast", "multicast", "broadcast"))
        stack = sum(guest[name] for name in guest if re.fullmatch(r"rx_queue_\d+_packets", name))
        dropped = guest["rx_dropped"]
        if frames != stack + dropped:
            raise Failed(f"guest{number}: the VSI counts {frames} frames, the queues {stack} and {dropped} dropped")
        sent = sum(guest[f"tx_{kind}"] for kind in ("unicast", "multicast", "broadcast"))
        stack = sum(guest[name] for name in guest if re.fullmatch(r"tx_queue_\d+_packets", name))
        if sent != stack:
            raise Failed(f"guest{number}: the VSI counts {sent} frames sent, the queues {stack}")
    if moved[1]["tx_broadcast.nic"] < 7:
        raise Failed(f"{moved[1]['tx_broadcast.nic']} broadcasts were sent")
    return (f"{moved[1]['tx_unicast.nic']} and {moved[0]['tx_unicast.nic']} unicast frames, {moved[1]['tx_bytes.nic']} bytes: "
            "both sides, port, VSI and queues agree")


class Namespace:
    """A network namespace of this machine: that of the process that a server's `timeout` started."""

    def __init__(self, stage):
        self.stage = stage
        pid = stage.server.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            self.pid = file.read().split()[0]

    def enter(self, *words):
        return ["nsenter", "--user", "--net", "--preserve-credentials", f"--target={self.pid}", "--", *words]

    def run(self, *words, seconds=20):
        done = subprocess.run(self.enter(*words), capture_output=True, text=True, timeout=seconds)
        if done.returncode != 0:
            raise Failed(f"`{' '.join(words)}` in the namespace ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def tap(stage):
    """A guest and a network namespace of this machine, joined by a TAP interface: ping, TCP both ways, the namespace's own stack as judge."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise Skipped("/dev/net/tun is not there or not this user's to open")
    if subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skipped("this machine does not allow user namespaces with a network of their own")
    stage.command = ["unshare", "--user", "--map-root-user", "--net", *stage.command]
    stage.serve(1, ["--tap", "wire0"])
    guest, = stage.boot()
    load(guest)
    guest.run("ip addr add 10.0.0.1/24 dev eth0; ip -6 addr add fd00::1/64 dev eth0 nodad; ip link set eth0 up")
    carrier(guest)
    space = Namespace(stage)
    space.run("ip", "addr", "add", "10.0.0.9/24", "dev", "wire0")
    space.run("ip", "-6", "addr", "add", "fd00::9/64", "dev", "wire0", "nodad")
    space.run("ip", "link", "set", "wire0", "up")
    guest.run("ping -q -c 10 -i 0.05 10.0.0.9; ping -q -c 10 -i 0.05 fd00::9; ping -q -c 3 -i 0.05 -s 6000 10.0.0.9", 30)
    server = subprocess.Popen(space.enter("timeout", "100", os.path.join(stage.rig, "bin/iperf3"), "-s"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until("iperf3 in the namespace", 20, lambda: ":1451 " in space.run("cat", f"/proc/{space.pid}/net/tcp6")
                   or ":1451 " in space.run("cat", f"/proc/{space.pid}/net/tcp"))
        rates = []
        for address, options in (("10.0.0.9", ""), ("10.0.0.9", "-R"), ("fd00::9", "")):
            output = guest.run(f"iperf3 -c {address} -t 3 -J {options}", 60)
            rates.append(f"{megabits(json.loads(output)['end']):.0f}")
    finally:
        end(server)
    errors = [line for line in space.run("cat", f"/proc/{space.pid}/net/snmp").splitlines() if line.startswith(("Tcp:", "Ip:"))]
    names, values = errors[2].split(), errors[3].split()
    wrong = int(dict(zip(names, values))["InCsumErrors"])
    if wrong:
        raise Failed(f"{wrong} TCP segments with wrong checksums came into the namespace")
    return f"ping, TCP to the namespace and back at {', '.join(rates)} Mbit/s, no wrong checksum in {dict(zip(names, values))['InSegs']} segments"


def resets(stage):
    """Both drivers, with all traffic that Linux itself sends, through resets by sysfs and devlink: traffic after each, no timeout of a queue."""
    guests = stations(stage)
    first, second = guests
    for guest in guests:
        guest.run("modprobe irdma", 30)
        rdma_active(guest)
    stage.allowed = (r"unable to move VSI idx 1 into aggregator 1 node",)
    address = "ip addr replace 10.0.0.1/24 dev eth0; ip -6 addr replace fd00::1/64 dev eth0 nodad; ip link set eth0 up"
    second.start("ping", "ping -i 0.1 10.0.0.1")
    for what in ("echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset", "devlink dev reload pci/0000:01:00.0"):
        first.run(what, 60)
        first.run("for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && exit 0; sleep 0.1; done; exit 1", 30)
        first.run(address)
        carrier(first)
        rdma_active(first)
        second.run("for i in $(seq 50); do ping -q -c 1 -W 1 10.0.0.1 && ping -q -c 1 -W 1 fd00::1 && exit 0; done; exit 1", 120)
        first.run("ping -q -c 5 -i 0.05 10.0.0.2")
    # A transmit queue that is stuck shows after five seconds.
    first.run("sleep 7")
    for guest in guests:
        stuck = count(guest, "tx_timeout.nic")
        if stuck:
            raise Failed(f"{guest.name}: {stuck} transmit timeouts")
    return "ping and neighbour discovery under way through a reset by sysfs and devlink reload, no transmit timeout"


def safe_traffic(stage):
    """Traffic in safe mode: one queue, no spreading, no package anywhere."""
    guests = stations(stage, options=["--no-package"], package=False)
    first, second = guests
    stage.allowed = SAFE_MODE
    queues = [len(re.findall("rx-", guest.run("ls /sys/class/net/eth0/queues"))) for guest in guests]
    if queues != [1, 1]:
        raise Failed(f"{queues} receive queues in safe mode")
    second.run("ping -q -c 10 -i 0.05 10.0.0.1; ping -q -c 10 -i 0.05 fd00::1; ping -q -c 3 -i 0.05 -s 6000 10.0.0.1", 30)
    end = iperf(first, second, "10.0.0.1")
    return f"one queue on each side, ping over IPv4 and IPv6, TCP at {megabits(end):.0f} Mbit/s"
