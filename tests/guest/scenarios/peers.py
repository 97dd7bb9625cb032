"""Our driver against peers that nobody here wrote: over the kernel's VFIO in one guest, Linux's irdma in another."""
import re

from machine import Failed, Guest
from .ours import HOST, free_port, verified
from .perftest import rows
from .stage import address, load, rdma_active
from .vfio import FIRST, bound, free_huge_pages, own_guest


def way_out(guest, device):
    """The address of the guest's card to this machine, over which two guests reach each other's TCP ports."""
    guest.run("modprobe virtio_net; for i in $(seq 100); do [ -e /sys/class/net/%s ] && break; sleep 0.1; done; "
              "ip addr add 192.168.76.15/24 dev %s; ip link set %s up" % (device, device, device), 30)


def vfio_and_irdma(stage):
    """Two guests: our command on one function behind an IOMMU, irdma on the other; gives both, with their ports on this machine."""
    ours_port, theirs_port = free_port(), free_port()
    ours = own_guest(stage, used=1, host_port=ours_port)
    way_out(ours, "eth0")
    theirs = Guest(stage.rig, stage.folder, "guest1", sockets=[stage.server.sockets[1]], host_port=theirs_port)
    stage.guests.append(theirs)
    theirs.booted()
    load(theirs)
    address(theirs, 1)
    # Our driver takes 10.x.y.z from its MAC address.
    theirs.run("ip route add 10.0.0.0/8 dev eth0; modprobe irdma", 30)
    rdma_active(theirs)
    way_out(theirs, "eth1")
    bound(ours, FIRST)
    return ours, ours_port, theirs, theirs_port


def listening(guest, name):
    """Waits until a program that was started listens on port 18515."""
    guest.run("for i in $(seq 200); do netstat -ltn | grep -q :18515 && exit 0; "
              f"[ -e /run/{name}.status ] && break; sleep 0.1; done; cat /run/{name}.output; exit 1", 40)


def both(server, serving, client, asking, seconds=120):
    """A command in one guest that listens, a command in the other that connects; gives what each said."""
    server.start("serving", f"timeout {seconds} {serving}")
    listening(server, "serving")
    status, asked = client.ask(f"timeout {seconds} {asking}", seconds + 10)
    served, told = server.finish("serving", 20)
    if status != 0 or served != 0:
        raise Failed(f"`{asking}` ended with {status}, `{serving}` with {served}\n{asked[-2000:]}\n{told[-2000:]}")
    return asked, told


def vfio_irdma(stage):
    """Our driver over /dev/vfio in one guest, irdma in another: writes, reads, sends, as either decides; perftest's programs."""
    ours, ours_port, theirs, theirs_port = vfio_and_irdma(stage)
    before = free_huge_pages(ours)
    ringside = f"ringside bench --device {FIRST}"
    asked, followed = both(theirs, "verbs_peer -l exchange", ours, f"{ringside} --connect {HOST}:{theirs_port} --verify-only")
    first = verified(asked, followed)
    asked, followed = both(ours, f"{ringside} --listen 0.0.0.0", theirs, f"verbs_peer -c {HOST} -p {ours_port} exchange")
    second = verified(followed, asked)
    programs = perftest_programs(ours, ours_port, theirs, theirs_port, ringside)
    after = free_huge_pages(ours)
    if after != before or before == 0:
        raise Failed(f"{after} huge pages are free afterwards, {before} were before")
    return (f"{first} tests as ringside asked, {second} as irdma's side asked, each side requester and responder in each; "
            f"{programs} of perftest's programs as server and as client")


PROGRAMS = (("ib_write_bw", "write bw"), ("ib_read_lat", "read lat"), ("ib_send_bw", "send bw"))
MESSAGES = 20


def perftest_programs(ours, ours_port, theirs, theirs_port, ringside):
    """Three of Debian's programs beside irdma, ringside as client and as server; gives their number."""
    told = ours.run(f"ringside info --json --device {FIRST}", 60)
    mac = re.search(r'"mac": "([0-9a-f:]+)"', told).group(1)
    link_local = re.search(r"fe80::[0-9a-f:]+", told).group(0)
    theirs.run(f"ip neigh replace {link_local} lladdr {mac} dev eth0 nud permanent")
    flags = f"-s 65536 -n {MESSAGES}"
    for program, words in PROGRAMS:
        beside = f"{program} -d irdma0 -x 0 -F {flags}"
        said = both(theirs, beside, ours, f"{ringside} --connect {HOST}:{theirs_port} --perftest {words} {flags}")
        said += both(ours, f"{ringside} --listen 0.0.0.0 --perftest {words} {flags}", theirs, f"{beside} -p {ours_port} {HOST}")
        # Each side that asked shows a row; the servers of perftest's bandwidth tests do as well.
        if rows(said[0], MESSAGES) != 1 or rows(said[2], MESSAGES) != 1:
            raise Failed(f"{program}: no figures:\n" + "\n".join(text[-1000:] for text in said))
    return len(PROGRAMS)
