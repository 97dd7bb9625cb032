"""The tools of an administrator on Linux's ice: each query and setting of ethtool and devlink, queueing disciplines, XDP, and interfaces on top."""
import base64
import re
import struct

from machine import Failed, Guest
from .clocks import LATE
from .lan import count, counters, iperf, megabits, stations
from .stage import carrier, load

# Queries of ethtool, each with a part of the answer.
QUERIES = (
    ("ethtool eth0", "Speed: 100000Mb/s"), ("ethtool -a eth0", "TX:\t\toff"), ("ethtool -c eth0", "rx-usecs:\t50"), ("ethtool -g eth0", "RX:\t\t\t8160"),
    ("ethtool -i eth0", "driver: ice"), ("ethtool -k eth0", "receive-hashing: on"), ("ethtool -l eth0", "Combined:"), ("ethtool -n eth0", "Total 0 rules"),
    ("ethtool -m eth0", "Transceiver type                          : 100G Ethernet: 100G Base-SR4"), ("ethtool -m eth0", "Connector                                 : 0x0c (MPO"),
    ("ethtool -m eth0 raw on | wc -c", "640"), ("ethtool -P eth0", "02:e8:10:00:00:01"), ("ethtool -S eth0", "rx_unicast.nic"), ("ethtool -T eth0", "hardware-receive"),
    ("ethtool -x eth0", "toeplitz: on"), ("ethtool --show-fec eth0", "Active FEC encoding: RS"), ("ethtool -I --show-fec eth0", "uncorrectable_blocks: 0"), ("ethtool -I -a eth0", "Pause parameters"),
    ("ethtool --show-priv-flags eth0", "fw-lldp-agent"), ("ethtool --show-tunnels eth0", "Types: vxlan"), ("ethtool -d eth0", "0x0000:"), ("ethtool -e eth0 length 64", "0x0030:"),
    ("ethtool -Q eth0 queue_mask 3 -c", "Queue: 1"), ("devlink dev info", "fw.mgmt 7.3.4"), ("devlink port show", "flavour physical"), ("devlink dev param show", "enable_roce"),
    ("devlink region new pci/0000:01:00.0/nvm-flash snapshot 1; devlink region dump pci/0000:01:00.0/nvm-flash snapshot 1; devlink region del pci/0000:01:00.0/nvm-flash snapshot 1", "0000000000000010"),
    ("devlink region read pci/0000:01:00.0/shadow-ram address 0 length 32", "0000000000000010"),
)

# Settings one after the other, each with a query that shows it; the link is up after each.
SETTINGS = (
    ("ethtool -A eth0 rx on tx on", "ethtool -a eth0", "TX:\t\ton"), ("ethtool -A eth0 rx off tx off", "ethtool -a eth0", "TX:\t\toff"),
    ("ethtool -C eth0 adaptive-rx off adaptive-tx off rx-usecs 10 tx-usecs 20", "ethtool -c eth0", "rx-usecs:\t10"), ("ethtool -C eth0 rx-usecs-high 100", "ethtool -c eth0", "rx-usecs-high:\t100"),
    ("ethtool -C eth0 rx-usecs 50 tx-usecs 50; ethtool -C eth0 adaptive-rx on adaptive-tx on", "ethtool -c eth0", "Adaptive RX: on"),
    ("ethtool -G eth0 rx 64 tx 64", "ethtool -g eth0", "TX:\t\t\t64\n"), ("ethtool -G eth0 rx 8160 tx 8160", "ethtool -g eth0", "TX:\t\t\t8160\n"), ("ethtool -G eth0 rx 2048 tx 256", "ethtool -g eth0", "TX:\t\t\t256\n"),
    ("ethtool -L eth0 combined 1", "ethtool -l eth0", "Combined:\t1\n"), ("ethtool -L eth0 rx 1 combined 1", "ethtool -l eth0", "RX:\t\t1\n"), ("ethtool -L eth0 rx 0 combined 2", "ethtool -l eth0", "Combined:\t2\n"),
    ("ethtool -X eth0 weight 1 3", "ethtool -x eth0", "    0:      0     0"), ("ethtool -X eth0 default", "ethtool -x eth0", "    0:      0     1"),
    ("ethtool -N eth0 rx-flow-hash udp4 sd", "ethtool -n eth0 rx-flow-hash udp4", "IP SA"), ("ethtool -N eth0 rx-flow-hash udp4 sdfn", "ethtool -n eth0 rx-flow-hash udp4", "dst port"),
    ("ethtool --set-fec eth0 encoding baser", "ethtool --show-fec eth0", "Active FEC encoding: Off"), ("ethtool --set-fec eth0 encoding auto", "ethtool --show-fec eth0", "Active FEC encoding: RS"),
    ("ethtool -s eth0 advertise 0x2000000000", "ethtool eth0", "100000baseSR4/Full"), ("ethtool -s eth0 wol d", "ethtool eth0", "Wake-on: d"),
    ("ethtool -r eth0", "ethtool eth0", "Link detected: yes"), ("ethtool -p eth0 1", "ethtool eth0", "Link detected: yes"),
    ("ethtool -t eth0 online", "ethtool eth0", "Link detected: yes"), ("ethtool -t eth0 offline", "ethtool eth0", "Link detected: yes"),
    ("devlink dev param set pci/0000:01:00.0 name enable_roce value false cmode runtime", "devlink dev param show", "value false"),
    ("devlink dev param set pci/0000:01:00.0 name enable_roce value true cmode runtime", "devlink dev param show", "value true"),
    ("devlink dev eswitch set pci/0000:01:00.0 mode switchdev", "devlink dev eswitch show pci/0000:01:00.0", "mode switchdev"),
    ("devlink dev eswitch set pci/0000:01:00.0 mode legacy", "devlink dev eswitch show pci/0000:01:00.0", "mode legacy"),
    ("bridge link set dev eth0 hwmode vepa", "bridge link show", "hwmode VEPA"), ("bridge link set dev eth0 hwmode veb", "bridge link show", "hwmode VEB"),
    ("tc qdisc add dev eth0 root handle 1: mqprio num_tc 2 map 0 0 0 1 1 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 1 mode channel", "tc qdisc show dev eth0", "mode:channel"),
    ("tc qdisc del dev eth0 root", "tc qdisc show dev eth0", "fq_codel"),
    ("ip link set eth0 address 02:11:22:33:44:55", "ip link show dev eth0", "02:11:22:33:44:55"), ("ip link set eth0 address 02:e8:10:00:00:01", "ip link show dev eth0", "02:e8:10:00:00:01"),
    ("ip link set eth0 promisc on", "ip link show dev eth0", "PROMISC"), ("ip link set eth0 promisc off; ip link set eth0 allmulticast on", "ip link show dev eth0", "ALLMULTI"),
    ("ip link set eth0 allmulticast off", "ip link show dev eth0", "UP"), ("ip link set eth0 mtu 9702", "ip link show dev eth0", "mtu 9702"), ("ip link set eth0 mtu 1500", "ip link show dev eth0", "mtu 1500"),
)

# Commands that ice or the card refuses: the error that both give.
REFUSED = (
    "ethtool -A eth0 autoneg on", "ethtool -C eth0 rx-usecs 8164", "ethtool -C eth0 rx-usecs-high 300", "ethtool -L eth0 rx 1 tx 1 combined 0", "ethtool -X eth0 hfunc xor",
    "ethtool -s eth0 autoneg on", "ethtool --set-fec eth0 encoding llrs", "ethtool --show-eee eth0", "ethtool --cable-test eth0", "ip link set eth0 mtu 9703",
    "devlink dev param set pci/0000:01:00.0 name enable_iwarp value true cmode runtime", "devlink dev reload pci/0000:01:00.0 action fw_activate", "devlink port split pci/0000:01:00.0/0 count 2",
)
# Lines that ice prints of these.
SAID = (r"Dedicated RX or TX channels cannot be used simultaneously", r"Unsupported FEC mode", r"max MTU for XDP usage is", r"Disabling VLAN stripping as FCS/CRC stripping is also disabled")

# After `mqprio` in hardware ice frees neither the profiles of the hash that it made for the VSI of the second class, nor their entries.
MQPRIO_LEAVES = re.compile(r"^\((60|61), ")

# Results of an XDP program. Source: linux/bpf.h.
XDP_DROP, XDP_PASS = 1, 2


def program(result):
    """The object of an XDP program that returns `result`: sections, their names, and the symbols of program and licence."""
    code = struct.pack("<BBhiBBhi", 0xB7, 0, 0, result, 0x95, 0, 0, 0)
    names, licence = b"\0xdp\0license\0.symtab\0.strtab\0prog\0_license\0", b"GPL\0"
    at = lambda name: names.index(b"\0" + name + b"\0") + 1  # noqa: E731
    symbol = lambda name, info, section, size: struct.pack("<IBBHQQ", name, info, 0, section, 0, size)  # noqa: E731
    symbols = symbol(0, 0, 0, 0) + symbol(0, 3, 1, 0) + symbol(at(b"prog"), 0x12, 1, len(code)) + symbol(at(b"_license"), 0x11, 2, len(licence))
    # Name, type, flags, bytes, link, info, alignment, size of an entry.
    parts = ((at(b"xdp"), 1, 6, code, 0, 0, 8, 0), (at(b"license"), 1, 3, licence, 0, 0, 1, 0), (at(b".symtab"), 2, 0, symbols, 4, 2, 8, 24), (at(b".strtab"), 3, 0, names, 0, 0, 1, 0))
    body, headers = b"", bytes(64)
    for name, kind, flags, data, link, info, alignment, entry in parts:
        body += bytes(-len(body) % 8)
        headers += struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, 64 + len(body), len(data), link, info, alignment, entry)
        body += data
    body += bytes(-len(body) % 8)
    start = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 247, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 5, 4)
    return start + body + headers


def answers(guest, command, wanted):
    said = guest.run(command)
    if wanted not in said:
        raise Failed(f"`{command}` does not say {wanted!r}:\n{said[-2500:]}")


def pinged(guest, address, wanted=True):
    """True if an echo comes back, within some seconds if one is wanted."""
    tries = "for i in $(seq 30); do ping -q -c 1 -W 1 {0} && exit 0; done; exit 1" if wanted else "ping -q -c 3 -i 0.2 -W 1 {0}"
    status, said = guest.ask(tries.format(address), 60)
    if (status == 0) != wanted:
        raise Failed(f"{guest.name}: ping {address} ended with {status}:\n{said[-500:]}\n{guest.tail()}")


def features(guest):
    """Each feature that can be changed, and its state."""
    return dict(re.findall(r"^\s*([a-z0-9-]+): (on|off)(?! \[fixed\]).*$", guest.run("ethtool -k eth0"), re.M))


def ethtool(stage):
    """Every query and setting of ethtool and devlink on ice, each feature off and on, the self-tests, XDP, mqprio: link and ping afterwards, no breach."""
    first, _ = stations(stage, options=["--timer", "controlled"])
    stage.allowed = (*SAID, *LATE)
    kind = "resources (type, number)"
    stage.leaves = stage.leaves | {kind: (*stage.leaves[kind], MQPRIO_LEAVES)}
    first.run("modprobe sch_mqprio")
    for command, wanted in QUERIES:
        answers(first, command, wanted)
    if "register dump failed" in first.kernel_log():
        raise Failed("`ethtool -d` has not read the equalizers of the lanes")
    for change, query, wanted in SETTINGS:
        first.run(change)
        carrier(first)
        answers(first, query, wanted)
    pinged(first, "10.0.0.2")
    for command in REFUSED:
        status, said = first.ask(command)
        if status == 0:
            raise Failed(f"`{command}` succeeded:\n{said}")
    before = features(first)
    for name, state in before.items():
        for value in ({"on": "off", "off": "on"}[state], state):
            first.run(f"ethtool -K eth0 {name} {value}")
        carrier(first)
    pinged(first, "10.0.0.2")
    changed = {name for name, state in features(first).items() if before.get(name) != state}
    flags = re.findall(r"^(\S+)\s*: off$", first.run("ethtool --show-priv-flags eth0"), re.M)
    for name in flags:
        first.run(f"ethtool --set-priv-flags eth0 {name} on; ethtool --set-priv-flags eth0 {name} off")
        carrier(first)
    xdp(first)
    if changed:
        raise Failed(f"features that did not come back: {changed}")
    wrong = {name: value for name, value in counters(first).items() if name in ("rx_csum_bad.nic", "tx_timeout.nic", "tx_errors.nic") and value}
    if wrong:
        raise Failed(f"{wrong}")
    return f"{len(QUERIES)} queries, {len(SETTINGS)} settings, {len(REFUSED)} refusals, {len(before)} features and {len(flags)} flags changed and back, XDP by the driver and by the stack"


def xdp(guest):
    """Programs that pass and drop, in the driver and in the stack above it."""
    for name, result in (("pass", XDP_PASS), ("drop", XDP_DROP)):
        guest.run(f"echo {base64.b64encode(program(result)).decode()} | base64 -d > /run/{name}.o")
    for mode in ("xdpdrv", "xdpgeneric"):
        for name in ("pass", "drop"):
            guest.run(f"ip link set dev eth0 {mode} obj /run/{name}.o sec xdp")
            carrier(guest)
            answers(guest, "ip link show dev eth0", "prog/xdp")
            before = count(guest, "rx_unicast.nic")
            pinged(guest, "10.0.0.2", name == "pass")
            guest.run(f"ip link set dev eth0 {mode} off")
            carrier(guest)
            if mode == "xdpdrv" and name == "pass":
                # With fewer queues, and with frames as long as they may be.
                guest.run("ip link set dev eth0 xdpdrv obj /run/pass.o sec xdp; ip link set eth0 mtu 3000; ethtool -L eth0 combined 1")
                carrier(guest)
                pinged(guest, "10.0.0.2")
                guest.run("ip link set dev eth0 xdpdrv off; ip link set eth0 mtu 1500; ethtool -L eth0 combined 2")
                carrier(guest)
            if count(guest, "rx_unicast.nic") < before:
                raise Failed("the port's count of frames went back")
    pinged(guest, "10.0.0.2")


def tunnelled(stage):
    """VXLAN and Geneve over ice, which tells the card their ports: ping and TCP inside, no checksum is found wrong, the ports are taken back."""
    guests = stations(stage)
    for guest in guests:
        guest.run("modprobe -a vxlan geneve")
    shown = []
    for kind, port, prefix, options in (("vxlan", 4789, "10.7.0", "dstport 4789"), ("geneve", 6081, "10.8.0", "")):
        for own, other in ((0, 1), (1, 0)):
            guests[own].run(f"set -e; ip link add tunnel type {kind} id 7 remote 10.0.0.{other + 1} {options}; "
                            f"ip addr add {prefix}.{own + 1}/24 dev tunnel; ip link set tunnel up")
        pinged(guests[1], f"{prefix}.1")
        answers(guests[0], "ethtool --show-tunnels eth0", f"port {port}, {kind}")
        end = iperf(guests[0], guests[1], f"{prefix}.1", seconds=2)
        shown.append(f"{kind} {megabits(end):.0f}")
        for guest in guests:
            guest.run("ip link del tunnel")
        said = guests[0].run("ethtool --show-tunnels eth0")
        if f", {kind}" in said:
            raise Failed(f"the port of {kind} is still there:\n{said}")
    for guest in guests:
        if count(guest, "rx_csum_bad.nic"):
            raise Failed(f"{guest.name}: {count(guest, 'rx_csum_bad.nic')} checksums were found wrong")
    return f"TCP inside of {', '.join(shown)} Mbit/s"


def stacked(stage):
    """Interfaces on top of ice: a bridge, macvlan, and a bond that changes its card when the link is lost and when it comes back."""
    # A bond sets the MTU that its card has.
    stage.allowed = (r"MTU is already 1500",)
    stage.serve(3)
    ours = Guest(stage.rig, stage.folder, "guest0", sockets=stage.server.sockets[:2])
    theirs = Guest(stage.rig, stage.folder, "guest1", sockets=stage.server.sockets[2:])
    stage.guests += [ours, theirs]
    for guest in stage.guests:
        guest.booted()
        load(guest)
    theirs.run("ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up")
    carrier(theirs)
    ours.run("modprobe -a bridge macvlan; modprobe bonding max_bonds=0; for i in $(seq 100); do [ -e /sys/class/net/eth1 ] && break; sleep 0.1; done; ip link set eth0 up")
    carrier(ours)
    ours.run("set -e; ip link add br0 type bridge; ip link set eth0 master br0; ip addr add 10.0.0.1/24 dev br0; ip link set br0 up")
    pinged(ours, "10.0.0.2")
    ours.run("set -e; ip link del br0; ip link add link eth0 name above type macvlan mode bridge; ip addr add 10.0.0.1/24 dev above; ip link set above up")
    pinged(ours, "10.0.0.2")
    # A packet to a second address of the card: its filter lets it through, and the stack knows whose it is.
    theirs.run("ip neigh flush all")
    pinged(theirs, "10.0.0.1")
    ours.run("set -e; ip link del above; ip link set eth0 down; ip link add bond0 type bond mode active-backup miimon 100; ip link set eth0 master bond0; ip link set eth1 master bond0; ip addr add 10.0.0.1/24 dev bond0; ip link set bond0 up")
    pinged(ours, "10.0.0.2")
    active = lambda: ours.run("cat /sys/class/net/bond0/bonding/active_slave").strip()  # noqa: E731
    seen = [active()]
    for _ in range(2):
        # The bond stays with the card that it changed to.
        # Function n is 0000:(n+1):00.0, and has any of the two names.
        bus = ours.run(f"basename $(readlink /sys/class/net/{seen[-1]}/device)").split(":")[1]
        lost = str(int(bus, 16) - 1)
        stage.server.tell("fault", lost, "link-down")
        other = "eth1" if seen[-1] == "eth0" else "eth0"
        ours.run(f"for i in $(seq 100); do [ $(cat /sys/class/net/bond0/bonding/active_slave) = {other} ] && exit 0; sleep 0.1; done; exit 1", 30)
        pinged(ours, "10.0.0.2")
        pinged(theirs, "10.0.0.1")
        seen.append(active())
        stage.server.tell("clear", lost, "link-down")
        ours.run(f"for i in $(seq 100); do [ \"$(cat /sys/class/net/{seen[-2]}/carrier)\" = 1 ] && exit 0; sleep 0.1; done; exit 1", 30)
    ours.run("ip link del bond0")
    return f"ping over a bridge, macvlan and a bond, whose active card was {', '.join(seen)}"
