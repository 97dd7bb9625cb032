"""Parts of the kernel that use RDMA besides NVMe: files over NFS, disks over iSER and SRP. Each is the kernel's own, at both ends."""
import json
import os
import time

import overlay
from machine import PATIENCE, Failed
from .recovery import number, rebuilt

# A server without daemons: its answers to the kernel's questions about clients and exports are written beforehand.
# Flags of the export: any source port, written back at leisure, no check of the path, file system number 0.
NFS_SERVER = r"""
set -e
modprobe nfsd; modprobe rpcrdma
mkdir -p /proc/fs/nfsd /export /var/lib/nfs/v4recovery
grep -q ' /proc/fs/nfsd ' /proc/mounts || mount -t nfsd nfsd /proc/fs/nfsd
grep -q ' /export ' /proc/mounts || mount -t tmpfs -o size=192m tmpfs /export
until=$(( $(date +%s) + 100000 ))
echo "nfsd 10.0.0.2 $until all" > /proc/net/rpc/auth.unix.ip/channel
echo "all /export $until $((0x2412)) 65534 65534 0" > /proc/net/rpc/nfsd.export/channel
printf 'all 1 \\x00000000 %s /export\n' $until > /proc/net/rpc/nfsd.fh/channel
cd /proc/fs/nfsd
echo "-2 -3 +4 +4.1 +4.2" > versions
echo 10 > nfsv4gracetime
echo "rdma 20049" > portlist
echo 4 > threads
echo Y > v4_end_grace 2>/dev/null || true
"""
NFS_CLIENT = """
set -e
modprobe nfsv4; modprobe rpcrdma; mkdir -p /mnt/files
mount -t nfs -o vers=4.2,proto=rdma,port=20049,sec=sys 10.0.0.1:/ /mnt/files
grep /mnt/files /proc/mounts
"""

DISK = """
set -e
modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=512
modprobe target_core_mod; modprobe target_core_iblock
grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
mkdir -p /sys/kernel/config/target/core/iblock_0/disk /var/target/alua /var/target/pr
cd /sys/kernel/config/target/core/iblock_0/disk
echo "udev_path=/dev/nullb0" > control
echo 1 > enable
"""
ISER_TARGET = DISK + """
modprobe iscsi_target_mod; modprobe ib_isert
cd /sys/kernel/config/target
mkdir -p iscsi/iqn.2026-11.model:disk/tpgt_1
cd iscsi/iqn.2026-11.model:disk/tpgt_1
mkdir lun/lun_0
ln -s /sys/kernel/config/target/core/iblock_0/disk lun/lun_0/disk
echo 0 > attrib/authentication
echo 1 > attrib/generate_node_acls
echo 1 > attrib/cache_dynamic_acls
echo 0 > attrib/demo_mode_write_protect
mkdir np/10.0.0.1:3260
echo 1 > np/10.0.0.1:3260/iser
echo 1 > enable
"""
ISER_INITIATOR = """
set -e
modprobe ib_iser; modprobe sd_mod
mkdir -p /etc/iscsi/nodes /etc/iscsi/send_targets /etc/iscsi/ifaces /run/lock/iscsi /var/lib/iscsi /run/lock
touch /etc/passwd; grep -q root /etc/passwd || echo root:x:0:0:root:/root:/bin/bash >> /etc/passwd
echo InitiatorName=iqn.2026-11.model:host > /etc/iscsi/initiatorname.iscsi
printf 'node.startup = manual\\nnode.session.timeo.replacement_timeout = 120\\nnode.conn[0].timeo.noop_out_interval = 5\\nnode.conn[0].timeo.noop_out_timeout = 5\\n' > /etc/iscsi/iscsid.conf
pidof iscsid > /dev/null || iscsid
iscsiadm -m node -o new -T iqn.2026-11.model:disk -p 10.0.0.1:3260,1 -I iser
iscsiadm -m node -T iqn.2026-11.model:disk -p 10.0.0.1:3260 -I iser --login
"""
SRP_TARGET = DISK + """
modprobe ib_srpt
cd /sys/kernel/config/target
gid=$(cat /sys/class/infiniband/irdma0/ports/1/gids/0)
guid=$(echo $gid | cut -d: -f5-8)
mkdir -p srpt/$guid/$guid
echo 5555 > srpt/discovery_auth/rdma_cm_port
cd srpt/$guid/$guid
mkdir lun/lun_0
ln -s /sys/kernel/config/target/core/iblock_0/disk lun/lun_0/disk
# The kernel looks for the initiator under the target's own address.
mkdir acls/10.0.0.1
mkdir acls/10.0.0.1/lun_0
ln -s /sys/kernel/config/target/srpt/$guid/$guid/lun/lun_0 acls/10.0.0.1/lun_0/disk
echo 1 > enable
cat /sys/module/ib_srpt/parameters/srpt_service_guid
"""
SRP_INITIATOR = """
set -e
modprobe ib_srp; modprobe sd_mod
guid=SERVICE
echo "id_ext=$guid,ioc_guid=$guid,dest=10.0.0.1:5555" > /sys/class/infiniband_srp/srp-irdma0-1/add_target
"""
FIND_DISK = "for i in $(seq 100); do [ -b /dev/sda ] && exit 0; sleep 0.1; done; exit 1"

# Random sizes and places, eight requests at once; each block has its own checksum and place, and is read back.
FIO = ("fio --name=consumer --filename={file} --direct=1 --ioengine=libaio --iodepth=8 --group_reporting --rw=randwrite "
       "--bsrange=512-256k --size={size}m --verify=crc32c --verify_fatal=1 --verify_interval=512 --verify_backlog=24 "
       "--randseed=20261127 --output-format=json --output=/run/fio.json")
SECONDS = 180

# Too many retries, of a queue pair whose link was down.
RETRIED = r"abnormal ae_id = 0x50a "
LOSSES = (("drop", "3000", "9"), ("duplicate", "10000", "9"), ("reorder", "10000", "9", "3"), ("corrupt", "3000", "9"))
# Without losses: Linux's iSER sends data by the key that the target's answer invalidates, and a card that must repeat it cannot.
DISORDER = (("duplicate", "10000", "9"), ("reorder", "10000", "9", "3"))


def with_fio(stage, **settings):
    """A pair of guests, the second of which has fio."""
    image = overlay.image(stage.rig, "guest-with-package.cpio", os.path.join(stage.folder, "fio.cpio"), programs=["fio"])
    guests = stage.pair(images=(None, image), **settings)
    os.remove(image)
    return guests


def verified(host, file, size=24, meanwhile=None, seconds=SECONDS):
    """Runs fio on the file, and `meanwhile` beside it; returns a sentence of what was written and verified."""
    host.start("fio", FIO.format(file=file, size=size))
    if meanwhile:
        meanwhile()
    deadline = time.monotonic() + seconds * PATIENCE
    while not host.run("for i in 1 2 3 4 5; do [ -e /run/fio.status ] && break; sleep 0.2; done; cat /run/fio.status 2>/dev/null || true").strip():
        if time.monotonic() > deadline:
            raise Failed(f"fio did not end within {seconds} s; kernel of the host:\n{host.tail()}")
    status, output = host.finish("fio", 10)
    if status != 0:
        raise Failed(f"fio ended with {status}:\n{output[-2000:]}\nkernel of the host:\n{host.tail()}")
    job, = json.loads(host.run("cat /run/fio.json"))["jobs"]
    written, read = job["write"], job["read"]
    if job["error"] or written["io_bytes"] < size << 20 or read["io_bytes"] < written["io_bytes"]:
        raise Failed(f"fio reports error {job['error']}, {written['io_bytes']} bytes written and {read['io_bytes']} read back")
    return f"{written['io_bytes']} bytes written by {written['total_ios']} requests, {read['io_bytes']} read back and verified"


def under_way(host):
    """Checks that fio has not ended: what happens now happens to it."""
    if host.run("[ ! -e /run/fio.status ] || echo ended").strip():
        raise Failed("fio had ended before the disturbance")


def on_a_bad_wire(stage, host, file, faults):
    """fio once more while the wire has these faults."""
    for fault in faults:
        stage.server.tell("fault", "wire", *fault)
    verified(host, file)
    stage.server.tell("clear", "wire")


def without_link(stage, host, function, seconds):
    """Takes one side's link away for a time, a little after fio began on the host: it waits until the link is back."""
    time.sleep(0.3)
    stage.server.tell("fault", str(function), "link-down")
    time.sleep(seconds)
    under_way(host)
    stage.server.tell("clear", str(function), "link-down")


def reset(host):
    """Resets the function of the host, a little after fio began there."""
    time.sleep(0.3)
    under_way(host)
    host.run("echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset", 60)


def nfs(stage):
    """NFS 4.2 over RDMA: the kernel's server and client; a file written by fio with random sizes, each block read back and verified;
    the same on a wire with losses, with the link down for longer than a neighbour entry lives, and during a reset of the client."""
    server, client = with_fio(stage)
    stage.allowed = (RETRIED,)
    server.run(NFS_SERVER, 60)
    client.run(NFS_CLIENT, 60)
    file = "/mnt/files/data"
    shown = verified(client, file)
    on_a_bad_wire(stage, client, file, LOSSES)
    verified(client, file, meanwhile=lambda: without_link(stage, client, 1, 6))
    # The rpcrdma of 6.1 does not let go of a device in use: the reset waited for ever.
    resets = not client.run("uname -r").startswith("6.1.")
    if resets:
        before = number(client)
        verified(client, file, meanwhile=lambda: reset(client))
        rebuilt(client, 1, before)
    client.run("umount /mnt/files", 60)
    server.run("echo 0 > /proc/fs/nfsd/threads; umount /proc/fs/nfsd; umount /export", 30)
    return f"{shown}; again with losses, with the link down for 6 s{', and during a reset of the client' if resets else ''}"


def iser(stage):
    """iSCSI over RDMA: the kernel's target and initiator with open-iscsi's daemon; a disk written and verified by fio, also on a wire
    that repeats frames and changes their order."""
    target, initiator = with_fio(stage)
    target.run(ISER_TARGET, 60)
    initiator.run(ISER_INITIATOR, 60)
    initiator.run(FIND_DISK, 30)
    shown = verified(initiator, "/dev/sda")
    on_a_bad_wire(stage, initiator, "/dev/sda", DISORDER)
    initiator.run("iscsiadm -m node -T iqn.2026-11.model:disk --logout; kill $(pidof iscsid)", 30)
    target.run("cd /sys/kernel/config/target/iscsi/iqn.2026-11.model:disk/tpgt_1; echo 0 > enable; rmdir np/*; rm lun/lun_0/disk; rmdir lun/lun_0; "
               "cd ../..; rmdir iqn.2026-11.model:disk/tpgt_1 iqn.2026-11.model:disk; cd ..; rmdir iscsi; rmmod ib_isert", 60)
    return f"{shown}; again on a wire with repeats and changed order"


def srp(stage):
    """SCSI by the SRP protocol: the kernel's target and initiator, connected by rdma_cm; a disk written and verified by fio, also on a
    wire with losses."""
    target, initiator = with_fio(stage)
    service = f"{int(target.run(SRP_TARGET, 60).split()[-1], 16):016x}"
    initiator.run(SRP_INITIATOR.replace("SERVICE", service), 60)
    initiator.run(FIND_DISK, 30)
    shown = verified(initiator, "/dev/sda")
    on_a_bad_wire(stage, initiator, "/dev/sda", LOSSES)
    initiator.run("for one in /sys/class/srp_remote_ports/*/delete; do echo 1 > $one; done; sleep 1; rmmod ib_srp", 60)
    target.run("cd /sys/kernel/config/target/srpt/00*/00*; echo 0 > enable; rm acls/*/lun_0/disk lun/lun_0/disk; rmdir acls/*/lun_0 acls/* lun/lun_0; "
               "cd ../..; rmdir 00*/00* 00*; cd ..; rmdir srpt; rmmod ib_srpt", 60)
    return f"{shown}; again on a wire with losses"
