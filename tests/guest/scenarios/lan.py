"""Traffic of the guests' network stacks through the model's LAN engine, everything that Linux does by itself included."""
import json
import re

from machine import Failed
from .stage import carrier, load


def stations(stage, mtu=1500):
    """Two guests on one wire with ARP and IPv6 on, as a machine comes up by itself: 10.0.0.1 and 10.0.0.2, fd00::1 and fd00::2."""
    stage.serve(2)
    guests = stage.boot(2)
    for index, guest in enumerate(guests):
        guest.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0")
        load(guest)
        guest.run(f"ip link set eth0 mtu {mtu}; ip addr add 10.0.0.{index + 1}/24 dev eth0; "
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
    """One iperf3 run; gives what the client reports at its end, and fails if it fails."""
    server.start("iperf", f"timeout {seconds + 40} iperf3 -s -1 -J")
    server.run("for i in $(seq 100); do ss -Hltn | grep -q :5201 && exit 0; sleep 0.1; done; exit 1", 30)
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
    for address, options in (("10.0.0.1", ""), ("10.0.0.1", "-R"), ("fd00::1", ""), ("fd00::1", "-R"), ("10.0.0.1", "-P 4")):
        end = iperf(first, second, address, options)
        rates.append(f"{megabits(end):.0f}")
    end = iperf(first, second, "10.0.0.1", "-u -b 50M -l 1400")
    lost = end["sum"]["lost_percent"]
    if lost > 5:
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
    # Segmentation was used: frames on the wire are more than packets that the stack handed over.
    stack, wire = (after[1][name] - before[1][name] for name in ("tx_bytes", "tx_bytes.nic"))
    large = after[1]["tx_size_big.nic"] - before[1]["tx_size_big.nic"] if "tx_size_big.nic" in after[1] else 0
    retransmitted = second.run("cat /proc/net/snmp | grep '^Tcp:' | tail -1").split()[12]
    return (f"{', '.join(rates)} Mbit/s (IPv4 there and back, IPv6 there and back, four streams), datagrams lost {lost:.1f} %, "
            f"{stack} bytes of the stack, {wire} of the wire, {large} above 1522, {retransmitted} segments sent again")
