"""Our driver against peers from other projects: Linux's irdma while ours is behind the kernel's VFIO, and Linux's soft-RoCE."""
import os
import re
import shutil
import subprocess
import time

from machine import PATIENCE, Failed, Guest
from . import ours as meeting
from . import perftest
from .ours import HOST, free_port, verified
from .perftest import rows
from .stage import address, load, rdma_active
from .vfio import FIRST, bound, built, free_huge_pages, own_guest


# A request of the kernel's that is not followed is repeated after 10 s.
RELEASE_SECONDS = 8
# Regions that are made and dropped.
REGIONS = int(os.environ.get("RINGSIDE_REGIONS", "5000"))


def way_out(guest, device):
    """The address of the guest's card to this machine, over which two guests reach each other's TCP ports."""
    guest.run("modprobe virtio_net; for i in $(seq 100); do [ -e /sys/class/net/%s ] && break; sleep 0.1; done; "
              "ip addr add 192.168.76.15/24 dev %s; ip link set %s up" % (device, device, device), 30)


def vfio_and_irdma(stage, example="datagrams", lifetime=600, gigantic=0):
    """Two guests: our command and an example on one function behind an IOMMU, irdma on the other; returns both, with their ports on this machine."""
    ours_port, theirs_port = free_port(), free_port()
    program = built(stage, "example", example)
    ours = own_guest(stage, files={f"usr/bin/{example}": program}.items(), used=1, host_port=ours_port, lifetime=lifetime,
                     gigantic=gigantic)
    way_out(ours, "eth0")
    theirs = Guest(stage.rig, stage.folder, "guest1", sockets=[stage.server.sockets[1]], host_port=theirs_port, lifetime=lifetime)
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
    """A command in one guest that listens, a command in the other that connects; returns the output of each."""
    limit = f"timeout {seconds * PATIENCE:.0f}"
    server.start("serving", f"{limit} {serving}")
    listening(server, "serving")
    status, asked = client.ask(f"{limit} {asking}", seconds + 10)
    served, told = server.finish("serving", 20)
    if status != 0 or served != 0:
        raise Failed(f"`{asking}` ended with {status}, `{serving}` with {served}\n{asked[-2000:]}\n{told[-2000:]}")
    return asked, told


def vfio_irdma(stage):
    """Our driver over /dev/vfio in one guest, irdma in another: writes, reads, sends, with either as client; datagrams; perftest."""
    ours, ours_port, theirs, theirs_port = vfio_and_irdma(stage)
    before = free_huge_pages(ours)
    ringside = f"ringside bench --device {FIRST}"
    asked, followed = both(theirs, "verbs_peer -l exchange", ours, f"{ringside} --connect {HOST}:{theirs_port} --verify-only")
    first = verified(asked, followed)
    asked, followed = both(ours, f"{ringside} --listen 0.0.0.0", theirs, f"verbs_peer -c {HOST} -p {ours_port} exchange")
    second = verified(followed, asked)
    answered = 0
    for said in (both(theirs, "verbs_peer -l datagrams", ours, f"datagrams connect {HOST}:{theirs_port} {FIRST}"),
                 both(ours, f"datagrams listen 0.0.0.0:18515 {FIRST}", theirs, f"verbs_peer -c {HOST} -p {ours_port} datagrams")):
        answered += min(int(number) for text in said for number in re.findall(r"^verified: (\d+) datagrams", text, re.M))
    programs = perftest_programs(ours, ours_port, theirs, theirs_port, ringside)
    after = free_huge_pages(ours)
    if after != before or before == 0:
        raise Failed(f"{after} huge pages are free afterwards, {before} were before")
    return (f"{first} tests as ringside asked, {second} as irdma's side asked, each side requester and responder in each; "
            f"{answered} datagrams, each answered; {programs} of perftest's programs as server and as client")


def vfio_memory(stage):
    """A program's own memory over /dev/vfio, irdma in another guest: unaligned bytes, huge pages of 2 MiB and 1 GiB, a mapped file, a memfd; forks under
    traffic, an address added meanwhile, thousands of regions."""
    lifetime = 600 + REGIONS // 20
    ours, _, theirs, theirs_port = vfio_and_irdma(stage, "memory", lifetime=lifetime, gigantic=1)
    before = free_huge_pages(ours)
    ours.run("mount -t tmpfs tmpfs /mnt")
    asked, _ = both(theirs, "verbs_peer -l exchange", ours, f"sh -c 'cd /mnt; memory {HOST}:{theirs_port} {FIRST} {REGIONS}'", lifetime - 200)
    found = re.search(r"^(\d+) tests verified\n(\d+) regions made and dropped, (\S+) each$", asked, re.M)
    kinds = re.findall(r"^verified: (.+)$", asked, re.M)
    if not found or len(kinds) < 6 or not {"two huge pages", "a page of 1 GiB"} <= set(kinds) or int(found[2]) != REGIONS:
        raise Failed(f"the program says:\n{asked[-2000:]}")
    after = free_huge_pages(ours)
    if after != before or before == 0:
        raise Failed(f"{after} huge pages are free afterwards, {before} were before")
    return f"{found[1]} tests on {', '.join(kinds)}; {found[2]} regions made and dropped, {found[3]} each"


# The scenes of verbs_peer that tests/examples/facade.rs plays with; the kernel asks the network for our addresses.
FACADE_SCENES = "exchange failures"
# Added to our port at run time (tests/examples/exchange).
ADDED = "10.77.0.9"
STATUSES = 3


def facade_says(asked):
    """Checks what the program prints; returns a sentence."""
    found = re.search(r"^(\d+) tests verified$", asked, re.M)
    kinds = re.findall(r"^verified: (.+)$", asked, re.M)
    failed = re.findall(r"^status: (.+), ([0-3]) requests flushed$", asked, re.M)
    statuses = [status for status, _ in failed]
    # A queue pair that fails before all are posted takes no more: one of them is seen with all.
    is_flushed = "3" in [count for _, count in failed]
    if not found or "two huge pages" not in kinds or len(statuses) != STATUSES or not is_flushed:
        raise Failed(f"the program says:\n{asked[-2000:]}")
    return f"{found[1]} tests on {', '.join(kinds)}; failures: {', '.join(statuses)}"


def asked_for(guest, address, device="eth0"):
    """Checks that the guest's kernel found a neighbour by asking: no permanent entry. Then the neighbour answers pings."""
    entry = guest.run(f"ip neigh show {address} dev {device}")
    if "lladdr" not in entry or "PERMANENT" in entry:
        raise Failed(f"the neighbour {address} of {guest.name} is '{entry.strip()}'")
    guest.run(f"ping -q -c 5 -i 0.05 {address}", 30)


def vfio_facade(stage):
    """A program on the package ringside-nic over /dev/vfio, irdma in another guest: user memory, an address added at run time, neighbours by the port's
    stack, failed requests seen by polling, the host's request to release the device."""
    # The request with a wrong key.
    stage.allowed = (r"abnormal ae_id = 0x106 ",)
    ours, _, theirs, theirs_port = vfio_and_irdma(stage, "facade")
    asked, told, took = facade_with(ours, theirs, theirs_port, "10.0.0.2")
    if "event: local access violation work queue error" not in told.lower():
        raise Failed(f"no event of the wrong key; verbs_peer:\n{told[-2000:]}")
    return f"{facade_says(asked)}; unbound in {took:.1f} s"


def vfio_soft_roce(stage):
    """A program on the package ringside-nic over /dev/vfio, rdma_rxe in another guest: the same as with irdma."""
    ours_port = free_port()
    program = built(stage, "example", "facade")
    ours = own_guest(stage, 1, files={"usr/bin/facade": program}.items(), serving=wire_options(stage), host_port=ours_port)
    way_out(ours, "eth0")
    theirs, theirs_port = on_the_wire(stage)
    bound(ours, FIRST)
    asked, _, took = facade_with(ours, theirs, theirs_port, ADDRESSES["guest"], f"{SOFT_ROCE} -e")
    return f"{facade_says(asked)}; unbound in {took:.1f} s; {judged(stage, 'wire.pcap')}"


def facade_with(ours, theirs, theirs_port, peer, options=""):
    """Runs tests/examples/facade.rs in one guest and verbs_peer in the other, whose address on the wire is `peer`; then the host asks for the
    device. Returns what both print, and the seconds until the device was released."""
    before = free_huge_pages(ours)
    ours.run("mount -t tmpfs tmpfs /mnt")
    theirs.start("serving", f"timeout {120 * PATIENCE:.0f} verbs_peer {options} -a -l {FACADE_SCENES}")
    listening(theirs, "serving")
    ours.start("facade", f"cd /mnt; exec timeout {240 * PATIENCE:.0f} facade {HOST}:{theirs_port} {FIRST} {peer} release")
    status, told = theirs.finish("serving", 120)
    waits = "for i in $(seq 300); do grep -q 'waiting for the host' /run/facade.output && exit 0; [ -e /run/facade.status ] && break; sleep 0.1; done; exit 1"
    if ours.ask(waits, 60)[0] != 0 or status != 0:
        raise Failed(f"verbs_peer ended with {status}:\n{told[-2000:]}\nthe program:\n{ours.run('cat /run/facade.output')[-2000:]}")
    asked_for(theirs, ADDED)
    began = time.monotonic()
    ours.run(f"echo {FIRST} > /sys/bus/pci/drivers/vfio-pci/unbind", RELEASE_SECONDS * PATIENCE)
    took = time.monotonic() - began
    status, asked = ours.finish("facade", 20)
    if status != 0 or "the host asks for the device" not in asked:
        raise Failed(f"the program ended with {status}:\n{asked[-2000:]}")
    ours.run(f"echo {FIRST} > /sys/bus/pci/drivers/vfio-pci/bind; ringside bring-up --device {FIRST}", 60)
    if free_huge_pages(ours) != before or before == 0:
        raise Failed(f"{free_huge_pages(ours)} huge pages are free afterwards, {before} were before")
    return asked, told, took


PROGRAMS = (("ib_write_bw", "write bw"), ("ib_read_lat", "read lat"), ("ib_send_bw", "send bw"))
MESSAGES = 20


def perftest_programs(ours, ours_port, theirs, theirs_port, ringside):
    """Three of Debian's programs beside irdma, ringside as client and as server; returns their number."""
    flags = f"-s 65536 -n {MESSAGES}"
    for program, words in PROGRAMS:
        beside = f"{program} -d irdma0 -x 0 -F {flags}"
        said = both(theirs, beside, ours, f"{ringside} --connect {HOST}:{theirs_port} --perftest {words} {flags}")
        said += both(ours, f"{ringside} --listen 0.0.0.0 --perftest {words} {flags}", theirs, f"{beside} -p {ours_port} {HOST}")
        # Each client prints a row; the servers of perftest's bandwidth tests do as well.
        if rows(said[0], MESSAGES) != 1 or rows(said[2], MESSAGES) != 1:
            raise Failed(f"{program}: no figures:\n" + "\n".join(text[-1000:] for text in said))
    return len(PROGRAMS)


# The wire's card, the GID that is its IPv4 address, the path MTU of a link of 1500 bytes; a time-out of a second (4.096 us x 2^18).
# Four queue pairs with 1 MiB each, both ways at once, take an emulated processor longer than our side waits.
SOFT_ROCE = "-d rxe0 -n eth0 -g 1 -m 1024 -t 18 -b 65537"


GROUP = "239.1.2.3"
# Programs of rdma_cm, server and client; {own} and {server} are addresses on the wire. Counts are small: a round takes milliseconds.
MANAGED = (
    ("rping -s -a {server} -C 10 -V", "rping -c -a {server} -C 10 -V -v", ("", "ping data")),
    ("ucmatose -b {server} -c 3 -C 10 -S 1000", "ucmatose -b {own} -s {server} -c 3 -C 10 -S 1000", ("return status 0", "return status 0")),
    ("udaddy -b {server} -c 3 -C 10 -S 500", "udaddy -b {own} -s {server} -c 3 -C 10 -S 500", ("return status 0", "return status 0")),
    # The sender does not wait for its sends: on rdma_rxe those that its work queue has not begun end with it; see sent_to_group.
    (f"mckey -m {GROUP} -b {{server}} -C 10 -S 200", f"mckey -m {GROUP} -b {{own}} -s -C 1000 -S 200", ("return status 0", "return status 0")),
)
ADDRESSES = {"guest": "10.82.0.1", "ours": "10.82.0.2"}


def sent_to_group(guest, command, listening):
    """Starts the sender of a group until the member has all its messages; returns the last sender's output. rdma_rxe drops the sends
    that it has not begun when the sender ends: on a fast machine it begins two of a thousand."""
    guest.run("sleep 3")
    asked = ""
    for _ in range(15):
        asked = guest.run(f"sleep 1; {command}", 90)
        if not listening.alive():
            break
    return asked


def managed(stage, guest):
    """Debian's programs of rdma_cm: by `ringside run` here, on rdma_rxe in the guest, with either as server; returns their number."""
    config = os.path.join(stage.folder, "managed.toml")
    with open(config, "w") as file:
        file.write(f'[rdma]\npath_mtu = 1024\n[network]\naddresses = ["{ADDRESSES["ours"]}/8"]\n')

    def ours(command, server):
        words = command.format(own=ADDRESSES["ours"], server=ADDRESSES[server]).split()
        return stage.host_program("run", "--config", config, "--device", f"vfio-user:{stage.server.sockets[-1]}", "--", *words, seconds=60)

    def theirs(command, server):
        return f"timeout 60 {command.format(own=ADDRESSES['guest'], server=ADDRESSES[server])} 2>&1"

    guest.run(f"ip route add {GROUP}/32 dev eth0")
    for server, client, says in MANAGED:
        # The sender of a group does not wait for its members.
        pause = 4 if GROUP in client else 1
        guest.start("managed", theirs(server, "guest"))
        guest.run(f"sleep {pause}")
        asked = ours(client, "guest").finish(60)
        status, told = guest.finish("managed", 20)
        if status != 0 or says[0] not in told or says[1] not in asked:
            raise Failed(f"`{server}` in the guest ended with {status}:\n{told[-1500:]}\nours:\n{asked[-1500:]}")
        listening = ours(server, "ours")
        if GROUP in client:
            asked = sent_to_group(guest, theirs(client, "ours"), listening)
        else:
            # It may not listen yet: a client that finds no server is started again.
            asked = guest.run(f"for i in 1 2 3 4 5 6; do sleep {pause}; {theirs(client, 'ours')} && exit 0; done; exit 1", 90)
        told = listening.finish(20)
        if says[0] not in told or says[1] not in asked:
            raise Failed(f"`{client}` in the guest:\n{asked[-1500:]}\nours:\n{told[-1500:]}")
    # A program ends without a teardown, as on Linux; the next claim resets the function, and this one ends in order.
    stage.host_program("bring-up", "--device", f"vfio-user:{stage.server.sockets[-1]}").finish(30)
    return len(MANAGED)


def soft_roce(stage):
    """Our driver and rdma_rxe over a wire of datagrams: every operation with either as client, datagrams, perftest, connections by rdma_cm,
    a clean capture."""
    guest, port = soft_roce_guest(stage)
    first = meeting.ringside_asks(stage, guest, port, SOFT_ROCE, ("-s", "65537"))
    second = meeting.guest_asks(stage, guest, SOFT_ROCE)
    third = meeting.datagrams_with(stage, guest, port, SOFT_ROCE)
    for program, words in PROGRAMS:
        # The GID that begins with fe80: from it our side knows the guest's MAC address.
        settings = {"flags": f"-s 4096 -m 1024 -n {MESSAGES}", "gid": 0, "device": "rxe0"}
        said, _ = perftest.guest_serves(stage, guest, port, program, words, **settings)
        _, asked = perftest.guest_asks(stage, guest, program, words, **settings)
        if rows(said, MESSAGES) != 1 or rows(asked, MESSAGES) != 1:
            raise Failed(f"{program}: no figures:\n{said[-1500:]}\n{asked[-1500:]}")
    connected = managed(stage, guest)
    status = stage.server.tell("status")
    if status["switch"]["damaged"] or status["switch"]["malformed"]:
        raise Failed(f"packets were damaged: {status['switch']}")
    return (f"{first} tests as ringside asked, {second} as the guest asked, path MTU 1024; {third} datagrams; {len(PROGRAMS)} of "
            f"perftest's and {connected} of rdma_cm's programs both ways; {judged(stage, 'wire.pcap')}")


def wire_options(stage):
    """The options of a server whose wire leads out to a guest by datagrams, and is captured."""
    model, peer = wire(stage)
    return ["--dgram", f"{model},{peer}", "--pcap", os.path.join(stage.folder, "wire.pcap")]


def wire(stage):
    """The sockets of the model and of the guest at the two ends of that wire."""
    return tuple(os.path.join(stage.folder, name) for name in ("model.wire", "peer.wire"))


def soft_roce_guest(stage):
    """A guest with rdma_rxe on a virtio card, on one wire with our function, and with a connection to this machine."""
    stage.serve(1, wire_options(stage))
    return on_the_wire(stage)


def on_the_wire(stage):
    """The guest with rdma_rxe, and its port on this machine; the model serves already."""
    model, peer = wire(stage)
    port = free_port()
    guest = Guest(stage.rig, stage.folder, "rxe", host_port=port, extra=[
        "-netdev", f"dgram,id=wire,local.type=unix,local.path={peer},remote.type=unix,remote.path={model}",
        "-device", "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:01,romfile="])
    stage.guests.append(guest)
    guest.booted()
    guest.run("modprobe virtio_net; for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done; "
              # RoCE needs a lossless fabric: Linux's default queue drops what waits for long, which under emulation is
              # much of every large answer.
              "tc qdisc replace dev eth0 root pfifo limit 20000 || exit 1; "
              # Our driver takes 10.x.y.z from its MAC address.
              "ip addr add 10.82.0.1/8 dev eth0; ip link set eth0 up; modprobe rdma_rxe; modprobe rdma_ucm; "
              "rdma link add rxe0 type rxe netdev eth0", 60)
    if "52:54:00:00:00:01" not in guest.run("cat /sys/class/net/eth0/address"):
        raise Failed("eth0 of the guest is not the card on the wire")
    way_out(guest, "eth1")
    return guest, port


def judged(stage, capture):
    """Checks every RoCE packet of a capture with tshark, which must find no error."""
    if not shutil.which("tshark"):
        if os.environ.get("CI"):
            raise Failed("there is no tshark to judge the capture; install it")
        return "capture not judged, as there is no tshark here"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    checked = subprocess.run([os.path.join(root, ".ci/check-capture"), os.path.join(stage.folder, capture), "udp.port == 4791"],
                             capture_output=True, text=True, timeout=120, check=False)
    if checked.returncode != 0:
        raise Failed(f"the capture: {checked.stdout[-2000:]}{checked.stderr[-1000:]}")
    return checked.stdout.strip()
