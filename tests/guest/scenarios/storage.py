"""Requests of the kernel to the RDMA engine: NVMe over fast-registered memory."""
import json
import os
import time

import overlay
from machine import PATIENCE, Failed

TARGET = """
set -e
modprobe nvmet-rdma
modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=512
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/model
echo 1 > subsystems/model/attr_allow_any_host
mkdir subsystems/model/namespaces/1
echo -n /dev/nullb0 > subsystems/model/namespaces/1/device_path
echo 1 > subsystems/model/namespaces/1/enable
mkdir ports/1
echo rdma > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo 10.0.0.1 > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/model ports/1/subsystems/model
"""

CONNECT = """
modprobe nvme-rdma
echo "transport=rdma,traddr=10.0.0.1,trsvcid=4420,nqn=model,nr_io_queues=1,queue_size=16" > /dev/nvme-fabrics || exit 1
for i in $(seq 100); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.1; done; exit 1
"""

# Up to eight outstanding requests, so that regions of any index are used and not only the first one; sizes smaller than a page, larger,
# and not a multiple of one; each block carries its own checksum and place, and is read back.
FIO = ("fio --name=storage --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=8 --group_reporting --rw=randwrite "
       "--bsrange=512-256k --size=24m --verify=crc32c --verify_fatal=1 --verify_interval=512 --verify_backlog=24 "
       "--randseed={seed} --output-format=json --output=/run/fio.json")
SEED = 20261122
SECONDS = 120


def fio(host):
    """Runs fio; returns status and output. A failed queue pair ends it: the host would reconnect and repeat its requests for ever."""
    host.start("fio", FIO.format(seed=SEED))
    deadline = time.monotonic() + SECONDS * PATIENCE
    while not host.run("for i in 1 2 3 4 5; do [ -e /run/fio.status ] && break; sleep 0.2; done; cat /run/fio.status 2>/dev/null || true").strip():
        event = host.run("dmesg | grep -m1 'abnormal ae_id' || true").strip()
        if event:
            raise Failed(f"a queue pair failed under fio: {event}")
        if time.monotonic() > deadline:
            raise Failed(f"fio did not end within {SECONDS} s; kernel of the host:\n{host.tail()}")
    return host.finish("fio", 10)


def storage(stage):
    """NVMe over RDMA under fio: random sizes at random places, eight requests at once, every block verified; the kernel's target and
    host, with fast registration, invalidation near and far, and all of memory by tag 0."""
    image = overlay.image(stage.rig, "guest-with-package.cpio", os.path.join(stage.folder, "fio.cpio"), programs=["fio"])
    target, host = stage.pair(images=(None, image))
    os.remove(image)
    target.run(TARGET, 60)
    host.run(CONNECT, 60)
    status, output = fio(host)
    if status != 0:
        raise Failed(f"fio ended with {status}:\n{output[-2000:]}\nkernel of the host:\n{host.tail()}")
    job, = json.loads(host.run("cat /run/fio.json"))["jobs"]
    written, verified = job["write"], job["read"]
    if job["error"] or written["io_bytes"] < 24 << 20 or verified["io_bytes"] < written["io_bytes"]:
        raise Failed(f"fio reports error {job['error']}, {written['io_bytes']} bytes written and {verified['io_bytes']} read back")
    host.run("echo 1 > /sys/class/nvme/nvme0/delete_controller", 30)
    target.run("cd /sys/kernel/config/nvmet; rm ports/1/subsystems/model; rmdir ports/1 subsystems/model/namespaces/1 subsystems/model", 30)
    return (f"{written['io_bytes']} bytes written by {written['total_ios']} requests of 512 B to 256 KiB, eight at once, "
            f"{verified['io_bytes']} read back and verified")
