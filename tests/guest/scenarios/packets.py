"""Our packet queues on one function, Linux's ice in guests on the others: forwarding, echo, an interface of this machine, DHCP."""
import json
import os
import re
import subprocess

from machine import Failed, Skipped, wait_until
from .lan import iperf, megabits
from .stage import carrier, load


# A network namespace of this machine.
ALONE = ("unshare", "--user", "--map-root-user", "--net")


def device(server):
    """The address of a server's last function, which is ours."""
    return f"vfio-user:{server.sockets[-1]}"


def station(guest, last, mtu=1500):
    """Loads ice and gives eth0 10.0.0.`last` and fd00::`last`."""
    load(guest)
    guest.run(f"ip link set eth0 mtu {mtu}; ip addr add 10.0.0.{last}/24 dev eth0; ip -6 addr add fd00::{last}/64 dev eth0 nodad; "
              "ip link set eth0 up")
    carrier(guest)


def ended(stage, program):
    """Ends a program of ours, and waits until the model has noticed and has reset its function."""
    noticed = "function was reset function=1"
    before = stage.server.text().count(noticed)
    program.stop()
    wait_until("the model to notice that our program has ended", 10, lambda: stage.server.text().count(noticed) > before)


def last_report(program):
    """The last line of JSON that a program printed, once it has ended by a signal."""
    program.stop()
    lines = [line for line in program.text().splitlines() if line.startswith("{")]
    if not lines:
        raise Failed(f"{program.name} printed no report:\n{program.text()[-1500:]}")
    return json.loads(lines[-1])


def echo(stage):
    """`ringside forward --mode icmp-echo` on two queues answers ARP and ping of Linux, for every address, in packets of all sizes."""
    stage.serve(2)
    guest, = stage.boot(1)
    program = stage.host_program("forward", "--device", device(stage.server), "--mode", "icmp-echo", "--queues", "2", "--mtu", "9000", "--json")
    station(guest, 1, mtu=9000)
    for address in range(2, 12):
        guest.run(f"ping -q -c 3 -i 0.05 10.0.0.{address}", 30)
    for size in (0, 1, 56, 1472, 4000, 8972):
        guest.run(f"ping -q -M do -c 5 -i 0.05 -s {size} 10.0.0.2", 30)
    last_report(program)
    return "ten addresses found by ARP and pinged, payloads of 0 to 8972 bytes in one packet each"


# Both guests have this address where packets come with their addresses exchanged, and the address that they know of each other.
SAME, OTHER = "52:54:00:00:04:01", "52:54:00:00:04:02"


def with_same_address(guest, other):
    """Gives eth0 the address that both guests have, and enters the other guest: a broadcast comes back with no sender to answer."""
    guest.run(f"ip link set eth0 addrgenmode none; ip link set eth0 down; ip link set eth0 address {SAME}; ip link set eth0 up; "
              f"ip -6 addr replace fd00::{3 - other}/64 dev eth0 nodad; ip link set v5 address {SAME}; ip link set v5 up")
    carrier(guest)
    for address, name in ((f"10.0.0.{other}", "eth0"), (f"10.5.0.{other}", "v5"), (f"fd00::{other}", "eth0")):
        guest.run(f"ip neigh replace {address} lladdr {OTHER} dev {name} nud permanent")


def traffic(first, second):
    """Ping over IPv4, IPv6, in VLAN 5 and in 9000 bytes, TCP and UDP through a forwarder; returns rates and the share of lost datagrams."""
    first.run("ping -q -c 20 -i 0.05 10.0.0.2; ping -q -c 20 -i 0.05 fd00::2; ping -q -c 10 -i 0.05 10.5.0.2; "
              "ping -q -M do -c 5 -i 0.05 -s 8972 10.0.0.2", 60)
    rates = [f"{megabits(iperf(first, second, address, options)):.0f}"
             for address, options in (("10.0.0.1", ""), ("fd00::1", "-R"), ("10.5.0.1", ""))]
    lost = iperf(first, second, "10.0.0.1", "-u -b 5M -l 1400")["sum"]["lost_percent"]
    if lost > 50:
        raise Failed(f"{lost} % of the datagrams were lost")
    for guest in (first, second):
        wrong = guest.run("ethtool -S eth0 | grep -E 'rx_csum_bad|rx_crc_errors' | grep -v ': 0$' || true").strip()
        if wrong:
            raise Failed(f"{guest.name}: {wrong}")
    return f"TCP at {', '.join(rates)} Mbit/s (IPv4, IPv6 back, VLAN), {lost:.1f} % of datagrams lost"


def forward(stage):
    """`ringside forward` joins two wires, a guest on each, in the modes io and macswap: ping, IPv6, VLAN, MTU 9000, iperf3 over TCP and UDP."""
    stage.serve(2)
    # Its numbers, from which MAC addresses follow, differ from those of the first one.
    other = stage.serve_another(2, ["--first", "8"])
    first, = stage.boot(1)
    second = stage.boot_at(other.sockets[0], "second")
    shown = []
    for mode in ("io", "macswap"):
        program = stage.host_program("forward", "--device", device(stage.server), "--device", device(other), "--mode", mode, "--mtu", "9000", "--json")
        for last, guest in ((1, first), (2, second)):
            if mode == "macswap":
                with_same_address(guest, 3 - last)
                continue
            station(guest, last, mtu=9000)
            guest.run("ip link add link eth0 name v5 type vlan id 5; "
                      f"ip addr add 10.5.0.{last}/24 dev v5; ip link set v5 up")
        shown.append(f"{mode}: {traffic(first, second)}")
        last_report(program)
    for guest in (first, second):
        # ice leaves an address that it has written.
        guest.run("ip link set eth0 down; ip link set eth0 address $(ethtool -P eth0 | cut -d ' ' -f 3)")
    return f"ping over IPv4, IPv6, VLAN 5 and in 9000 bytes; {'; '.join(shown)}"


def tapped(stage, options, addresses):
    """`ringside tap` in a namespace of this machine, with addresses and a server of iperf3 on its interface; returns the program."""
    iperf3 = os.path.join(stage.rig, "bin/iperf3")
    given = "".join(f"ip addr add {address} dev ring0 {'nodad' if ':' in address else ''}; " for address in addresses)
    # The command, and in the same namespace what a user would type beside it.
    script = (f"'{stage.ringside}' tap --device {device(stage.server)} --interface ring0 --mtu 9000 {options} & tap=$!; "
              f"for i in $(seq 200); do ip link show ring0 >/dev/null 2>&1 && break; sleep 0.1; done; {given} ip link set ring0 up; "
              f"'{iperf3}' -s >/dev/null & server=$!; trap 'kill $tap $server' TERM INT; echo interface ready; wait $tap; wait $tap")
    program = stage.start_program([*ALONE, "bash", "-c", script], 240)
    program.says("interface ready", 30)
    return program


def host_interface(stage):
    """`ringside tap` gives a namespace of this machine an interface over our queues: ping, TCP both ways, IPv6, MTU 9000; the same in VLAN 5."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise Skipped("/dev/net/tun is not there or not this user's to open")
    if subprocess.run([*ALONE, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skipped("this machine does not allow user namespaces with a network of their own")
    stage.serve(2)
    guest, = stage.boot(1)
    station(guest, 1, mtu=9000)
    guest.run("ip link add link eth0 name v5 type vlan id 5; ip addr add 10.5.0.1/24 dev v5; ip link set v5 up")

    def rates(*runs):
        ends = [json.loads(guest.run(f"iperf3 -c {address} -t 2 -J {options}", 60))["end"] for address, options in runs]
        return ", ".join(f"{megabits(end):.0f}" for end in ends)
    program = tapped(stage, "", ("10.0.0.9/24", "fd00::9/64"))
    guest.run("ping -q -c 10 -i 0.05 10.0.0.9; ping -q -c 10 -i 0.05 fd00::9; ping -q -M do -c 3 -i 0.05 -s 8972 10.0.0.9", 60)
    plain = rates(("10.0.0.9", ""), ("10.0.0.9", "-R"), ("fd00::9", ""))
    ended(stage, program)
    program = tapped(stage, "--vlan 5", ("10.5.0.9/24", "10.0.0.9/24"))
    guest.run("ip neigh flush dev eth0; ping -q -c 10 -i 0.05 10.5.0.9; ping -q -M do -c 3 -i 0.05 -s 8972 10.5.0.9", 60)
    tagged = rates(("10.5.0.9", ""), ("10.5.0.9", "-R"))
    status, _ = guest.ask("ping -q -c 3 -i 0.1 -W 1 10.0.0.9", 30)
    if status == 0:
        raise Failed("a frame without a tag reached the interface of VLAN 5")
    ended(stage, program)
    return f"ping in 9000 bytes and over IPv6, TCP to the interface, back and over IPv6 at {plain} Mbit/s; in VLAN 5 alone at {tagged} Mbit/s"


def lease(stage):
    """Our port asks dnsmasq in a guest for its address; the guest then pings it, and finds it by ARP."""
    stage.serve(2)
    guest, = stage.boot(1)
    station(guest, 1)
    guest.run("[ -e /etc/passwd ] || echo 'root:x:0:0::/:/bin/sh' > /etc/passwd; [ -e /etc/group ] || echo 'root:x:0:' > /etc/group")
    guest.start("dhcp", "timeout 100 dnsmasq -d --port=0 --interface=eth0 --bind-interfaces --user=root --leasefile-ro "
                        "--dhcp-range=10.0.0.50,10.0.0.59,255.255.255.0,1h --log-dhcp")
    path = os.path.join(stage.folder, "lease.toml")
    with open(path, "w") as file:
        file.write("[network]\ndhcp = true\n")
    # A program that opens the device and waits: what runs here is the port's own stack.
    program = stage.host_program("run", "--config", path, "--device", device(stage.server), "--", "ibv_asyncwatch")

    def leased():
        found = re.search(r"DHCPACK\(eth0\) (10\.0\.0\.5\d)", guest.run("cat /run/dhcp.output"))
        return found and found[1]
    try:
        wait_until("an acknowledged lease", 30, leased)
    except Failed as failure:
        heard = guest.run("cat /run/dhcp.output; ethtool -S eth0 | grep -E 'rx_(uni|multi|broad)cast|rx_dropped'")
        raise Failed(f"{failure}\ndnsmasq:\n{heard[-1500:]}\n{program.text()[-1500:]}") from None
    address = leased()
    guest.run(f"ping -q -c 10 -i 0.05 {address}", 30)
    ended(stage, program)
    # A program that is killed leaves its VSI and rules in the device; the next claim removes them.
    stage.host_program("bring-up", "--device", device(stage.server)).finish(30)
    return f"{address} by DHCP of dnsmasq, ten pings answered"
