"""The commands of the real drivers are still those of tests/vectors/recorded."""
import os
import subprocess

from machine import Failed
from .datagrams import managed
from .stage import address, between, load

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
KEPT = os.path.join(ROOT, "tests", "vectors", "recorded")
# Set to record anew: the new recording replaces the stored one.
RENEW = "RINGSIDE_RENEW_RECORDINGS"


def tool(*arguments):
    """Runs the program that works on recordings; RINGSIDE_RECORDINGS names it, else it is built."""
    program = os.environ.get("RINGSIDE_RECORDINGS")
    if not program:
        subprocess.run(["cargo", "build", "--quiet", "-p", "ringside-tests", "--bin", "recordings"], cwd=ROOT, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
        program = os.path.join(ROOT, target, "debug", "recordings")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def settle(stage, name, recorded):
    """Compares with the stored recording, or stores the new one; returns the number of distinct commands."""
    kept = os.path.join(KEPT, f"{name}.jsonl")
    if os.environ.get(RENEW):
        status, said = tool("trim", kept, recorded)
        if status != 0:
            raise Failed(said)
    status, said = tool("compare", kept, recorded)
    if status != 0:
        raise Failed(f"{name}: 'first' is what {os.path.relpath(kept, ROOT)} has, 'second' what was recorded now; {RENEW}=1 keeps it:\n{said}")
    with open(kept) as file:
        return sum(1 for _ in file) - 1


def traffic(stage):
    """Probe, link, RDMA device, connections, datagrams, rdma_cm, unloading; function 0 counts."""
    recorded = os.path.join(stage.folder, "traffic.recorded")
    guests = stage.pair(options=["--record", recorded])
    for options in ("-n 100", "-n 20 -s 65536 -e", "-n 10 -s 1048576"):
        between(guests, f"ibv_rc_pingpong -d irdma0 -g 1 -c {options}")
    between(guests, "ibv_ud_pingpong -d irdma0 -g 1 -n 50")
    managed(guests, "rping -s -a 10.0.0.1 -C 5 -V", "rping -c -a 10.0.0.1 -C 5 -V")
    managed(guests, "udaddy", "udaddy -s 10.0.0.1")
    for guest in guests:
        guest.run("ip route add 239.1.2.3/32 dev eth0")
    group = "mckey -m 239.1.2.3 -C 5 -S 100"
    guests[0].start("member", f"timeout 60 {group} -b 10.0.0.1")
    guests[0].run("sleep 3")
    guests[1].run(f"timeout 60 {group} -b 10.0.0.2 -s", 70)
    status, heard = guests[0].finish("member", 20)
    if status != 0:
        raise Failed(f"mckey: the member ended with {status}:\n{heard[-1500:]}")
    for guest in guests:
        guest.run("rmmod irdma; rmmod ice", 60)
    return recorded


def recording(stage):
    """The commands of ice and irdma from probe to unload are those of the stored recordings."""
    count = settle(stage, "traffic", traffic(stage))
    return f"{count} distinct commands and register writes as recorded"


def recording_package(stage):
    """The commands by which ice downloads its package are those of the stored recording."""
    recorded = os.path.join(stage.folder, "package.recorded")
    stage.serve(options=["--no-package", "--record", recorded])
    guest, = stage.boot()
    load(guest)
    address(guest, 0)
    guest.run("rmmod ice", 30)
    count = settle(stage, "package", recorded)
    return f"{count} distinct commands and register writes as recorded"
