"""Wires that lead out of the model: the stack of this machine over TAP, and a soft-RoCE peer over QEMU's datagrams."""
import hashlib
import os
import random
import subprocess

from machine import Failed, Guest, start, wait_until
from .stage import address, load, rdma_active

HOST = "10.0.0.9"
GUEST = "10.0.0.1"
MEGABYTES = 8


class Namespace:
    """A user and network namespace of this test's own, which lives as long as its process."""

    def __init__(self, folder):
        with open(os.path.join(folder, "namespace.log"), "wb") as out:
            self.process = start(["unshare", "-Urn", "sleep", "900"], out)
        own = os.readlink("/proc/self/ns/net")
        wait_until("a network namespace of the test's own (unshare -Urn)", 10, lambda: self.network() not in (None, own))
        self.enter = ["nsenter", "-t", str(self.process.pid), "-U", "-n", "--preserve-credentials"]

    def network(self):
        try:
            return os.readlink(f"/proc/{self.process.pid}/ns/net")
        except OSError:
            return None

    def run(self, *command, seconds=60, **settings):
        """Runs a command in the namespace; gives its output as bytes, and fails if it does."""
        done = subprocess.run([*self.enter, *command], capture_output=True, timeout=seconds, **settings)
        if done.returncode != 0:
            raise Failed(f"on this machine: `{' '.join(command)}` ended with {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
        return done.stdout


SEND = f"""
import random, socket
random.seed(7)
with socket.create_connection(("{GUEST}", 5000), 20) as connection:
    connection.sendall(random.randbytes({MEGABYTES} << 20))
"""

RECEIVE = f"""
import hashlib, socket
with socket.create_server(("{HOST}", 5001)) as server:
    server.settimeout(60)
    connection, _ = server.accept()
    connection.settimeout(60)
    found = hashlib.sha256()
    while data := connection.recv(1 << 16):
        found.update(data)
    print(found.hexdigest())
"""


def vlan(space, guest):
    """Echoes in a VLAN between a guest and this machine; false if its kernel has none."""
    words = "ip link add link {} name tagged type vlan id 5"
    try:
        space.run(*words.format("wire0").split())
    except Failed as failure:
        if "Unknown device type" in str(failure):
            return False
        raise
    space.run("ip", "addr", "add", "10.5.0.9/24", "dev", "tagged")
    space.run("ip", "link", "set", "tagged", "up")
    guest.run(words.format("eth0") + "; ip addr add 10.5.0.1/24 dev tagged; ip link set tagged up; ping -q -c 10 -i 0.05 10.5.0.9", 30)
    return True


def tap(stage):
    """A guest's network stack and this machine's, over a TAP interface: ping, large frames, TCP both ways, VLAN."""
    space = Namespace(stage.folder)
    stage.command = [*space.enter, *stage.command]
    stage.serve(1, ["--tap", "wire0"])
    space.run("ip", "link", "set", "wire0", "mtu", "9000", "up")
    space.run("ip", "addr", "add", f"{HOST}/24", "dev", "wire0")
    guest, = stage.boot()
    load(guest)
    address(guest, 0, 9000)
    guest.run(f"ping -q -c 20 -i 0.05 {HOST}; ping -q -c 5 -i 0.05 -s 8972 -M do {HOST} || ping -q -c 5 -s 8972 {HOST}", 60)
    guest.start("sink", "timeout 90 nc -l -p 5000 | sha256sum")
    guest.run("for i in $(seq 100); do netstat -ltn | grep -q :5000 && exit 0; sleep 0.1; done; exit 1", 30)
    space.run("python3", "-c", SEND, seconds=90)
    status, said = guest.finish("sink", 90)
    random.seed(7)
    wanted = hashlib.sha256(random.randbytes(MEGABYTES << 20)).hexdigest()
    if status != 0 or wanted not in said:
        raise Failed(f"{MEGABYTES} MiB from this machine arrived otherwise: {status} {said}, not {wanted}")
    receiver = subprocess.Popen([*space.enter, "timeout", "120", "python3", "-c", RECEIVE], stdout=subprocess.PIPE)
    sent = guest.run(f"dd if=/dev/urandom of=/run/data bs=1M count={MEGABYTES} 2>/dev/null; sha256sum < /run/data; "
                     f"for i in $(seq 50); do nc -w 30 {HOST} 5001 < /run/data && exit 0; sleep 0.1; done; exit 1", 120).split()[0]
    received = receiver.communicate(timeout=60)[0].decode().strip()
    if received != sent:
        raise Failed(f"{MEGABYTES} MiB of the guest arrived otherwise: {received}, not {sent}")
    tagged = "VLAN 5" if vlan(space, guest) else "no VLAN, which this machine's kernel does not know"
    wire, = stage.server.tell("status")["wires"]
    for counter in ("too_short", "too_long", "read_failures", "refused"):
        if wire[counter]:
            raise Failed(f"the wire counted: {wire}")
    return (f"ping up to 9000 bytes, {MEGABYTES} MiB each way over TCP compared, {tagged}; "
            f"{wire['received']} frames in, {wire['sent']} out")


def soft_roce(stage):
    """irdma on the model and rdma_rxe, a third implementation of RoCE v2, behind a virtio card: verified both ways."""
    model, peer = (os.path.join(stage.folder, name) for name in ("model.wire", "peer.wire"))
    stage.serve(1, ["--dgram", f"{model},{peer}", "--pcap", os.path.join(stage.folder, "wire.pcap")])
    first, = stage.boot()
    other = Guest(stage.rig, stage.folder, "rxe", extra=[
        "-netdev", f"dgram,id=wire,local.type=unix,local.path={peer},remote.type=unix,remote.path={model}",
        "-device", "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:01,romfile="])
    stage.guests.append(other)
    other.booted()
    load(first)
    address(first, 0)
    first.run("modprobe irdma; modprobe rdma_ucm", 30)
    rdma_active(first)
    other.run("modprobe virtio_net; for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done; "
              "ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up; modprobe rdma_rxe; modprobe rdma_ucm; "
              "rdma link add rxe0 type rxe netdev eth0", 60)
    first.run("ping -q -c 5 -i 0.1 10.0.0.2", 30)
    ends = ((first, "irdma0", GUEST), (other, "rxe0", "10.0.0.2"))
    ran = []
    for (server, device, at), (client, other_device, _) in (ends, ends[::-1]):
        for program in ("ibv_rc_pingpong -c -n 20", "ibv_rc_pingpong -c -n 5 -s 65536 -e", "ib_write_bw -s 4096 -n 20 -F", "ib_read_bw -s 4096 -n 20 -F"):
            index = "-x 1" if program.startswith("ib_") else "-g 1"
            server.start("peer", f"timeout 60 {program} -d {device} {index} -m 1024")
            server.run("for i in $(seq 100); do netstat -ltn | grep -q :18515 && exit 0; sleep 0.1; done; cat /run/peer.output; exit 1", 30)
            status, said = client.ask(f"timeout 60 {program} -d {other_device} {index} -m 1024 {at}", 70)
            served, told = server.finish("peer", 20)
            if status != 0 or served != 0:
                raise Failed(f"{program}, {device} serving {other_device}: {served} and {status}\n{told[-1500:]}\n{said[-1500:]}")
        ran.append(f"{other_device} to {device}")
    status = stage.server.tell("status")
    if status["switch"]["damaged"] or status["switch"]["malformed"]:
        raise Failed(f"packets were damaged: {status['switch']}")
    return f"{' and '.join(ran)}: ping-pong with data compared, 4 KiB and 64 KiB, writes and reads; {status['captured_frames']} frames, none damaged"
