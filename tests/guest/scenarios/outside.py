"""A wire that leads out of the model: a soft-RoCE peer over QEMU's datagrams."""
import os

from machine import Failed, Guest
from .stage import address, load, rdma_active


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
    ends = ((first, "irdma0", "10.0.0.1"), (other, "rxe0", "10.0.0.2"))
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
