"""Debian's perftest, unmodified, in a guest on one function; ringside bench --perftest on the other, as client and as server."""
import re

from machine import Failed
from .ours import HOST, free_port, guest_with_way_out

MESSAGES = 5

# The program, ringside's name of the test, and flags for both sides.
PROGRAMS = (
    ("ib_write_bw", "write bw"), ("ib_read_bw", "read bw"), ("ib_send_bw", "send bw"),
    ("ib_write_lat", "write lat"), ("ib_read_lat", "read lat"), ("ib_send_lat", "send lat"))


def rows(text, messages=MESSAGES):
    """Sizes with a row of figures."""
    return len(re.findall(rf"^\s*\d+\s+{messages}\s+[\d.]+", text, re.MULTILINE))


def guest_serves(stage, guest, port, program, words, flags, gid, ours=(), device="irdma0"):
    """The guest's program as server, ringside as client; returns the output of each."""
    guest.start("perftest", f"timeout 120 {program} -d {device} -x {gid} -F {flags}")
    guest.run("for i in $(seq 100); do netstat -ltn | grep -q :18515 && exit 0; sleep 0.1; done; cat /run/perftest.output; exit 1", 30)
    connecting = stage.host_program(
        "bench", "--connect", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}", "--perftest",
        *words.split(), *flags.split(), *ours)
    try:
        said = connecting.finish(120)
    except Failed as failure:
        raise Failed(f"{failure}\n{program}:\n{guest.finish('perftest', 5)[1][-1500:]}") from None
    status, served = guest.finish("perftest", 20)
    if status != 0:
        raise Failed(f"{program} as server ended with {status}:\n{served[-1500:]}\nringside:\n{said[-1500:]}")
    return said, served


def guest_asks(stage, guest, program, words, flags, gid, ours=(), device="irdma0"):
    """ringside as server, the guest's program as client; returns the output of each."""
    port = free_port()
    listening = stage.host_program(
        "bench", "--listen", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}", "--perftest",
        *words.split(), *flags.split(), *ours)
    # perftest does not repeat its connection.
    listening.says("Listening on", 30)
    asked = guest.run(f"timeout 120 {program} -d {device} -x {gid} -F {flags} -p {port} {HOST}", 130)
    return listening.finish(30), asked


def over_the_port(stage):
    """perftest in the guest against ringside on the port's own TCP: the exchange goes over the model's wire too, as does all else."""
    guest, _ = guest_with_way_out(stage)
    # Our port's network is 10.0.0.0/8: it answers from there to there only.
    own = "10.7.7.7"
    guest.run(f"ip addr add {own}/8 dev eth0; ip route replace 10.0.0.0/8 dev eth0 src {own}", 30)
    flags = f"-s 4096 -n {MESSAGES}"
    beside = ("--over", "nic", "--device", f"vfio-user:{stage.server.sockets[-1]}", "--perftest")
    for program, words in PROGRAMS:
        listening = stage.host_program("bench", "--listen", "0.0.0.0", *beside, *words.split(), *flags.split())
        listening.says("Listening on", 30)
        ours = re.search(r"Listening on ([\d.]+):", listening.text())
        if not ours:
            raise Failed(f"{program}: no IPv4 address in\n{listening.text()}")
        asked = guest.run(f"timeout 120 {program} -d irdma0 -x 0 -F {flags} {ours[1]}", 130)
        listened = listening.finish(30)
        guest.start("perftest", f"timeout 120 {program} -d irdma0 -x 0 -F {flags}")
        guest.run("for i in $(seq 100); do netstat -ltn | grep -q :18515 && exit 0; sleep 0.1; done; exit 1", 30)
        connecting = stage.host_program("bench", "--connect", own, *beside, *words.split(), *flags.split())
        said = connecting.finish(120)
        status, served = guest.finish("perftest", 20)
        if status != 0 or (rows(asked), rows(said)) != (1, 1):
            raise Failed(f"{program}: status {status}\n{served}\nguest as client:\n{asked}\nringside:\n{listened}\n{said}")
    return f"{len(PROGRAMS)} programs as server and as client, and no other network between both sides"


def one_size(stage):
    """Six programs, ringside as client and as server of each; several queue pairs; an IPv4 GID as well."""
    return all_programs(stage, "-s 65536", 1)


def all_sizes(stage):
    """Six programs, all 23 sizes, ringside as client and as server of each; several queue pairs; an IPv4 GID as well."""
    return all_programs(stage, "-a", 23)


def all_programs(stage, sizes, count):
    """Each program with the option `sizes`, which makes it measure so many sizes; then several queue pairs, and the other kind of GID."""
    guest, port = guest_with_way_out(stage, mtu=9000)
    # The GID that begins with fe80: from it our side knows the guest's MAC address.
    flags = f"{sizes} -n {MESSAGES}"
    for program, words in PROGRAMS:
        said, served = guest_serves(stage, guest, port, program, words, flags, gid=0)
        if rows(said) != count:
            raise Failed(f"{program}: ringside measured {rows(said)} sizes of {count}:\n{said}")
        listened, asked = guest_asks(stage, guest, program, words, flags, gid=0)
        if rows(asked) != count:
            raise Failed(f"{program}: the guest measured {rows(asked)} sizes of {count}:\n{asked}\nringside:\n{listened}")
    several = f"-s 5000 -q 5 -n {MESSAGES}"
    for program, words in PROGRAMS[:3]:
        guest_serves(stage, guest, port, program, words, several, gid=0)
        guest_asks(stage, guest, program, words, several, gid=0)
    mac = guest.run("cat /sys/class/net/eth0/address").strip()
    once = f"-s 4096 -n {MESSAGES}"
    # Our client sends from its IPv4 address, and asks for the guest's MAC address by ARP.
    guest_serves(stage, guest, port, "ib_write_bw", "write bw", once, gid=1, ours=("-x", "1"))
    guest_asks(stage, guest, "ib_read_bw", "read bw", once, gid=1, ours=("--peer-mac", mac))
    return f"{len(PROGRAMS)} programs as server and as client, {count} size{'s' if count > 1 else ''} of {MESSAGES} messages each; 5 queue pairs; both kinds of GID"
