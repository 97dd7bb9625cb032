"""The RDMA device and traffic between two guests, each with one function of the same server."""
import re

from machine import Failed
from .netdev import expect
from .stage import address, between, load, rdma_active


def device(stage):
    """irdma registers its device; ibv_devinfo shows an E810's limits, the port is active."""
    stage.serve()
    guest, = stage.boot()
    load(guest)
    address(guest, 0)
    guest.run("modprobe irdma", 30)
    rdma_active(guest)
    shown = guest.run("ibv_devinfo -v")
    expect(shown, "vendor_id:\t\t\t0x8086", "hw_ver:\t\t\t\t0x2", "PORT_ACTIVE (4)", "page_size_cap:\t\t\t0x40201000",
           "max_sge:\t\t\t13", "max_qp_rd_atom:\t\t\t127", "::ffff:10.0.0.1, RoCE v2")
    limits = {name: int(re.search(rf"{name}:\s+(\d+)", shown).group(1)) for name in ("max_qp", "max_cq", "max_mr", "max_qp_wr")}
    if limits["max_qp"] < 1024 or limits["max_cq"] < 2048 or limits["max_mr"] < 16384:
        raise Failed(f"limits are too small for use: {limits}")
    guest.run("rmmod irdma; rmmod ice", 60)
    return "port active, " + ", ".join(f"{name} {value}" for name, value in limits.items())


def ping_pong(stage):
    """ibv_rc_pingpong with validated data, polling and with events, small messages and large."""
    guests = stage.pair()
    for options in ("-n 100", "-n 100 -e", "-n 20 -s 65536", "-n 20 -s 1048576 -e", "-n 100 -s 1"):
        between(guests, f"ibv_rc_pingpong -d irdma0 -g 1 -c {options}")
    return "data validated on both sides: 1 B to 1 MiB, polling and events"


def sizes(stage):
    """perftest: writes, reads and sends of 2 B to 8 MiB, and on several queue pairs."""
    guests = stage.pair()
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        output, _ = between(guests, f"{program} -d irdma0 -x 1 -a -n 10 -F", 90)
        rows = [line for line in output.splitlines() if re.match(r"\s*\d+\s+10\s", line)]
        if len(rows) != 23:
            raise Failed(f"{program}: {len(rows)} sizes of 23:\n{output}")
    between(guests, "ib_write_bw -d irdma0 -x 1 -q 4 -s 65536 -n 20 -F", 60)
    between(guests, "ib_write_bw -d irdma0 -x 1 -b -s 65536 -n 20 -F", 60)
    return "23 sizes of each operation, four queue pairs, both directions at once"


def events(stage):
    """Latency tests that sleep until the completion event: none is lost."""
    guests = stage.pair()
    for program in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
        sleeping = "" if program == "ib_write_lat" else "-e"
        between(guests, f"{program} -d irdma0 -x 1 -s 64 -n 1000 -F {sleeping}", 60)
    # 6.1 calls the interrupts CEQ, 6.12 and 7.3 irdma-CEQ-0 and so on.
    lines = guests[0].run("grep -w CEQ /proc/interrupts").splitlines()
    interrupts = sum(int(number) for line in lines for number in line.split()[1:3])
    return f"1000 rounds each; {interrupts} completion interrupts in the first guest"


def large_mtu(stage):
    """Path MTU 4096."""
    guests = stage.pair(mtu=9000)
    expect(guests[0].run("ibv_devinfo"), "active_mtu:\t\t4096")
    between(guests, "ibv_rc_pingpong -d irdma0 -g 1 -c -m 4096 -n 50 -s 100000")
    between(guests, "ib_write_bw -d irdma0 -x 1 -m 4096 -s 1048576 -n 20 -F")
    return "messages of 100000 B and 1 MiB in packets of 4096"
