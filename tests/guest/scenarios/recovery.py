"""Unloading, resets, and peers that disappear: traffic works afterwards."""
import os

from machine import Failed, wait_until
from .netdev import expect
from .stage import address, between, carrier, load, rdma_active

ROUNDS = int(os.environ.get("RINGSIDE_RELOADS", "4"))


def reload(stage):
    """Both modules unloaded and loaded again, 4 times, or as often as RINGSIDE_RELOADS says."""
    stage.serve()
    guest, = stage.boot()
    for _ in range(ROUNDS):
        load(guest)
        address(guest, 0)
        guest.run("modprobe irdma", 30)
        rdma_active(guest)
        guest.run("rmmod irdma; rmmod ice", 60)
    return f"{ROUNDS} times: probe, link, RDMA device, unload"


# After a reload ice still marks the aggregator as existing but has dropped it, and prints this without a command.
ICE_AGGREGATOR = (r"unable to move VSI idx \d+ into aggregator 1 node",)
TRAFFIC = "ibv_rc_pingpong -d irdma0 -g 1 -c -n 20"


def number(guest):
    """The RDMA device's number, which is new each time the driver registers it."""
    return guest.run("rdma dev show irdma0 2>/dev/null | cut -d: -f1 || true").strip()


def rebuilt(guest, index, before):
    """Waits until the drivers have come back from a reset, which they do in the background, with a number that is not `before`."""
    wait_until("the RDMA device to be registered anew", 30, lambda: number(guest) not in ("", before))
    guest.run("for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && ip link set eth0 up && exit 0; sleep 0.2; done; exit 1", 40)
    guest.run(f"ip addr replace 10.0.0.{index + 1}/24 dev eth0")
    carrier(guest)
    rdma_active(guest)


def reset(stage):
    """Function-level reset by sysfs, and the driver restarted by devlink: RDMA traffic works before and after each."""
    guests = stage.pair()
    stage.allowed = ICE_AGGREGATOR
    between(guests, TRAFFIC)
    ways = ("echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset", "devlink dev reload pci/0000:01:00.0")
    if guests[0].run("uname -r").startswith("6.1."):
        # Its ice only reloads new firmware.
        ways = ways[:1]
    for way in ways:
        before = number(guests[0])
        guests[0].run(way, 60)
        rebuilt(guests[0], 0, before)
        between(guests, TRAFFIC)
    return "traffic after each of: " + "; ".join(ways)


def engine_errors(stage):
    """An error of the host memory cache and a critical error of the RDMA engine: irdma requests a reset where its version does, and traffic works again."""
    guests = stage.pair()
    stage.allowed = ICE_AGGREGATOR + (r"ICE OICR event notification", r"HMC Error", r"critical PE Error", r"Requesting a reset",
                                      r"abnormal ae_id = 0x50a ")
    between(guests, TRAFFIC)
    errors = (("hmc-error", "5", "1", "7"), ("critical-error", "0x1234"))
    for error in errors:
        before = number(guests[1])
        stage.server.tell("fault", "1", *error)
        if error[0] == "hmc-error" and only_logged(guests[1]):
            expect(guests[1].kernel_log(), "HMC Error: errinfo=0x80010500 errdata=0x00000007")
        else:
            rebuilt(guests[1], 1, before)
        between(guests, TRAFFIC)
    expect(guests[1].kernel_log(), "HMC Error", "critical PE Error, GLPE_CRITERR=0x00001234", "Requesting a reset")
    return "noticed, and traffic afterwards: " + ", ".join(error[0] for error in errors)


def only_logged(guest):
    """True if the kernel's irdma only logs errors of the host memory cache, with both registers, as it does since 7.1."""
    wait_until("irdma to notice the error", 30, lambda: "HMC Error" in guest.kernel_log())
    return "HMC Error: errinfo=" in guest.kernel_log()


def peer_killed(stage):
    """One side's process is killed in the middle: the other ends with an error, and both devices stay usable."""
    guests = stage.pair()
    # irdma prints this for every asynchronous event that ends a queue pair; 0x50a: too many retries.
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
