"""DPDK's own driver for the E810 on the model: testpmd in a guest, through vfio-pci and an emulated IOMMU."""
import glob
import os
import re
import shutil
import subprocess
import time

import store
from machine import PATIENCE, Failed, wait_until
from . import dpdk_flows, frames
from .lan import toeplitz
from .vfio import FIRST, SECOND, bound, own_guest

# Of DPDK's drivers only those that are used: each of the others would look for its own hardware.
DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_ice", "net_pcap")
FOLDER = "/opt/dpdk"
PROMPT = "testpmd> "
# Words of testpmd and of the driver's log that report a failure.
COMPLAINT = re.compile(r"Bad arguments|Command not found|[Ff]ail(ed|ure)|^ICE_\w+: (?!ice_set_[rt]x_function|ice_load_pkg_type)|^EAL: |ETHDEV: |[Cc]annot|[Nn]ot supported|[Ii]nvalid|error:")
QUEUES = 4
RESTARTS = 10
# DPDK's driver leaves these when it closes its ports, and removes them at its next start (0x02A4): the rules of its addresses, the
# scheduler's entry, the flow director's counters and entries, profiles.
LEAVES = {
    "switch rules": (re.compile(r"recipe: 3, .*header: \[(2, 0, 0, 0, 0, 0|3, 0, 0, 0, 0, 0|ff, ff, ff, ff, ff, ff), 2, "),),
    "resources (type, number)": (re.compile(r"^\((21|22|23|60|61), "),),
    "scheduler nodes (id, parent, kind)": (re.compile(r"^\(102, ffffffff, 0\)"),),
}
# DPDK 24.11.8 and 25.11.4 take the link down when a port closes, unless the device argument `link_state_on_close` prevents it.
LINK_DOWN_AT_CLOSE = {"link settings (disabled, events on, their mask, PHY changed, loopback, pause timers changed)": (re.compile(r"^\(true, false, 0, true,"),)}
# Flows from a file, bytes of a segment, entries of a lookup table.
FLOWS, SEGMENT, TABLE = 48, 1000, 512
SECONDS = 300


def program(stage, judge):
    """A folder with testpmd of that version, its drivers, and all libraries that they need, the loader included."""
    tree = store.dpdk(os.path.dirname(os.path.realpath(stage.rig)), judge)
    if tree is None:
        raise Failed(f"{judge} could not be fetched")
    libraries = f"{tree}/root/usr/lib/x86_64-linux-gnu"
    drivers, = (folder for folder in glob.glob(f"{libraries}/dpdk/pmds-*"))
    loader = f"{libraries}/ld-linux-x86-64.so.2"
    # The name that carries the binary interface's number, librte_net_ice.so.25, and not the longer ones.
    plugins = [path for name in DRIVERS for path in glob.glob(f"{drivers}/librte_{name}.so.*") if re.search(r"\.so\.\d+$", path)]
    own = f"{stage.folder}/dpdk"
    os.makedirs(own)
    for path in (f"{tree}/root/usr/bin/dpdk-testpmd", *plugins):
        shutil.copy(os.path.realpath(path), f"{own}/{os.path.basename(path)}")
        listed = subprocess.run([loader, "--library-path", f"{libraries}:{drivers}", "--list", path], capture_output=True, text=True)
        for name, found in re.findall(r"^\s*(\S+) => (/\S+)", listed.stdout, re.M):
            shutil.copy(os.path.realpath(found), f"{own}/{os.path.basename(name)}")
    shutil.copy(os.path.realpath(loader), f"{own}/loader")
    source = os.path.join(os.path.dirname(os.path.abspath(store.__file__)), "line_buffered.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", source, "-o", f"{own}/line_buffered.so"], check=True)
    return own, [os.path.basename(path) for path in plugins]


class Testpmd:
    """testpmd with its prompt: commands are written to a pipe, its output is read from a file."""

    def __init__(self, guest, plugins, arguments, devices=(), name="testpmd", addresses=(FIRST, SECOND)):
        self.guest, self.name = guest, name
        loading = " ".join(f"-d {FOLDER}/{plugin}" for plugin in plugins)
        functions = " ".join(f"-a {address}" for address in addresses)
        virtual = " ".join(f"--vdev={device}" for device in devices)
        guest.run(f"mkdir -p /var/run; rm -f /run/{name}.in; mkfifo /run/{name}.in")
        guest.start(name, f"exec 3<>/run/{name}.in; cd /tmp; exec timeout {SECONDS * PATIENCE} {FOLDER}/loader --preload {FOLDER}/line_buffered.so "
                          f"--library-path {FOLDER} {FOLDER}/dpdk-testpmd -l 0,1 --in-memory --no-telemetry {loading} {functions} {virtual} "
                          f"-- -i --total-num-mbufs=32768 {arguments} <&3")
        self.seen = 0
        self.begun = False
        self.prompt(90)

    def prompt(self, seconds=30):
        """Waits for the prompt after a command; returns the output until then. Packets and events that testpmd prints can follow the prompt."""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            output = self.guest.run(f"tail -c +{self.seen + 1} /run/{self.name}.output 2>/dev/null; [ ! -e /run/{self.name}.status ] || echo RIG-ENDED")
            if PROMPT in output:
                self.seen += len(output.encode())
                return output
            if "RIG-ENDED" in output or time.monotonic() > deadline:
                raise Failed(f"testpmd gave no prompt:\n{output[-3000:]}\nkernel:\n{self.guest.tail(12)}")
            time.sleep(0.1)

    def begin(self, command):
        """Types a command after which testpmd prints packets. They can cut the prompt, which it writes character by character, so that is
        not waited for: let the packets come before the next command."""
        self.guest.run(f"echo '{command}' > /run/{self.name}.in")
        self.begun = True

    def ask(self, command, seconds=30):
        """Types one command; returns the output of testpmd."""
        if self.begun:
            self.begun = False
            self.seen = int(self.guest.run(f"wc -c < /run/{self.name}.output"))
        self.guest.run(f"echo '{command}' > /run/{self.name}.in")
        # The typed line is printed first, after the earlier prompt.
        return self.prompt(seconds)

    def tell(self, command, seconds=30):
        """The same; testpmd must not report a failure."""
        said = self.ask(command, seconds)
        complaint = next((line for line in said.splitlines() if COMPLAINT.search(line)), None)
        if complaint:
            raise Failed(f"testpmd says to '{command}': {complaint}\n{said[-1500:]}")
        return said

    def quit(self):
        self.guest.run(f"echo quit > /run/{self.name}.in")
        status, output = self.guest.finish(self.name, 60)
        if status != 0:
            raise Failed(f"testpmd ended with {status}:\n{output[-3000:]}")
        return output


def counted(testpmd, port):
    """The extended statistics of a port."""
    return {name: int(value) for name, value in re.findall(r"^(\w+): (\d+)$", testpmd.tell(f"show port xstats {port}"), re.M)}


def forward(testpmd, mode, seconds=1.0, first=True):
    """Forwards for a while; returns the changes of each port's statistics, and testpmd's output at the end."""
    testpmd.tell(f"set fwd {mode}")
    before = [counted(testpmd, port) for port in (0, 1)]
    testpmd.tell("start tx_first" if first else "start")
    testpmd.guest.run(f"sleep {seconds}")
    said = testpmd.tell("stop", 60)
    after = [counted(testpmd, port) for port in (0, 1)]
    return [{name: new[name] - old.get(name, 0) for name in new} for old, new in zip(before, after)], said


def need(what, value, least=1):
    if value < least:
        raise Failed(f"{what}: {value}, at least {least} were expected")
    return value


def modes(testpmd):
    """txonly, io and mac between the two ports."""
    shown = []
    for mode in ("txonly", "io", "mac"):
        moved, _ = forward(testpmd, mode, first=mode != "txonly")
        for port in (0, 1):
            need(f"{mode}: packets received by port {port}", moved[port]["rx_good_packets"], 32)
            need(f"{mode}: packets sent by port {port}", moved[port]["tx_good_packets"], 32)
            wrong = {name: value for name, value in moved[port].items() if value and re.search(r"error|crc|illegal|oversize|fragments|jabber", name)}
            if mode == "txonly":
                # Both ports send and neither takes what arrives.
                wrong.pop("rx_missed_errors", None)
            if wrong:
                raise Failed(f"{mode}: port {port} counts {wrong}")
        shown.append(f"{mode} {moved[0]['rx_good_packets'] + moved[1]['rx_good_packets']}")
    return "received by " + ", ".join(shown)


def spread(testpmd):
    """Flows over four queues: each queue gets some."""
    _, said = forward(testpmd, "flowgen", first=False)
    streams = dict(re.findall(r"RX Port= ?1/Queue= ?(\d+) .*?\n\s*RX-packets: (\d+)", said))
    queues = [int(streams.get(str(queue), 0)) for queue in range(QUEUES)]
    for queue, packets in enumerate(queues):
        need(f"flowgen: packets received by queue {queue} of port 1 ({queues})", packets, 8)
    return f"flowgen over {QUEUES} queues {queues}"


def hashed(said, key, table, sent):
    """Checks that each packet of port 1 has the hash of its addresses and arrived at the queue that the table names; returns their number."""
    # The mode that testpmd begins with: addresses alone.
    possible = {toeplitz(key, frame[26:34] if frame[14] >> 4 == 4 else frame[22:54]) for frame in sent}
    found, port, queue = set(), None, None
    for line in said.splitlines():
        if heading := re.match(r"port (\d+)/queue (\d+): received", line):
            port, queue = map(int, heading.groups())
        elif (value := re.search(r"RSS hash=0x([0-9a-f]+)", line)) and port == 1:
            found.add((int(value[1], 16), queue))
    need("hashes shown by port 1", len(found), len(possible))
    for value, queue in found:
        if value not in possible or queue != table[value % len(table)]:
            raise Failed(f"a packet came with hash {value:#x} by queue {queue}; the table says queue {table[value % len(table)]}, and "
                         f"{'its' if value in possible else 'no packet that was sent has'} addresses have that hash; key {key.hex()}")
    return len(found)


def spreading(testpmd, port):
    """The key and the table of a port."""
    shown = testpmd.tell(f"show port {port} rss-hash key")
    key = re.search(r"RSS key:\s*([0-9A-Fa-f]+)", shown)
    if not key:
        raise Failed(f"testpmd shows no key of the hash:\n{shown}")
    table = {}
    # A mask for 64 entries each; testpmd takes no word that is long enough for all of them.
    half = TABLE // 64 // 2
    for masks in (["0xffffffffffffffff"] * half + ["0"] * half, ["0"] * half + ["0xffffffffffffffff"] * half):
        table.update(re.findall(r"hash index=(\d+), queue=(\d+)", testpmd.tell(f"show port {port} rss reta {TABLE} ({','.join(masks)})")))
    return bytes.fromhex(key.group(1)), [int(table[str(index)]) for index in range(TABLE)]


def restarts(testpmd):
    """Ports stopped and started many times; traffic afterwards."""
    for _ in range(RESTARTS):
        testpmd.tell("port stop all", 60)
        testpmd.tell("port start all", 60)
    moved, _ = forward(testpmd, "mac")
    for port in (0, 1):
        need(f"packets received by port {port} after {RESTARTS} restarts", moved[port]["rx_good_packets"], 32)
    return f"{RESTARTS} restarts"


def samples():
    """Packets with wrong checksums, by source port; those of TCP above 1000 bytes are to be cut into segments."""
    one, two = bytes((10, 1, 0, 1)), bytes((10, 1, 0, 2))
    six, seven = bytes.fromhex("fd00" + "0" * 27 + "1"), bytes.fromhex("fd00" + "0" * 27 + "2")
    payload = bytes(index * 7 & 0xFF for index in range(16000))
    made = {}
    for port, size in ((2001, 1), (2002, 18), (2003, 999), (2004, 1400)):
        made[port] = frames.ipv4(frames.UDP, one, two, frames.udp(port, 9, payload[:size], 0xBAD1), 7, wrong=0x1111)
    made[2005] = frames.ipv6(frames.UDP, six, seven, frames.udp(2005, 9, payload[:333], 0xBAD2))
    for flow in range(FLOWS):
        # Correct on arrival, since these frames are not cut into segments.
        transport = frames.udp(3000 + flow, 9, payload[:30], 0)
        made[3000 + flow] = frames.ipv4(frames.UDP, one, bytes((10, 2, 0, flow)), transport, flow)
    for port, size in ((2011, 1), (2012, SEGMENT), (2013, SEGMENT + 1), (2014, 3700), (2015, 14000)):
        made[port] = frames.ipv4(frames.TCP, one, two, frames.tcp(port, 9, 5000, payload[:size], 0xBAD3), 100, wrong=0x1111)
    made[2016] = frames.ipv6(frames.TCP, six, seven, frames.tcp(2016, 9, 7000, payload[:5555], 0xBAD4))
    return {port: frames.ethernet(packet) for port, packet in made.items()}


def from_file(guest, plugins, name):
    """testpmd with a third port, whose packets come from a file: they leave by port 0 and reach port 1 over the wire."""
    # A file for each queue, of which one has packets; without the option testpmd discards the packets that it finds at its start.
    files = ",".join(["net_pcap0", f"rx_pcap=/opt/{name}.pcap", *["rx_pcap=/opt/none.pcap"] * (QUEUES - 1),
                      *(f"tx_pcap=/run/out{queue}.pcap" for queue in range(QUEUES))])
    return Testpmd(guest, plugins, f"--rxq={QUEUES} --txq={QUEUES} --port-topology=chained --no-flush-rx", [files], name)


def flows(guest, plugins):
    """Flow rules, judged by where packets from a file arrive."""
    testpmd = from_file(guest, plugins, "flows")
    key, table = spreading(testpmd, 1)
    testpmd.tell("set portlist 2,0,1")
    testpmd.tell("set fwd io")
    testpmd.tell("set verbose 1")
    # The addresses of the first packet of each kind.
    sent = {"ipv4" if frame[14] >> 4 == 4 else "ipv6": frame for frame in dpdk_flows.samples().values()}
    addresses = {"ipv4": sent["ipv4"][26:34], "ipv6": sent["ipv6"][22:54]}
    spread = {kind: table[toeplitz(key, value) % len(table)] for kind, value in addresses.items()}
    shown = dpdk_flows.steered(testpmd, spread, QUEUES)
    testpmd.quit()
    return shown


def offloads(stage, guest, plugins):
    """Packets with wrong checksums from a file, forwarded with the card's checksums and segmentation; the wire's capture is the judge."""
    testpmd = from_file(guest, plugins, "offloads")
    key, table = spreading(testpmd, 1)
    testpmd.tell("port stop 0", 60)
    for command in ("csum set ip hw 0", "csum set udp hw 0", "csum set tcp hw 0", f"tso set {SEGMENT} 0"):
        testpmd.tell(command)
    testpmd.tell("port start 0", 60)
    testpmd.tell("set portlist 2,0,1")
    testpmd.tell("set fwd csum")
    testpmd.tell("set verbose 1")
    before = counted(testpmd, 1)
    testpmd.begin("start")
    guest.run("sleep 3")
    wait_until("every packet of the file to be taken", 30, lambda: counted(testpmd, 2)["rx_good_packets"] >= len(samples()))
    # The last of them are still between the ports.
    guest.run("sleep 2")
    said = testpmd.tell("stop", 60)
    after = counted(testpmd, 1)
    testpmd.quit()
    shown = guest.run("cat /run/offloads.output")
    stage.server.tell("flush")
    wire = frames.packets_between(frames.read_capture(f"{stage.folder}/wire.pcap"), samples())
    segments = 0
    for port, frame in samples().items():
        sent, found = frames.Packet(frame), wire[port]
        if not found:
            raise Failed(f"the packet from port {port} is not on the wire:\n{said[-2500:]}")
        segments += len(found)
        if sent.protocol == frames.TCP:
            frames.check_segments(found, sent, SEGMENT)
        elif len(found) != 1 or found[0].wrong or found[0].payload != sent.payload:
            raise Failed(f"the datagram from port {port} came {len(found)} times, wrong: {found[0].wrong}")
    received = after["rx_good_packets"] - before["rx_good_packets"]
    bad = sum(int(number) for number in re.findall(r"Bad-\w+csum: (\d+)", said.split("Forward statistics for port 0")[0].split("port 1")[-1]))
    if received < segments or bad:
        raise Failed(f"{segments} frames left port 0, port 1 received {received} and found {bad} checksums wrong:\n{said[-2500:]}")
    hashes = hashed(shown, key, table, samples().values())
    return (f"{len(samples())} packets, some with wrong checksums and of up to 14,000 bytes, left as {segments} frames, each checksum "
            f"and byte right; {hashes} hashes and their queues as computed")


def traffic(stage, judge, further=None):
    """testpmd of one version: forwarding, spreading, restarts, checksums and segmentation, flow rules."""
    folder, plugins = program(stage, judge)
    sent = {"offloads": samples().values(), "flows": dpdk_flows.samples().values(), "none": ()}
    captures = {f"opt/{name}.pcap": f"{stage.folder}/{name}.pcap" for name in sent}
    for name, packets in sent.items():
        frames.write_capture(f"{stage.folder}/{name}.pcap", packets)
    stage.leaves = {**LEAVES, **(further or {})}
    guest = own_guest(stage, files=captures.items(), folders={FOLDER.lstrip("/"): folder}.items(),
                      serving=("--refused-through-client", "--pcap", f"{stage.folder}/wire.pcap"))
    bound(guest, FIRST, SECOND)
    testpmd = Testpmd(guest, plugins, f"--rxq={QUEUES} --txq={QUEUES}")
    for port in (0, 1):
        link = testpmd.tell(f"show port info {port}")
        if "Link status: up" not in link or "Link speed: 100 Gbps" not in link:
            raise Failed(f"port {port} has no link:\n{link}")
    shown = [modes(testpmd), spread(testpmd), restarts(testpmd)]
    testpmd.quit()
    shown += [offloads(stage, guest, plugins), flows(guest, plugins)]
    return "; ".join(shown)


def dpdk_24(stage):
    """DPDK 24.11's testpmd over vfio-pci behind an IOMMU: txonly, io, mac, four queues by the hash, restarts, checksums, segmentation, flow rules."""
    return traffic(stage, "dpdk-24", LINK_DOWN_AT_CLOSE)


def dpdk_25(stage):
    """DPDK 25.11's testpmd: the same."""
    return traffic(stage, "dpdk-25", LINK_DOWN_AT_CLOSE)
