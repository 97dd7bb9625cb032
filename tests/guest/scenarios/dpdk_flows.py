"""Flow rules that testpmd gives a port: those of the flow director, seen by packets, and those that the card refuses."""
import re
import time

from machine import PATIENCE, Failed, wait_until
from . import frames

PACKETS = 4
MARK, MARK_ALONE = 0x1234, 8
# Queues of the group, a power of two of them.
GROUP = (2, 3)
# Packets for port 1: the destination port, by the action of its rule.
PORTS = {"queue": 4001, "drop": 4002, "queue and mark": 4003, "group": 4004, "count": 4005, "tcp": 4006, "ipv6": 4007, "mark": 4008, "no rule": 4009}
# No engine of the driver can program these: the flow director takes exact values only, and no VLAN; the switch has no
# recipes left, and the access control list takes no entries.
REFUSED = (
    "eth / ipv4 dst spec 10.3.0.0 dst mask 255.255.0.0 / udp / end actions drop / end",
    "eth / ipv4 / udp src spec 256 src mask 0xff00 / end actions queue index 1 / end",
    "eth / vlan tci is 5 / ipv4 / end actions queue index 2 / end",
)
# The driver reports a refusal at once; a missing answer takes it longer.
REFUSAL_SECONDS = 10


def samples():
    """Packets by source address of their frames, which encodes destination port and number."""
    one, two = bytes((10, 1, 0, 1)), bytes((10, 1, 0, 2))
    six, seven = bytes.fromhex("fd00" + "0" * 27 + "1"), bytes.fromhex("fd00" + "0" * 27 + "2")
    made = {}
    for what, port in PORTS.items():
        for number in range(PACKETS):
            source, payload = 5000 + number, bytes(20)
            if what == "tcp":
                packet = frames.ipv4(frames.TCP, one, two, frames.tcp(source, port, 1, payload, 0))
            elif what == "ipv6":
                packet = frames.ipv6(frames.UDP, six, seven, frames.udp(source, port, payload, 0xBAD1))
            else:
                packet = frames.ipv4(frames.UDP, one, two, frames.udp(source, port, payload, 0))
            made[sender(port, number)] = frames.ethernet(packet, bytes.fromhex(sender(port, number).replace(":", "")))
    return made


def sender(port, number):
    """The source address of a frame, as testpmd writes it."""
    return ":".join(f"{byte:02X}" for byte in (0x02, 0xF1, 0, number, port >> 8, port & 0xFF))


def rules(queues):
    """The rules by action; `queues` has the queue of each rule that chooses one."""
    udp = "eth / ipv4 / udp dst is {port} / end"
    given = {
        "queue": (udp, f"queue index {queues['queue']}"),
        "drop": (udp, "drop"),
        "queue and mark": (udp, f"queue index {queues['queue and mark']} / mark id {MARK}"),
        "group": (udp, f"rss queues {GROUP[0]} {GROUP[1]} end"),
        "count": (udp, f"queue index {queues['count']} / count"),
        "tcp": ("eth / ipv4 / tcp dst is {port} / end", f"queue index {queues['tcp']}"),
        "ipv6": ("eth / ipv6 / udp dst is {port} / end", f"queue index {queues['ipv6']}"),
        "mark": (udp, f"mark id {MARK_ALONE}"),
    }
    return {what: f"{pattern.format(port=PORTS[what])} actions {actions} / end" for what, (pattern, actions) in given.items()}


def create(testpmd, rule):
    """Adds a rule to port 1; returns its number."""
    said = testpmd.tell(f"flow create 1 ingress pattern {rule}")
    made = re.search(r"Flow rule #(\d+) created", said)
    if not made:
        raise Failed(f"testpmd does not say that '{rule}' was created:\n{said}")
    return int(made[1])


def refuse(testpmd, rule):
    """A rule that the card does not execute: testpmd prints an error, soon, and keeps no rule."""
    before = listed(testpmd)
    began = time.monotonic()
    said = testpmd.ask(f"flow create 1 ingress pattern {rule}")
    took = time.monotonic() - began
    if "Caught PMD error type" not in said or "created" in said:
        raise Failed(f"testpmd does not refuse '{rule}':\n{said}")
    if took > REFUSAL_SECONDS * PATIENCE:
        raise Failed(f"the refusal of '{rule}' took {took:.0f} s:\n{said}")
    if listed(testpmd) != before:
        raise Failed(f"'{rule}' was refused and is among the rules all the same:\n{testpmd.tell('flow list 1')}")


def listed(testpmd):
    """Numbers of the rules that port 1 has."""
    return [int(number) for number in re.findall(r"^(\d+)\t", testpmd.tell("flow list 1"), re.M)]


def arrivals(text):
    """The packets that port 1 printed: queue and mark by source address, one entry for each arrival."""
    found, port, queue = {}, None, None
    for line in text.splitlines():
        # The prompt can precede it on its line.
        if heading := re.search(r"port (\d+)/queue (\d+): received", line):
            port, queue = map(int, heading.groups())
        elif (source := re.search(r"src=(02:F1:\S+) ", line)) and port == 1:
            mark = re.search(r"FDIR matched ID=0x([0-9a-f]+)", line)
            found.setdefault(source[1], []).append((queue, int(mark[1], 16) if mark else None))
    return found


def sent(testpmd, absent=()):
    """Sends every packet once; returns those that arrived. Waits for all but those to the ports `absent`."""
    start = int(testpmd.guest.run(f"wc -c < /run/{testpmd.name}.output"))
    testpmd.begin("start")
    expected = len(samples()) - PACKETS * len(absent)
    shown = f"tail -c +{start + 1} /run/{testpmd.name}.output"
    wait_until("the packets to arrive", 60, lambda: int(testpmd.guest.run(f"{shown} | grep -c 'src=02:F1:' || true")) >= 2 * len(samples()) - PACKETS * len(absent))
    testpmd.guest.run("sleep 1")
    testpmd.tell("stop", 60)
    found = arrivals(testpmd.guest.run(shown))
    more = {source: seen for source, seen in found.items() if len(seen) != 1}
    if more or len(found) != expected:
        raise Failed(f"{len(found)} packets arrived, {expected} were expected; more than once: {more}; all: {found}")
    return {source: seen[0] for source, seen in found.items()}


def check(what, found, allowed, mark=None):
    """Checks that each packet for that rule arrived at one of the allowed queues, with that mark."""
    for number in range(PACKETS):
        seen = found.get(sender(PORTS[what], number))
        if seen is None or seen[0] not in allowed or seen[1] != mark:
            raise Failed(f"rule '{what}': packet {number} came as {seen} (queue, mark); queue {sorted(allowed)} and mark {mark} were expected")


def steered(testpmd, spread, queues):
    """Rules of every kind on port 1, packets for each, and packets after the rules are gone; `spread` has the queues by hash of IPv4 and IPv6."""
    by_hash = {what: spread["ipv6" if what == "ipv6" else "ipv4"] for what in PORTS}
    other = {what: (queue + 1 + index % (queues - 1)) % queues for index, (what, queue) in enumerate(by_hash.items())}
    made = {what: create(testpmd, rule) for what, rule in rules(other).items()}
    for rule in REFUSED:
        refuse(testpmd, rule)
    if listed(testpmd) != sorted(made.values()):
        raise Failed(f"{made} were created, the list has {listed(testpmd)}")
    found = sent(testpmd, absent=("drop",))
    for what, queue in other.items():
        if what == "drop":
            continue
        allowed = {"group": set(GROUP), "mark": {by_hash[what]}, "no rule": {by_hash[what]}}.get(what, {queue})
        check(what, found, allowed, {"queue and mark": MARK, "mark": MARK_ALONE}.get(what))
    hits = re.search(r"hits: (\d+)", testpmd.tell(f"flow query 1 {made['count']} count"))
    if not hits or int(hits[1]) != PACKETS:
        raise Failed(f"the rule that counts shows {hits and hits[0]}, {PACKETS} packets matched")
    testpmd.tell(f"flow destroy 1 rule {made['drop']}")
    testpmd.tell("flow flush 1")
    # The file's port reads its file again.
    testpmd.tell("port stop 2", 60)
    testpmd.tell("port start 2", 60)
    found = sent(testpmd)
    for what in PORTS:
        check(what, found, {by_hash[what]})
    return (f"{len(made)} rules of the flow director obeyed by {len(samples())} packets (queue, drop, mark, group, count), and by "
            f"none once they were gone; {len(REFUSED)} rules refused with an error")
