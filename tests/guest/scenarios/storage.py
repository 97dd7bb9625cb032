"""What the kernel itself asks of the RDMA engine: NVMe over fast-registered memory."""

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

# Larger than a page list entry, smaller, and neither a multiple of a page nor aligned to one.
COPIES = """
set -e
head -c 8388608 /dev/urandom > /tmp/written
for block in 1048576 65536 4096 512 7680; do
  count=$((8388608 / block)); [ $count -gt 200 ] && count=200
  dd if=/tmp/written of=/dev/nvme0n1 bs=$block count=$count oflag=direct 2>/dev/null
  dd if=/dev/nvme0n1 of=/tmp/read bs=$block count=$count iflag=direct 2>/dev/null
  cmp -n $((block * count)) /tmp/written /tmp/read
done
"""


def storage(stage):
    """NVMe over RDMA: the kernel's target and host, with fast registration, invalidation near and far, and all of memory by tag 0."""
    guests = stage.pair()
    target, host = guests
    target.run(TARGET, 60)
    host.run(CONNECT, 60)
    host.run(COPIES, 120)
    host.run("echo 1 > /sys/class/nvme/nvme0/delete_controller", 30)
    target.run("cd /sys/kernel/config/nvmet; rm ports/1/subsystems/model; rmdir ports/1 subsystems/model/namespaces/1 subsystems/model", 30)
    return "8 MiB written and read back alike in blocks of 512 B to 1 MiB"
