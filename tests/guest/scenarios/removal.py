"""The host takes a card from our commands: its driver is unbound, or its function removed."""
import time

from machine import PATIENCE, Failed
from .vfio import FIRST, SECOND, bound, free_huge_pages, own_guest

# A request of the kernel's that is not followed is repeated after 10 s.
LIMIT_S = 8
COMMANDS = {
    "forward": f"ringside forward --mode rxonly --device {FIRST}",
    "capture": f"ringside capture --device {FIRST} --write /run/capture.pcapng",
    "bench": f"ringside bench write bw -s 65536 -D 600 --device {FIRST} --peer {SECOND}",
}


def held(guest, address):
    """Waits until a process holds a function."""
    guest.run(f"group=$(basename $(readlink /sys/bus/pci/devices/{address}/iommu_group)); "
              "for i in $(seq 200); do ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q /dev/vfio/$group && exit 0; sleep 0.1; done; exit 1", 40)
    # Until the command works, not only claims.
    time.sleep(3 * PATIENCE)


def taken(guest, name, request):
    """The host's request under a command that runs: both end soon, and the command says why."""
    guest.start(name, f"exec {COMMANDS[name]}")
    held(guest, FIRST)
    began = time.monotonic()
    guest.run(request, LIMIT_S * PATIENCE)
    took = time.monotonic() - began
    status, output = guest.finish(name, 20)
    # A measurement is interrupted, as by Ctrl-C; a service ends.
    wanted = 130 if name == "bench" else 0
    if status != wanted or f"{FIRST}: the host asks for the device; this command ends" not in output:
        raise Failed(f"`{COMMANDS[name]}` ended with {status}:\n{output[-2000:]}")
    return took


def removed(stage):
    """`unbind` and `remove` by sysfs under our commands: each gives the card back within seconds, and it can be claimed again."""
    guest = own_guest(stage)
    bound(guest, FIRST, SECOND)
    before = free_huge_pages(guest)
    driver = "/sys/bus/pci/drivers/vfio-pci"
    times = []
    for name in COMMANDS:
        times.append(f"{name} {taken(guest, name, f'echo {FIRST} > {driver}/unbind'):.1f} s")
        guest.run(f"echo {FIRST} > {driver}/bind; ringside bring-up --device {FIRST}", 60)
    took = taken(guest, "forward", f"echo 1 > /sys/bus/pci/devices/{FIRST}/remove")
    guest.run(f"[ ! -e /sys/bus/pci/devices/{FIRST} ] && echo 1 > /sys/bus/pci/rescan && [ -e /sys/bus/pci/devices/{FIRST} ]")
    guest.run(f"echo vfio-pci > /sys/bus/pci/devices/{FIRST}/driver_override; [ -e /sys/bus/pci/devices/{FIRST}/driver ] || echo {FIRST} > {driver}/bind")
    guest.run(f"ringside bench write bw -s 4096 -n 1000 --device {FIRST} --peer {SECOND}", 60)
    if free_huge_pages(guest) != before:
        raise Failed(f"{free_huge_pages(guest)} huge pages are free afterwards, {before} were before")
    return f"unbound under {', '.join(times)}; removed under forward {took:.1f} s; claimed and measured after each"
