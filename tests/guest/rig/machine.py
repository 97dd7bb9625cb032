"""Guests and the model's server as values: started, commanded, and ended by their own process id."""
import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from qemu import MEMORY, Qmp, Refused, arguments

# Kernels of 7.x announce each reset that a user of vfio-pci asks for as a warning.
RESETS = (r"vfio-pci [0-9a-f:.]+: (resetting|reset done)$",)
# Debian's 6.1 reports as an error that there is no package for the card's serial number, before it takes the one for all cards.
ABSENT = (r"firmware: failed to load intel/ice/ddp/ice-[0-9a-f]{16}\.pkg \(-2\)$",)
# The emulated IOMMU has no scalable mode, which 6.1 warns of.
IOMMU = (r"DMAR: VT-d Scalable Mode not enabled, no PASID allocation$",)


class Skipped(Exception):
    """A scenario cannot run on this machine; the text names what is missing. It neither passed nor failed."""


# The factor for all deadlines on a busy machine.
PATIENCE = float(os.environ.get("RINGSIDE_GUEST_PATIENCE", "1"))


class Failed(Exception):
    """A scenario did not show what it claims; the text describes what was seen instead."""


STARTED = []


def start(command, out, **settings):
    """Starts a process that ends with this one, at the latest when it is stopped from outside.

    Under `timeout --foreground`: without that option it forwards a signal twice, and the second one ends the server without its report.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **settings)
    STARTED.append(process)
    return process


def end_all():
    """Ends every started process that still runs."""
    for process in list(STARTED):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def end(process, seconds=3):
    """Ends one process that we started: by SIGTERM, then by SIGKILL."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(seconds)


def wait_until(what, seconds, condition):
    """Polls `condition` until it is true; a deadline that passes is a failure that names `what`."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Server:
    """`ringside model serve`: the model as one process, one vfio-user socket for each function, one switch."""

    def __init__(self, ringside, command, folder, functions=1, options=(), lifetime=600, log="info"):
        self.ringside = ringside
        self.sockets = [os.path.join(folder, f"function{index}.sock") for index in range(functions)]
        self.control = os.path.join(folder, "control.sock")
        self.report = os.path.join(folder, "model.json")
        self.log = os.path.join(folder, "model.log")
        arguments = [*command, "--control", self.control, "--report", self.report]
        for path in self.sockets:
            arguments += ["--socket", path]
        environment = dict(os.environ, RUST_LOG=os.environ.get("RUST_LOG", log), NO_COLOR="1")
        with open(self.log, "wb") as out:
            self.process = start(["timeout", "--foreground", str(lifetime * PATIENCE), *arguments, *options], out, env=environment)
        wait_until("the model's sockets", 10, self.listening)

    def listening(self):
        if self.process.poll() is not None:
            raise Failed(f"the model's server ended with {self.process.returncode}: {self.text()[-2000:]}")
        return all(os.path.exists(path) for path in (*self.sockets, self.control))

    def alive(self):
        return self.process.poll() is None

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def tell(self, *words):
        """`ringside model tell`: the server's answer."""
        told = subprocess.run([self.ringside, "model", "tell", self.control, *words], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=30)
        if told.returncode != 0:
            raise Failed(f"the model did not take '{' '.join(words)}': {told.stdout}{told.stderr}\n{self.text()[-2000:]}")
        return json.loads(told.stdout)

    def without_clients(self):
        """Waits until it has noticed that its clients have disconnected, and has reset their functions."""
        def quiet():
            # QEMU ends its mappings before it closes the connection; configuration space is reset after that.
            held = ("memory mappings", "configuration space bytes")
            return not any(kind.startswith(held) for function in self.tell("status")["functions"] for kind in function["left_over"])
        wait_until("the model's functions to be given back", 10, quiet)

    def stop(self):
        """Ends it by a signal, as a user does; returns its report, None if it had to be killed or printed none."""
        end(self.process, 10)
        try:
            with open(self.report) as file:
                return json.load(file)
        except (OSError, ValueError):
            return None


class Program:
    """A program of ours on this machine, with a limit for its life."""

    def __init__(self, command, folder, name, lifetime):
        self.name = f"{os.path.basename(command[0])} {' '.join(command[1:])}"
        self.log = os.path.join(folder, f"{name}.log")
        with open(self.log, "wb") as out:
            self.process = start(["timeout", "--foreground", str(lifetime * PATIENCE), *command], out)

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def alive(self):
        return self.process.poll() is None

    def says(self, words, seconds):
        """Waits until it has printed something."""
        wait_until(f"`{self.name}` says {words!r}", seconds, lambda: words in self.text() or not self.alive())

    def ended(self, seconds):
        """Waits for its end, good or bad; returns its status, `None` if it still runs, and its output."""
        try:
            status = self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            status = None
        return status, self.text()

    def finish(self, seconds):
        """Waits for its end, which must be a success; returns its output."""
        try:
            status = self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{self.name}` did not end within {seconds} s:\n{self.text()[-2000:]}") from None
        if status != 0:
            raise Failed(f"`{self.name}` ended with {status}:\n{self.text()[-2000:]}")
        return self.text()

    def stop(self):
        end(self.process)


# Guests that were booted a second time, by name; more of them in one run are a defect.
PANICS = []
MOST_PANICS = 5
PANIC_SECONDS = 2


def emulators_panic(console):
    """True if the console shows a kernel that panicked within two seconds of its start at the static key of hrtimer_start_range_ns.

    With two processors the emulator sometimes runs an instruction on one while the other one changes it. Any other panic is a
    failure, and so is this one later or without the panic's line.

    >>> said = "[    {}] RIP: 0010:{}+0x1f/0x2d0\\n[    {}] {} not syncing: Fatal exception in interrupt\\n".format
    >>> emulators_panic(said("0.913442", "hrtimer_start_range_ns", "0.913450", "Kernel panic -"))
    True
    >>> emulators_panic(said("0.913442", "irdma_cqp_ce_handler", "0.913450", "Kernel panic -"))
    False
    >>> emulators_panic(said("2.104411", "hrtimer_start_range_ns", "2.104460", "Kernel panic -"))
    False
    >>> emulators_panic(said("0.913442", "hrtimer_start_range_ns", "0.913450", "a warning,"))
    False
    >>> emulators_panic(said("0.913442", "ice_probe", "0.913450", "Kernel panic -") + "[    0.2] hrtimer_start_range_ns: fine\\n")
    False
    >>> emulators_panic("")
    False
    """
    found = re.search(r"\[\s*(\d+\.\d+)\][^\n]*RIP: 0010:hrtimer_start_range_ns", console)
    return bool(found) and float(found[1]) < PANIC_SECONDS and "Kernel panic" in console


class Guest:
    """A Linux under QEMU without hardware acceleration, with functions of the model as PCIe cards.

    It starts from the rig's snapshot of a booted guest, unless it needs something that the snapshot does not have.
    """

    def __init__(self, rig, folder, name, sockets=(), package=True, append="", memory=MEMORY, lifetime=600, host_port=None, extra=(),
                 iommu=False, image=None):
        self.name = name
        self.console = os.path.join(folder, f"{name}.console")
        snapshot = os.path.join(rig, "snapshot")
        usual = package and not append and not extra and not iommu and not image and memory == MEMORY and os.path.exists(snapshot)
        image = image or os.path.join(rig, "guest-with-package.cpio" if package else "guest.cpio")
        command = arguments(rig, image, folder, name, memory, append, extra, iommu) + (["-incoming", "defer"] if usual else [])
        self.functions = len(sockets)
        try:
            self.bring_up(folder, command, lifetime, snapshot if usual else None)
            for index, path in enumerate(sockets):
                self.monitor.plug(index, path)
            if host_port:
                self.monitor.plug_host_network(host_port)
        except (OSError, Refused) as error:
            raise Failed(f"QEMU of {name}: {error}\n{self.said()}") from error

    def bring_up(self, folder, command, lifetime, snapshot):
        """Starts QEMU and waits for the guest's shell; repeats the boot once after the panic that the emulator causes."""
        while True:
            with open(self.console + ".qemu", "wb") as out:
                self.process = start(["timeout", "--foreground", str(lifetime * PATIENCE), *command], out)
            self.number = 0
            self.pending = b""
            self.channel = self.monitor = None
            try:
                wait_until(f"QEMU of {self.name}", 20, lambda: self.connect(os.path.join(folder, f"{self.name}.commands")))
                wait_until(f"the monitor of {self.name}", 20, lambda: self.monitored(os.path.join(folder, f"{self.name}.qmp")))
                if snapshot:
                    self.monitor.restore(snapshot)
                else:
                    self.first_answer(120)
                return
            except Failed:
                if len(PANICS) >= MOST_PANICS or not emulators_panic(self.text()):
                    raise
            PANICS.append(self.name)
            self.stop()
            shutil.copy(self.console, f"{self.console}.panic{len(PANICS)}")

    def text(self):
        """All that the guest has written to its console."""
        with open(self.console, errors="replace") as file:
            return file.read()

    def monitored(self, path):
        """QEMU makes its sockets one after the other."""
        try:
            self.monitor = Qmp(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def said(self):
        """The output of QEMU itself."""
        with open(self.console + ".qemu", errors="replace") as file:
            return file.read()[-2000:]

    def first_answer(self, seconds):
        """The line that the guest's shell sends when it is ready."""
        self.answer(0, seconds)

    def connect(self, path):
        if self.process.poll() is not None:
            raise Failed(f"QEMU of {self.name} ended with {self.process.returncode}: {self.said()}")
        channel = socket.socket(socket.AF_UNIX)
        try:
            channel.connect(path)
        except OSError:
            return False
        self.channel = channel
        return True

    def booted(self, seconds=60):
        """Waits until the guest sees its cards."""
        for index in range(self.functions):
            self.run(f"for i in $(seq {seconds * 20}); do [ -e /sys/bus/pci/devices/0000:0{index + 1}:00.0 ] && exit 0; "
                     "sleep 0.05; done; lspci; exit 1", seconds + 10)

    def answer(self, number, seconds):
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            line, found, rest = self.pending.partition(b"\n")
            if found:
                self.pending = rest
                words = line.decode(errors="replace").split()
                if len(words) >= 2 and words[0] == str(number):
                    output = base64.b64decode(words[2]) if len(words) > 2 else b""
                    return int(words[1]), output.decode(errors="replace")
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed(f"{self.name}: no answer to command {number} within {seconds} s; console ends:\n{self.tail()}")
            self.channel.settimeout(min(left, 1))
            try:
                received = self.channel.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                received = b""
            if not received:
                raise Failed(f"{self.name}: QEMU closed the command channel; console ends:\n{self.tail()}")
            self.pending += received

    def ask(self, script, seconds=60):
        """Runs a script; returns its exit status and its output."""
        self.number += 1
        line = f"{self.number} {base64.b64encode(script.encode()).decode()}\n"
        self.channel.settimeout(seconds)
        self.channel.sendall(line.encode())
        return self.answer(self.number, seconds)

    def run(self, script, seconds=60):
        """Runs a script that must succeed; returns its output."""
        status, output = self.ask(script, seconds)
        if status != 0:
            raise Failed(f"{self.name}: `{script}` ended with {status}:\n{output[-3000:]}\nkernel:\n{self.tail()}")
        return output

    def start(self, name, script):
        """Starts a script in the background of the guest."""
        encoded = base64.b64encode(script.encode()).decode()
        self.run(f"rm -f /run/{name}.status; echo {encoded} | base64 -d > /run/{name}.script; "
                 f"(bash /run/{name}.script > /run/{name}.output 2>&1 < /dev/null; echo $? > /run/{name}.status) >/dev/null 2>&1 &")

    def finish(self, name, seconds=60):
        """Waits for a script that was started; returns its exit status and output."""
        script = (f"for i in $(seq {int(seconds * 10 * PATIENCE)}); do [ -e /run/{name}.status ] && break; sleep 0.1; done; "
                  f"cat /run/{name}.output; exit $(cat /run/{name}.status 2>/dev/null || echo 124)")
        return self.ask(script, seconds * 2 + 10)

    def tail(self, lines=25):
        with open(self.console, errors="replace") as file:
            return "\n".join(file.read().splitlines()[-lines:])

    def kernel_log(self):
        return self.run("dmesg")

    def complaints(self, allowed=()):
        """Lines of the kernel's log, of level warning or worse, that concern the card or its drivers, or any trace of a bug."""
        concerned = re.compile(r"\bice\b|irdma|infiniband|ib_core|rdma_|0000:0[1-9]|DMAR|NETDEV WATCHDOG|BUG|WARNING|Oops|Call Trace|hung|stall")
        lines = [line for line in self.run("dmesg -r 2>/dev/null || dmesg").splitlines() if concerned.search(line)]
        bad = []
        for line in lines:
            level = re.match(r"<(\d+)>", line)
            serious = level is None or int(level.group(1)) & 7 <= 4
            if serious and not any(re.search(pattern, line) for pattern in (*RESETS, *ABSENT, *IOMMU, *allowed)):
                bad.append(line)
        return bad

    def stop(self):
        if self.channel:
            self.channel.close()
        end(self.process)
