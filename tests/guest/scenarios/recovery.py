"""Unloading, resets, and peers that go away: afterwards everything works as before."""
from machine import Failed
from .stage import address, between, carrier, load, rdma_active

ROUNDS = 20


def reload(stage):
    """Both modules unloaded and loaded again 20 times."""
    stage.serve()
    guest, = stage.boot()
    for _ in range(ROUNDS):
        load(guest)
        address(guest, 0)
        guest.run("modprobe irdma", 30)
        rdma_active(guest)
        guest.run("rmmod irdma; rmmod ice", 60)
    return f"{ROUNDS} times: probe, link, RDMA device, unload"


def reset(stage):
    """Function-level reset by sysfs, and the driver started anew by devlink: RDMA traffic works before and after each."""
    guests = stage.pair()
    # ice keeps its note of the aggregator over a reload, forgets the aggregator, and says so without asking the device.
    stage.allowed = (r"unable to move VSI idx \d+ into aggregator 1 node",)
    traffic = "ibv_rc_pingpong -d irdma0 -g 1 -c -n 20"
    between(guests, traffic)
    ways = ("echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset", "devlink dev reload pci/0000:01:00.0")
    for way in ways:
        guests[0].run(way, 60)
        # The drivers rebuild in the background.
        guests[0].run("for i in $(seq 50); do [ -e /sys/class/net/eth0 ] && ip link set eth0 up && exit 0; sleep 0.2; done; exit 1", 30)
        guests[0].run("ip addr replace 10.0.0.1/24 dev eth0")
        carrier(guests[0])
        rdma_active(guests[0])
        between(guests, traffic)
    return "traffic after each of: " + "; ".join(ways)


def peer_killed(stage):
    """One side's process is killed in the middle: the other ends with an error, and both devices stay usable."""
    guests = stage.pair()
    # irdma says so of every asynchronous event that ends a queue pair; 0x50a: too many retries.
    stage.allowed = (r"abnormal ae_id = 0x50a ",)
    server, client = guests
    server.start("peer", "exec ib_write_bw -d irdma0 -x 1 -s 65536 -D 60 -F")
    server.run("sleep 2")
    client.start("client", "timeout 60 ib_write_bw -d irdma0 -x 1 -s 65536 -D 60 -F 10.0.0.1")
    client.run("sleep 3")
    server.run("kill -9 $(pidof ib_write_bw)")
    status, output = client.finish("client", 60)
    if status == 0:
        raise Failed(f"the client noticed nothing:\n{output}")
    server.finish("peer", 5)
    between(guests, "ibv_rc_pingpong -d irdma0 -g 1 -c -n 50")
    return f"the client ended with status {status}; traffic works afterwards"
