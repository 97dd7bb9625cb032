"""Our driver on one function, Linux's irdma in a guest on the other: reliable connections both ways, every byte compared."""
import re
import socket

from machine import Failed
from .stage import address, load, rdma_active
from .vfio import built

HOST = "192.168.76.2"


def free_port():
    """A free TCP port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def guest_with_way_out(stage, mtu=1500):
    """One guest on function 0 with irdma up and a TCP connection to this machine; function 1 is for our driver."""
    stage.serve(2)
    port = free_port()
    guest, = stage.boot(host_port=port)
    load(guest)
    address(guest, 0, mtu)
    # Our driver takes 10.x.y.z from its MAC address.
    guest.run("ip route add 10.0.0.0/8 dev eth0; modprobe irdma; modprobe virtio_net; "
              "ip addr add 192.168.76.15/24 dev eth1; ip link set eth1 up", 30)
    rdma_active(guest)
    return guest, port


def verified(output, guest_says):
    """The number of tests that both sides have compared."""
    rounds = [line for line in guest_says.splitlines() if line.startswith("verified: ")]
    if not rounds:
        raise Failed(f"the guest verified nothing:\n{guest_says[-1500:]}\nringside:\n{output[-1500:]}")
    return len(rounds)


def ringside_asks(stage, guest, port, options="", ours=()):
    """ringside bench is the client, verbs_peer the server; returns the number of tests."""
    guest.start("verbs_peer", f"timeout 120 verbs_peer {options} -l exchange")
    guest.run("for i in $(seq 100); do netstat -ltn | grep -q :18515 && exit 0; sleep 0.1; done; exit 1")
    asked = stage.host_program("bench", "--connect", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}",
                               "--verify-only", *ours).finish(120)
    status, followed = guest.finish("verbs_peer", 20)
    if status != 0:
        raise Failed(f"verbs_peer as server ended with {status}:\n{followed[-1500:]}\nringside:\n{asked[-1500:]}")
    return verified(asked, followed)


def guest_asks(stage, guest, options=""):
    """verbs_peer is the client, ringside bench the server; returns the number of tests."""
    port = free_port()
    listening = stage.host_program("bench", "--listen", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}")
    requested = guest.run(f"timeout 120 verbs_peer {options} -c {HOST} -p {port} exchange", 130)
    return verified(listening.finish(20), requested)


def datagrams_with(stage, guest, port, options=""):
    """Datagrams, each answered: our program connects and the guest's listens, then the other way round; returns their number."""
    program, function = built(stage, "example", "datagrams"), f"vfio-user:{stage.server.sockets[-1]}"
    guest.start("verbs_peer", f"timeout 60 verbs_peer {options} -l datagrams")
    guest.run("for i in $(seq 100); do netstat -ltn | grep -q :18515 && exit 0; sleep 0.1; done; exit 1")
    connecting = stage.start_program([program, "connect", f"127.0.0.1:{port}", function])
    try:
        said = connecting.finish(60)
    except Failed as failure:
        raise Failed(f"{failure}\nverbs_peer:\n{guest.finish('verbs_peer', 5)[1][-1500:]}") from None
    status, told = guest.finish("verbs_peer", 20)
    if status != 0:
        raise Failed(f"verbs_peer as server ended with {status}:\n{told[-1500:]}\nours:\n{said[-1500:]}")
    port = free_port()
    listening = stage.start_program([program, "listen", f"127.0.0.1:{port}", function])
    listening.says("listening on", 30)
    told += guest.run(f"timeout 60 verbs_peer {options} -c {HOST} -p {port} datagrams", 70)
    said += listening.finish(20)
    numbers = [[int(number) for number in re.findall(r"^verified: (\d+) datagrams", text, re.M)] for text in (said, told)]
    if numbers[0] != numbers[1] or len(numbers[0]) != 2 or 0 in numbers[0]:
        raise Failed(f"compared: {numbers}\nours:\n{said[-1500:]}\nverbs_peer:\n{told[-1500:]}")
    return sum(numbers[0])


def datagrams(stage):
    """Datagrams between our driver and irdma: from either side, answered to their source, each compared."""
    guest, port = guest_with_way_out(stage)
    return f"{datagrams_with(stage, guest, port)} datagrams of 1 to 1024 bytes, each answered, immediate data in half of them"


def driver_and_irdma(stage):
    """ringside bench is the client and verbs_peer the server, then the other way round: writes, reads, sends, with and without immediate data."""
    guest, port = guest_with_way_out(stage)
    first, second = ringside_asks(stage, guest, port), guest_asks(stage, guest)
    return (f"{first} tests as ringside asked, {second} as the guest asked, each side requester and responder in each")


def large_mtu(stage):
    """The same at path MTU 4096."""
    guest, port = guest_with_way_out(stage, mtu=9000)
    first, second = ringside_asks(stage, guest, port), guest_asks(stage, guest)
    return f"{first} and {second} tests at path MTU 4096"
