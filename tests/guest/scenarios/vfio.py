"""Our own driver inside a guest, over the kernel's VFIO and an emulated IOMMU: only Linux is between the driver and the card."""
import json
import os
import random
import re
import signal
import subprocess
import time

import overlay
from machine import Failed, Guest, Server
from .stage import load

FIRST, SECOND, THIRD = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
HUGE_PAGES = 320
# An I/O virtual address of our driver: random, between 2^32 and 2^48; a command of the admin queue holds its buffer's in two words.
ADDRESS = re.compile(r"\b[0-9a-f]{9,12}\b|\b[0-9a-f]{8} [0-9a-f]{8}(?= with \d+ bytes)")
# PF_FW_ATQBAL, _ARQBAL, _ATQBAH, _ARQBAH, PFPE_CCQPLOW and _CCQPHIGH
ADDRESS_REGISTERS = (0x80000, 0x80080, 0x80100, 0x80180, 0x50A080, 0x50A100)
# Messages to a worker that sleeps.
WAKES = 1000
KILLS = int(os.environ.get("RINGSIDE_KILLS", "5"))


def guest_with_command(stage, sockets, files=(), folders=(), programs=(), lifetime=600, gigantic=0, **settings):
    """A guest with an IOMMU, the functions of these sockets each in an IOMMU group of its own, and our command inside; see `own_guest`."""
    program = os.path.join(stage.folder, "ringside")
    subprocess.run(["strip", "-o", program, stage.ringside], check=True)
    image = overlay.image(stage.rig, "guest-with-package.cpio", os.path.join(stage.folder, "own.cpio"),
                          {"usr/bin/ringside": program, **dict(files)}, programs, folders)
    guest = Guest(stage.rig, stage.folder, "guest0", sockets=sockets, image=image, memory=f"{3 + gigantic}G",
                  append=f"intel_iommu=on hugepages={HUGE_PAGES} hugepagesz=1G hugepages={gigantic}", iommu=True, lifetime=lifetime, **settings)
    stage.guests.append(guest)
    guest.booted()
    os.remove(image)
    return guest


def own_guest(stage, functions=2, files=(), folders=(), programs=(), spare=False, used=None, serving=(), lifetime=600, **settings):
    """A guest with an IOMMU, functions of the model each in an IOMMU group of its own, and our command inside.

    `files`, `folders` and `programs` are added to its file system, see `overlay.image`; `used` of the functions are in this guest, all by
    default; `spare` adds a function of another server, which is
    `stage.spare`; `serving` are further options of the server; `gigantic` is the number of huge pages of 1 GiB.
    """
    stage.serve(functions, ("--doorbell-page", *serving), lifetime=lifetime)
    sockets = stage.server.sockets[:used]
    if spare:
        folder = os.path.join(stage.folder, "spare")
        os.makedirs(folder)
        stage.spare = Server(stage.ringside, stage.command, folder, 1, ("--doorbell-page",))
        stage.programs.append(stage.spare)
        sockets += stage.spare.sockets
    return guest_with_command(stage, sockets, files, folders, programs, lifetime, **settings)


def bound(guest, *addresses):
    """Binds functions to vfio-pci with our own command."""
    guest.run(f"ringside bind {' '.join(addresses)}", 60)


def refused(guest, command, *wanted, code=None):
    """Runs a command that must fail and print the reason."""
    status, output = guest.ask(command, 60)
    if status == 0 or (code is not None and status != code):
        raise Failed(f"`{command}` ended with {status}:\n{output[-1500:]}")
    for text in wanted:
        if text not in output:
            raise Failed(f"`{command}` does not say '{text}':\n{output[-1500:]}")
    return output


def free_huge_pages(guest):
    return int(guest.run("sed -n 's/HugePages_Free: *//p' /proc/meminfo"))


def tools(stage):
    """devices, doctor, bind, unbind: cards in use are refused, a dry run shows the actions, the kernel's driver comes back."""
    guest = own_guest(stage)
    load(guest)
    name = guest.run(f"ls /sys/bus/pci/devices/{FIRST}/net").strip()
    guest.run(f"ip addr add 10.0.0.1/24 dev {name}; ip link set {name} up")
    listed = guest.run("ringside devices")
    for text in (f"{FIRST}   E810-C for QSFP", "ice", f"ringside bind {FIRST}", "10.0.0.1"):
        if text not in listed:
            raise Failed(f"`ringside devices` does not show '{text}':\n{listed}")
    refused(guest, f"ringside bind {FIRST}", f"{name} has the address 10.0.0.1", "--force", code=1)
    refused(guest, "ringside doctor", "BLOCKS", f"fix: ringside bind {FIRST}", code=1)
    refused(guest, f"ringside bring-up --device {FIRST}", "driven by ice", f"ringside bind {FIRST}", code=3)
    shown = guest.run(f"ringside bind --dry-run --force {FIRST}")
    if f"echo vfio-pci > /sys/bus/pci/devices/{FIRST}/driver_override" not in shown or "vfio" in guest.run("ls /dev"):
        raise Failed(f"a dry run shows:\n{shown}")
    guest.run(f"ip link set {name} down; ip addr flush dev {name}")
    bound(guest, FIRST, SECOND)
    findings = json.loads(guest.run(f"ringside doctor --json {FIRST}"))
    if findings["blocking"]:
        raise Failed(f"doctor still finds what blocks: {findings}")
    guest.run(f"ringside bring-up --device {FIRST}")
    # As another user: refused, and permitted once the user owns the file.
    guest.run("echo 'someone:x:1000:1000::/:/bin/bash' >> /etc/passwd; chmod 1777 /tmp")
    refused(guest, f"busybox su someone -c 'ringside bring-up --device {FIRST}'", "permission denied", "udev rule", code=3)
    refused(guest, f"busybox su someone -c 'ringside doctor {FIRST}'", "permission", "chown 1000 /dev/vfio/", code=1)
    group = guest.run(f"basename $(readlink /sys/bus/pci/devices/{FIRST}/iommu_group)").strip()
    guest.run(f"chown 1000 /dev/vfio/{group}; busybox su someone -c 'ringside bring-up --device {FIRST}'")
    refused(guest, f"busybox su someone -c 'ulimit -l 4096; ringside bring-up --device {FIRST}'",
            "locked memory", "limits.conf", "LimitMEMLOCK", code=3)
    # Held by another process: neither claimed twice nor unbound.
    guest.start("holder", f"exec ringside bench --device {FIRST} --peer {SECOND} write bw -s 65536 -D 20")
    guest.run(f"for i in $(seq 100); do ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q /dev/vfio/{group} && exit 0; sleep 0.1; done; exit 1", 30)
    refused(guest, f"ringside bring-up --device {FIRST}", f"/dev/vfio/{group} is in use by ringside (pid", code=3)
    refused(guest, f"ringside unbind {FIRST}", "is in use by ringside (pid", code=1)
    guest.run("kill $(pidof ringside)")
    guest.finish("holder", 20)
    guest.run(f"ringside unbind {FIRST} {SECOND}", 60)
    guest.run(f"for i in $(seq 100); do [ -e /sys/bus/pci/devices/{FIRST}/net ] && exit 0; sleep 0.1; done; exit 1", 30)
    guest.run(f"name=$(ls /sys/bus/pci/devices/{FIRST}/net); ip link set $name up; "
              "for i in $(seq 100); do [ \"$(cat /sys/class/net/$name/carrier)\" = 1 ] && exit 0; sleep 0.1; done; exit 1", 30)
    return "in use refused, bound, claimed as root and as another user, held, given back: ice has its link again"


def drive(stage):
    """Bring-up over VFIO makes the same exchanges as in process; bench between two functions, every byte compared."""
    guest = own_guest(stage)
    bound(guest, FIRST, SECOND)
    before = free_huge_pages(guest)
    over_vfio = json.loads(guest.run(f"ringside bring-up --trace --json --device {FIRST}", 60))
    in_process = subprocess.run(
        [stage.ringside, "--config", quiet_config(stage), "bring-up", "--trace", "--json"],
        capture_output=True, text=True, timeout=60, check=False)
    compare(over_vfio, json.loads(in_process.stdout))
    output = guest.run(f"ringside bench --device {FIRST} --peer {SECOND} -n 100", 240)
    verified = re.search(r"(\d+) messages verified byte by byte", output)
    if not verified or int(verified.group(1)) == 0 or "through the kernel's VFIO" not in output:
        raise Failed(f"the bench says:\n{output[-3000:]}")
    if free_huge_pages(guest) != before or before == 0:
        raise Failed(f"{free_huge_pages(guest)} huge pages are free afterwards, {before} were before")
    return f"{exchanges(over_vfio)} exchanges as in process; {verified.group(1)} messages between two functions verified"


# Tests that read the model's state or inject faults: they need the model in the same process.
IN_PROCESS_ONLY = (
    "errors::requests_of_a_queue_pair_end_even_if_the_engine_stops_answering",
    "matrix::random_operations_keep_their_bytes_when_frames_are_lost",
    "matrix::eight_mebibytes_in_thirteen_fragments_arrive_by_every_operation_though_frames_are_lost",
    "matrix::sixty_four_queue_pairs_write_send_and_read_though_frames_are_lost",
    # break the interface on purpose
    "errors::a_completion_queue_that_overflows_is_reported",
    # needs pages of 1 GiB
    "regions::a_region_of_pages_of_1_gib_is_written_across_their_border",
    # brings up functions of its own
    "regions::a_peer_cannot_foretell_the_address_of_a_region_unless_the_seed_is_given",
)
# The bodies of `containment` have a scenario of their own.
MODULES = ("transfers::", "register_writes::", "errors::", "regions::", "matrix::", "connection::a_shutdown", "connection::a_hundred")


def bodies(stage):
    """The scenario tests that run in process, the same code, on two functions over VFIO."""
    program = built(stage, "test", "rdma_end_to_end")
    guest = own_guest(stage, files={"usr/bin/scenarios": program}.items())
    bound(guest, FIRST, SECOND)
    skipped = " ".join(f"--skip {name}" for name in IN_PROCESS_ONLY)
    status, output = guest.ask(
        f"RINGSIDE_TEST_DEVICES={FIRST},{SECOND} timeout 400 scenarios --test-threads=1 {' '.join(MODULES)} {skipped} 2>&1", 420)
    result = re.search(r"test result: ok. (\d+) passed; 0 failed; 0 ignored", output)
    if status != 0 or not result or int(result.group(1)) < 20:
        raise Failed(f"the test bodies ended with {status}:\n{output[-4000:]}")
    return f"{result.group(1)} test bodies"


# Kernels of 7.x print the device with its domain, older ones without.
# "DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0x1008e0000 [fault reason 0x06] PTE Read access is not set"
FAULT = re.compile(r"DMAR: \[DMA (Read|Write).*?Request device \[(?:0000:)?([0-9a-f:.]+)\] fault addr (0x[0-9a-f]+) \[fault reason (0x[0-9a-f]+)\] (.*)")


def contained(stage):
    """Memory never mapped and memory unmapped, read and written: the IOMMU refuses and logs each, the driver reports the queue
    pair that failed, its neighbours on the same function carry verified traffic meanwhile."""
    program = built(stage, "test", "rdma_end_to_end")
    guest = own_guest(stage, files={"usr/bin/scenarios": program}.items(), serving=("--refused-through-client",))
    bound(guest, FIRST, SECOND)
    quiet = [line for line in guest.kernel_log().splitlines() if FAULT.search(line)]
    if quiet:
        raise Failed(f"the IOMMU has faults before anything was done: {quiet[:3]}")
    stage.provoked = ("the device is given memory that is not mapped",)
    # The kernel writes ten lines about faults in five seconds and no more, and counts three for each fault.
    status, output = guest.ask(f"export RINGSIDE_TEST_DEVICES={FIRST},{SECOND}; scenarios='timeout 100 scenarios --test-threads=1 --nocapture'; "
                               "($scenarios containment:: --skip never && sleep 5 && $scenarios containment::memory_that_was_never) 2>&1", 220)
    passed = re.findall(r"test result: ok. (\d+) passed; 0 failed; 0 ignored", output)
    wanted = {(kind, device[5:], int(address, 16) & ~0xFFF)
              for kind, device, address in re.findall(r"^(?:test .*)?refused: (Read|Write) (\S+) (0x[0-9a-f]+)$", output, re.M)}
    if status != 0 or "0" in passed or not wanted:
        raise Failed(f"the test bodies ended with {status}:\n{output[-4000:]}")
    faults = FAULT.findall(guest.kernel_log())
    found = {(kind, device, int(address, 16)) for kind, device, address, _, _ in faults}
    if found != wanted:
        raise Failed(f"the IOMMU has logged {found}, to be refused was {wanted}\n" +
                     "\n".join(line for line in guest.kernel_log().splitlines() if "DMAR" in line)[-2000:])
    stage.allowed = (r"DMAR: \[DMA (Read|Write)", r"DMAR: DRHD: handling fault status reg")
    kinds = sorted({f"{kind.lower()}: {what}" for kind, _, _, _, what in faults})
    return f"{sum(map(int, passed))} bodies, {len(wanted)} addresses refused and logged by the IOMMU ({'; '.join(kinds)}), neighbours intact"


def vanished(stage):
    """The model's server killed under traffic: every call ends in time with an error, the process claims another device."""
    program = built(stage, "example", "outlive")
    guest = own_guest(stage, files={"usr/bin/outlive": program}.items(), spare=True)
    bound(guest, FIRST, SECOND, THIRD)
    guest.start("outlive", f"exec timeout 300 outlive {FIRST} {SECOND} {THIRD}")
    guest.run("for i in $(seq 300); do grep -q 'under traffic' /run/outlive.output && exit 0; sleep 0.1; done; cat /run/outlive.output; exit 1", 60)
    # Between two instructions of the guest: QEMU 11.1 aborts by itself (error_setv, `*errp == NULL`) if a server dies that has not
    # read all that was written to it, as its socket is then reset rather than closed.
    guest.monitor.ask("stop")
    time.sleep(0.5)
    kill(stage.server)
    time.sleep(0.5)
    guest.monitor.ask("cont")
    status, output = guest.finish("outlive", 300)
    if status != 0 or "outlived" not in output or "panicked" in output:
        raise Failed(f"ended with {status}:\n{output[-4000:]}")
    noticed = re.search(r"noticed: (.*)", output)
    slowest = max(seconds(span) for span in re.findall(r"\(([0-9.]+(?:ns|µs|ms|s))\)$", output, re.M))
    if slowest > 15:
        raise Failed(f"a call took {slowest} s:\n{output[-4000:]}")
    # The kernel's messages about cards that do not answer.
    stage.allowed = (r"vfio-pci 0000:0[12]:00.0: ", r"pcieport .*: Data Link Layer Link Active not set")
    stage.programs.remove(stage.spare)
    stage.server = stage.spare
    return f"{noticed.group(1)}; every call ended within {slowest:.1f} s, another function came up in the same process"


def sleep(stage):
    """A worker that sleeps on VFIO's event descriptor: a thousand wakes, none lost; next to no core while idle."""
    program = built(stage, "example", "wakes")
    guest = own_guest(stage, files={"usr/bin/wakes": program}.items())
    bound(guest, FIRST, SECOND)
    status, output = guest.ask(f"timeout 200 wakes {FIRST} {SECOND} {WAKES}", 220)
    counts = re.search(r"(\d+) messages, (\d+) sleeps, (\d+) ended by the interrupt, (\d+) messages found while arming, 0 wakes lost", output)
    kernel = re.search(r"vfio-msix: (\d+)", output)
    idle = re.search(r"idle for .*", output)
    if status != 0 or not counts or not kernel or not idle:
        raise Failed(f"wakes ended with {status}:\n{output[-3000:]}")
    sent, _, interrupted, early = map(int, counts.groups())
    if sent != WAKES or interrupted + early < sent or int(kernel.group(1)) < interrupted:
        raise Failed(f"not every message was announced, or the kernel has not counted it:\n{output[-3000:]}")
    times = "; ".join(re.findall(r"^(?:an event|a message).*median.*", output, re.M))
    return f"{interrupted} wakes by {kernel.group(1)} interrupts of the kernel's count, none lost; {idle.group(0)}; {times}"


def seconds(span):
    """Reads a time in the format that Rust prints."""
    number, unit = re.fullmatch(r"([0-9.]+)(\D+)", span).groups()
    return float(number) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]


def kill(server):
    """Kills a server's process, the child of its `timeout`, by SIGKILL."""
    with open(f"/proc/{server.process.pid}/task/{server.process.pid}/children") as file:
        os.kill(int(file.read().split()[0]), signal.SIGKILL)
    server.process.wait(5)


def built(stage, kind, name):
    """A program of the tests' package, a `test` or an `example`; of the whole workspace, so that the build of its tests is used."""
    words = ("test", "--test", name, "--no-run") if kind == "test" else ("build", "--example", name)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    made = subprocess.run(["cargo", words[0], "--quiet", "--workspace", *words[1:], "--message-format=json"],
                          cwd=root, capture_output=True, text=True, timeout=1200, check=False)
    told = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{")]
    # Other programs of the package are built as well, in any order.
    found = [one["executable"] for one in told if one.get("executable") and one["target"]["name"] == name]
    if made.returncode != 0 or not found:
        raise Failed(f"cargo {' '.join(words)}: {made.stderr[-1500:]}")
    program = os.path.join(stage.folder, os.path.basename(found[-1]))
    subprocess.run(["strip", "-o", program, found[-1]], check=True)
    return program


def quiet_config(stage):
    """The configuration of the run in process: the same packages' search path as in the guest."""
    path = os.path.join(stage.folder, "in-process.toml")
    package = os.path.join(stage.rig, "root/usr/lib/firmware/intel/ice/ddp")
    with open(path, "w") as file:
        file.write(f'[ddp]\nsearch = ["{package}"]\n')
    return path


def exchanges(outcome):
    return sum(len(stage["exchanges"]) for stage in outcome["trace"]["stages"])


def normal(exchange):
    """An exchange without the values that may differ: times, numbers of polls, addresses in memory, bits found set, notes."""
    if exchange["kind"] == "note":
        return None
    if exchange["kind"] == "configuration-space":
        return f"configuration space {exchange['offset']:#x}: changed {exchange['before'] ^ exchange['after']:#x}"
    kept = {key: value for key, value in exchange.items() if key not in ("took_ns", "reads", "attempts")}
    if kept.get("offset") in ADDRESS_REGISTERS and (kept["access"], kept["value"]) != ("write", 0):
        kept["value"] = "(address)"
    for words in ("asked", "answered"):
        if words in kept:
            kept[words] = ADDRESS.sub("(address)", kept[words])
    if kept.get("name") in ("list_dev_caps", "list_func_caps") and "answered" in kept:
        # The model in process has a timer (capability 0x46), the served one does not: one entry of 32 bytes.
        kept["answered"] = re.sub(r"ok 00000000 [0-9a-f]{8} \(address\) with \d+ bytes", "ok (capabilities)", kept["answered"])
    text = json.dumps(kept, sort_keys=True)
    # numbers whose first one is random in each bring-up
    return re.sub(r"arp_index: [0-9a-f]+", "arp_index", text)


def compare(one, other):
    """Compares both traces, exchange by exchange."""
    ours = [(stage["stage"], flat(stage)) for stage in one["trace"]["stages"]]
    theirs = [(stage["stage"], flat(stage)) for stage in other["trace"]["stages"]]
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        raise Failed(f"stages differ: {[name for name, _ in ours]} and {[name for name, _ in theirs]}")
    for (name, left), (_, right) in zip(ours, theirs):
        if left != right:
            lines = [f"  over VFIO  {a}\n  in process {b}" for a, b in zip(left, right) if a != b]
            raise Failed(f"stage {name}: {len(left)} and {len(right)} exchanges; first differences:\n" + "\n".join(lines[:4]))


def flat(stage):
    return [text for text in map(normal, stage["exchanges"]) if text]


def killed(stage):
    """kill -9 at random moments under traffic: the next claim works, no page is lost, the model saw no stray DMA."""
    guest = own_guest(stage)
    bound(guest, FIRST, SECOND)
    before = free_huge_pages(guest)
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    try:
        for _ in range(KILLS):
            kill_once(guest, moments, before)
    except Failed as failure:
        raise Failed(f"seed {seed}: {failure}") from None
    guest.run(f"ringside bench --device {FIRST} --peer {SECOND} write lat -n 20", 120)
    return f"{KILLS} kills (seed {seed}): each time the functions were reset, claimed and driven again, {before} huge pages free"


def kill_once(guest, moments, before):
    operation = moments.choice(("write", "read", "send"))
    size = moments.choice((8, 4096, 65536, 1 << 20))
    guest.start("victim", f"exec ringside bench --device {FIRST} --peer {SECOND} {operation} bw -s {size} -q 4 -D 30")
    moment = moments.uniform(0.05, 2.5)
    guest.run(f"sleep {moment:.3f}; kill -9 $(pidof ringside)")
    guest.finish("victim", 20)
    free = guest.run("for i in $(seq 50); do f=$(sed -n 's/HugePages_Free: *//p' /proc/meminfo); "
                     f"[ $f = {before} ] && break; sleep 0.1; done; echo $f").strip()
    if int(free) != before:
        raise Failed(f"killed after {moment:.3f} s of {operation} of {size} bytes: {free} huge pages are free of {before}")
    guest.run(f"ringside bring-up --device {FIRST} > /dev/null & ringside bring-up --device {SECOND} > /dev/null && wait $!", 60)
