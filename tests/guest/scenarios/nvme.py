"""A small NVMe host of ours on our C libraries, and the kernel's NVMe target on Linux's irdma."""
import hashlib
import glob
import os
import re
import subprocess

from machine import Failed
from .ours import guest_with_way_out
from .packets import device
from .storage import TARGET

MIB = 1 << 20
CONFIG = '[rdma]\npath_mtu = 1024\n[network]\naddresses = ["10.0.0.2/24"]\n'


def compiled(stage):
    """The host, with this machine's compiler and headers."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "nvme_host")
    program = os.path.join(stage.folder, "nvme_host")
    made = subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *sorted(glob.glob(f"{folder}/*.c")), "-o", program,
                           "-lrdmacm", "-libverbs"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Failed(f"the host does not compile (are libibverbs-dev and librdmacm-dev installed?): {made.stderr[-1500:]}")
    return program


def digest(guest, mebibyte):
    """The SHA-256 of a MiB of the target's device, as the kernel reads it."""
    return guest.run(f"dd if=/dev/nullb0 bs={MIB} skip={mebibyte} count=1 iflag=direct 2>/dev/null | sha256sum", 60).split()[0]


def target(stage):
    """An NVMe host of ours, by `ringside run`, on the kernel's target on irdma: Connect, properties, Identify, reads and writes with keyed
    data, data in the capsule, and memory windows that the target invalidates; the kernel of the target finds the same bytes."""
    program = compiled(stage)
    guest, _ = guest_with_way_out(stage)
    guest.run(f"modprobe rdma_ucm; {TARGET}", 60)
    guest.run(f"dd if=/dev/urandom of=/dev/nullb0 bs={MIB} count=1 oflag=direct 2>/dev/null", 60)
    files = [os.path.join(stage.folder, name) for name in ("host.toml", "read", "written")]
    with open(files[0], "w") as config:
        config.write(CONFIG)
    said = stage.host_program("run", "--config", files[0], "--device", device(stage.server), "--",
                              program, "10.0.0.1", "4420", "model", *files[1:], seconds=240).finish(240)
    found = re.search(r"(\d+) blocks of 512 bytes, (\d+) bytes of data in a capsule", said)
    if not found or "every byte compared" not in said:
        raise Failed(f"the host says:\n{said[-1500:]}")
    for mebibyte, path in enumerate(files[1:]):
        with open(path, "rb") as file:
            ours = hashlib.sha256(file.read()).hexdigest()
        theirs = digest(guest, mebibyte)
        if ours != theirs:
            raise Failed(f"MiB {mebibyte} has the digest {theirs} in the target, the host {os.path.basename(path)} {ours}")
    guest.run("cd /sys/kernel/config/nvmet; rm ports/1/subsystems/model; rmdir ports/1 subsystems/model/namespaces/1 subsystems/model", 30)
    # A program ends without a teardown, as on Linux; the next claim resets the function, and this one ends in order.
    stage.host_program("bring-up", "--device", device(stage.server)).finish(30)
    return (f"admin and I/O queue connected; 1 MiB read, 3 MiB written in commands of 512 B to 64 KiB, 31 at once, up to {found[2]} bytes in "
            "a capsule, keys invalidated by the target; target and host have the same bytes")
