"""The network device: probe, package, link."""
from machine import Failed, wait_until
from .stage import address, carrier, load

# ice announces safe mode by these lines.
SAFE_MODE = (r"Safe Mode", r"not enough device MSI-X", r"RDMA is not supported", r"Fail during requesting FW",
             r"firmware: failed to load", r"Direct firmware load")


def expect(text, *parts):
    for part in parts:
        if part not in text:
            raise Failed(f"'{part}' is not in:\n{text[-3000:]}")


def changes(guest):
    """The number of times that the carrier came or went."""
    return int(guest.run("cat /sys/class/net/eth0/carrier_changes"))


def set_up_anew(stage, guest):
    """Other link modes, a module that is taken out and put in again, and a core reset by another owner: the link comes back after each."""
    before = changes(guest)
    # 100GBASE-SR4
    guest.run("ethtool -s eth0 advertise 0x2000000000")
    wait_until("the link to be trained anew", 30, lambda: changes(guest) >= before + 2)
    carrier(guest)
    stage.server.tell("fault", "0", "module-absent")
    carrier(guest, "0")
    stage.server.tell("clear", "0", "module-absent")
    carrier(guest)
    stage.server.tell("fault", "0", "core-reset")
    wait_until("ice to notice the core reset", 30, lambda: "VSI rebuilt" in guest.kernel_log())
    carrier(guest)


def link(stage):
    """ice probes on a device whose package is loaded, the link comes up at 100 Gb/s, goes down and up, is set up anew, loses and gets its
    module, comes back from a core reset, and the driver unloads."""
    stage.serve()
    guest, = stage.boot()
    load(guest)
    expect(guest.run("ethtool -i eth0; devlink dev info"), "driver: ice", "bus-info: 0000:01:00.0", "fw.mgmt.api 1.7.10", "fw.netlist 4.4.4000-1.14.0")
    address(guest, 0)
    expect(guest.run("ethtool eth0"), "Speed: 100000Mb/s", "Auto-negotiation: off", "Link detected: yes")
    guest.run("ethtool -S eth0; ethtool -k eth0; ethtool -g eth0; ethtool -l eth0; ethtool -x eth0; ip link set eth0 mtu 9000")
    carrier(guest)
    guest.run("ip link set eth0 down; ip link set eth0 up")
    carrier(guest)
    # Requests bits of codes that this module does not have.
    for correction in ("rs", "off", "auto"):
        guest.run(f"ethtool --set-fec eth0 encoding {correction}")
        carrier(guest)
    set_up_anew(stage, guest)
    vectors = guest.run("grep -c ' ice-' /proc/interrupts").strip()
    guest.run("rmmod ice", 30)
    return f"ice probed, {vectors} vectors, 100 Gb/s link, MTU 9000, down and up, other link modes, module out and in, core reset, unloaded"


def package(stage):
    """ice downloads its package, signature first, to a device that has none."""
    stage.serve(options=["--no-package"])
    guest, = stage.boot()
    load(guest)
    log = guest.kernel_log()
    expect(log, "The DDP package was successfully loaded: ICE OS Default Package")
    version = log.split("ICE OS Default Package version ")[1].split()[0]
    address(guest, 0)
    guest.run("rmmod ice", 30)
    return f"package {version} taken from the driver, link up"


def safe_mode(stage):
    """ice without any package: safe mode, one queue, link up, no RDMA."""
    stage.serve(options=["--no-package"])
    guest, = stage.boot(package=False)
    load(guest)
    expect(guest.kernel_log(), "Entering Safe Mode", "RDMA is not supported on this device")
    address(guest, 0)
    queues = guest.run("ls -d /sys/class/net/eth0/queues/tx-* | wc -l").strip()
    if queues != "1":
        raise Failed(f"{queues} transmit queues in safe mode")
    stage.allowed = SAFE_MODE
    guest.run("rmmod ice", 30)
    return "one queue, link up, no RDMA device"
