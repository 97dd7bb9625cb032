"""Recovery over VFIO: resets, stalls, errors and a lost link, raised in the model while a guest drives it."""
import json
import re
import time

from machine import PATIENCE, Failed
from .vfio import FIRST, SECOND, bound, free_huge_pages, own_guest

SECONDS = 120
# What the bench must raise at least: the causes of a recovery, and accesses that an IOMMU refuses.
RAISED = {"function-reset", "core-reset", "firmware-stall", "protocol-engine-stall", "hmc-error", "link-down", "dma-refused"}


def kinds_of_the_bench(guest):
    """The kinds of faults, as the command lists them where one is wrong."""
    said = guest.run("ringside bench --chaos --chaos-kinds none 2>&1 || true")
    listed = re.search(r"\[possible values: ([^\]]+)\]", said)
    if not listed:
        raise Failed(f"the bench lists no kinds of faults:\n{said[-1000:]}")
    kinds = listed.group(1).split(", ")
    if missing := RAISED - set(kinds):
        raise Failed(f"the bench does not raise {', '.join(sorted(missing))}, only {', '.join(kinds)}")
    return kinds


def chaos(stage):
    """`ringside bench --chaos` over VFIO: each fault is noticed, every outstanding request completes once, the device is back in service in the same process."""
    guest = own_guest(stage)
    bound(guest, FIRST, SECOND)
    before = free_huge_pages(guest)
    expected = kinds_of_the_bench(guest)
    guest.start("chaos", f"exec timeout {SECONDS * PATIENCE} ringside bench --chaos --chaos-rounds 1 --chaos-prompt "
                         f"--device {FIRST} --peer {SECOND} --out_json --out_json_file /run/chaos.json")
    raised = 0
    deadline = time.monotonic() + SECONDS * PATIENCE
    while not guest.run("cat /run/chaos.status 2>/dev/null || true").strip():
        asked = guest.run("sed -n 's/^raise: //p' /run/chaos.output").splitlines()
        for line in asked[raised:]:
            stage.server.tell(*line.split())
        raised = len(asked)
        if time.monotonic() > deadline:
            raise Failed(f"not over within {SECONDS} s:\n{guest.run('cat /run/chaos.output')[-2000:]}")
    status, output = guest.finish("chaos", 10)
    if status != 0:
        raise Failed(f"the bench ended with {status}:\n{output[-3000:]}")
    report = json.loads(guest.run("cat /run/chaos.json"))
    kinds = [kind["kind"] for kind in report["kinds"]]
    if kinds != expected or report["events"] != len(expected) or report["requests_flushed"] == 0:
        raise Failed(f"the report says {report}")
    if not re.search(r"through the kernel's VFIO", output) or free_huge_pages(guest) != before:
        raise Failed(f"{free_huge_pages(guest)} huge pages are free afterwards, {before} were before:\n{output[-1500:]}")
    times = ", ".join(f"{kind['kind']} {part['median_usec'] / 1000:.0f} ms" for kind in report["kinds"]
                      for part in kind["times"] if part["part"] == "bring_up")
    return (f"{report['requests_completed']} requests completed and {report['requests_flushed']} flushed, each once; "
            f"{report['verified_messages']} messages verified; brought up again in: {times}")
