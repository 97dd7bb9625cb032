"""The card's clock under Linux: the tools of linuxptp, and two clocks that are kept together by time stamps of the cards."""
import re
import time

from machine import PATIENCE, Failed
from .lan import counters, stations

# The master's clock is fast by so many parts in 10⁹, and a second in 2033: the other one has to step, and then to learn the rate.
PACE = 50_000
EPOCH = 2_000_000_000
# Time stamps are taken in the model, so the load of this machine does not blur them: what is left is the servo.
OFFSET = 1000
RATE = 1000
# Samples in a row that must be that good.
SAMPLES = 20
SECONDS = 90
# Eight messages a second; a guest without hardware acceleration may fetch a time stamp late.
COMMON = ("-i eth0 -H -m -q --tx_timestamp_timeout 5000 --logAnnounceInterval -1 --logSyncInterval -3 --logMinDelayReqInterval -3 "
          "--logMinPdelayReqInterval -3 --summary_interval -4")
# Transport and the way in which the delay is measured.
WAYS = {"Ethernet, end to end": "-2 -E", "Ethernet, peer to peer": "-2 -P", "UDP over IPv4, end to end": "-4 -E"}


# A guest that gets no core for two seconds reads the clock late; ice then drops the time stamps of that while.
LATE = (r"msecs passed between update to cached PHC time",)


def reading(guest):
    """The card's clock, in seconds."""
    found = re.search(r"clock time is (\d+\.\d+)", guest.run("phc_ctl -q eth0 -- get"))
    if not found:
        raise Failed(f"{guest.name}: phc_ctl has read no time")
    return float(found[1])


def near(what, value, wanted, by):
    if abs(value - wanted) > by:
        raise Failed(f"{what}: {value}, not {wanted} within {by}")


def pace(guest, rate):
    """Seconds of the card's clock in ten of the guest's clock, at a rate that is set before."""
    said = guest.run(f"phc_ctl -q eth0 -- freq {rate} cmp wait 10 cmp", 60)
    first, last = (int(offset) for offset in re.findall(r"offset from CLOCK_REALTIME is (-?\d+)ns", said))
    # The offset is that of the guest's clock.
    return 10 - (last - first) / 1e9


def controls(guest):
    """`phc_ctl` sets, adjusts and paces the clock; `hwstamp_ctl` chooses which packets are stamped."""
    guest.run("phc_ctl -q eth0 -- set 1000000000.5")
    near("the clock that was set", reading(guest), 1_000_000_000.5, 5 * PATIENCE)
    for step in (100, -50.25):
        before = reading(guest)
        guest.run(f"phc_ctl -q eth0 -- adj {step}")
        near(f"a step of {step} s", reading(guest) - before, step, 5 * PATIENCE)
    # 5 %, far more than what emulation adds to ten seconds.
    fast, slow = pace(guest, 50_000_000), pace(guest, -50_000_000)
    guest.run("phc_ctl -q eth0 -- freq 0")
    if fast - slow < 0.5:
        raise Failed(f"ten seconds at 1.05 are {fast} s, at 0.95 {slow} s")
    for sent, received in ((1, 1), (0, 0)):
        said = guest.run(f"hwstamp_ctl -i eth0 -t {sent} -r {received}; hwstamp_ctl -i eth0")
        if not re.search(rf"current settings:\s+tx_type {sent}\s+rx_filter {received}\s*$", said):
            raise Failed(f"hwstamp_ctl -t {sent} -r {received}: {said}")
    return fast, slow


def followed(guest):
    """The offsets in ns and the corrections in parts of 10⁹ of a slave that is in state s2."""
    said = guest.run("cat /run/slave.output")
    return [(int(offset), int(rate)) for offset, rate in re.findall(r"master offset\s+(-?\d+) s2 freq\s+([+-]?\d+)", said)]


def good(sample):
    offset, rate = sample
    # The correction has the opposite sign of the deviation.
    return abs(offset) <= OFFSET and abs(rate + PACE) <= RATE


def together(stage, master, slave, way):
    """The slave reaches the master's time and rate; returns the largest offset of the last samples."""
    master.run(f"phc_ctl -q eth0 -- freq {PACE} set {EPOCH}")
    slave.run("phc_ctl -q eth0 -- freq 0 set 1")
    life = int(SECONDS * PATIENCE) + 30
    master.start("master", f"timeout {life} ptp4l {COMMON} {way} --serverOnly 1 --priority1 10")
    slave.start("slave", f"timeout {life} ptp4l {COMMON} {way} -s")
    deadline = time.monotonic() + SECONDS * PATIENCE
    while True:
        samples = followed(slave)
        last = samples[-SAMPLES:]
        if len(last) == SAMPLES and all(good(sample) for sample in last):
            break
        if time.monotonic() > deadline:
            raise Failed(f"ptp4l {way}: not within {OFFSET} ns; it said\n{slave.run('tail -40 /run/slave.output')}"
                         f"\nthe master\n{master.run('tail -20 /run/master.output')}")
        time.sleep(1)
    for guest in (master, slave):
        guest.run("kill $(pidof ptp4l); for i in $(seq 100); do pidof ptp4l || exit 0; sleep 0.1; done; exit 1", 30)
    said = slave.run("cat /run/slave.output") + master.run("cat /run/master.output")
    if "timed out while polling for tx timestamp" in said:
        raise Failed(f"ptp4l {way}: a time stamp of a sent packet did not come:\n{said[-2000:]}")
    return max(abs(offset) for offset, _ in last), len(samples)


def ptp(stage):
    """linuxptp on the cards' clocks: set, adjusted, paced; ptp4l with time stamps of both cards brings one clock to the time and the rate of the other."""
    master, slave = stations(stage, options=["--timer", "controlled"])
    stage.allowed = LATE
    for guest in (master, slave):
        if "hardware-transmit" not in guest.run("ethtool -T eth0"):
            raise Failed(f"{guest.name}: no time stamps of sent packets")
        # Its sockets.
        guest.run("mkdir -p /var/run")
    fast, slow = controls(slave)
    shown = []
    for name, way in WAYS.items():
        offset, samples = together(stage, master, slave, way)
        shown.append(f"{name}: {offset} ns after {samples} messages")
    for guest in (master, slave):
        lost = {name: value for name, value in counters(guest).items() if name.startswith("tx_hwtstamp_") and value}
        if lost:
            raise Failed(f"{guest.name}: {lost}")
    return f"ten seconds at 1.05 and 0.95 are {fast:.2f} and {slow:.2f} s; {'; '.join(shown)}, at most, of the last {SAMPLES}"
