"""`ringside forward` on one function, DPDK's testpmd on the other, on one wire of the model."""
import re

from machine import Failed, wait_until
from . import dpdk, frames
from .packets import device, last_report
from .vfio import FIRST, bound, own_guest

# The address of the model's second function, which is ours, and bytes of a frame of testpmd.
OURS = "02:e8:10:00:00:02"
SIZE = 300
LEAST = 200


class Ends:
    """testpmd with one port in the guest, and our command on this machine."""

    def __init__(self, stage, testpmd):
        self.stage, self.testpmd = stage, testpmd
        self.mac = re.search(r"MAC address: ([0-9A-F:]+)", testpmd.tell("show port info 0"))[1].lower()

    def ours(self, mode, *options):
        """Starts our command, and waits until its port takes packets."""
        program = self.stage.host_program("forward", "--device", device(self.stage.server), "--mode", mode, "--no-promiscuous",
                                          "--eth-peer", self.mac, "--json", *options)
        wait_until(f"`ringside forward --mode {mode}`", 30, lambda: "interval" in program.text() or not program.alive())
        return program

    def counted(self):
        found = dpdk.counted(self.testpmd, 0)
        return found["tx_good_packets"], found["rx_good_packets"] + found["rx_missed_errors"]

    def run(self, mode, command="start"):
        """testpmd in a mode for a second; returns what it sent and what reached its port, its drops included."""
        self.testpmd.tell(f"set fwd {mode}")
        before = self.counted()
        self.testpmd.tell(command)
        self.testpmd.guest.run("sleep 1")
        self.testpmd.tell("stop", 60)
        self.testpmd.guest.run("sleep 1")
        return [new - old for new, old in zip(self.counted(), before)]


def report(program):
    """What our port received, its drops included, and what it sent."""
    port, = last_report(program)["ports"]
    if port["malformed"] or port["malicious_events"]:
        raise Failed(f"our port reports {port}")
    return port["rx_packets"] + port["device_drops"]["rx_dropped"], port["tx_packets"]


def same(what, one, other):
    # Frames that the guest's drivers or ours send by themselves would show here: there are none.
    if one != other or one < LEAST:
        raise Failed(f"{what}: {one} packets against {other}; at least {LEAST} were expected")


def exchanged(stage, mac):
    """Checks on the wire that each frame of ours is one of testpmd's with its addresses exchanged; returns their number."""
    stage.server.tell("flush")
    wire = frames.read_capture(f"{stage.folder}/wire.pcap")
    ours, theirs = (bytes.fromhex(address.replace(":", "")) for address in (OURS, mac))
    sent = {frame[12:] for frame in wire if frame[:6] == ours and frame[6:12] == theirs}
    back = [frame for frame in wire if frame[6:12] == ours]
    wrong = [frame for frame in back if frame[:6] != theirs or frame[12:] not in sent]
    if wrong or len(back) < LEAST:
        raise Failed(f"{len(back)} frames of ours are on the wire, {len(wrong)} of them are none of testpmd's: {wrong[:1]}")
    return len(back)


def traffic(stage):
    """testpmd of DPDK 24.11 in a guest and `ringside forward` on one wire: macswap against macswap, txonly against rxonly both ways; the counts
    of both sides agree, each frame that came back has its addresses exchanged and no other byte changed."""
    folder, plugins = dpdk.program(stage, "dpdk-24")
    stage.leaves = dpdk.LEAVES
    guest = own_guest(stage, folders={dpdk.FOLDER.lstrip("/"): folder}.items(), used=1,
                      serving=("--refused-through-client", "--pcap", f"{stage.folder}/wire.pcap"))
    bound(guest, FIRST)
    testpmd = dpdk.Testpmd(guest, plugins, f"--rxq=1 --txq=1 --port-topology=loop --txpkts={SIZE} --eth-peer=0,{OURS}", addresses=(FIRST,))
    ends = Ends(stage, testpmd)
    program = ends.ours("macswap")
    sent, arrived = ends.run("macswap", "start tx_first")
    received, returned = report(program)
    same("macswap, testpmd to ours", sent, received)
    same("macswap, ours to testpmd", returned, arrived)
    swapped = exchanged(stage, ends.mac)
    program = ends.ours("rxonly")
    flood, _ = ends.run("txonly")
    same("txonly to our rxonly", flood, report(program)[0])
    before = ends.counted()[1]
    testpmd.tell("set fwd rxonly")
    testpmd.tell("start")
    total = report(ends.ours("txonly", "--txpkts", str(SIZE)))[1]
    guest.run("sleep 1")
    testpmd.tell("stop", 60)
    same("our txonly to rxonly", total, ends.counted()[1] - before)
    testpmd.quit()
    return (f"macswap: {sent} packets there and {returned} back, {swapped} compared on the wire; txonly: {flood} of testpmd's counted by ours, "
            f"{total} of ours by testpmd")
