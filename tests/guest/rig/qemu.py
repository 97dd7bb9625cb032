"""How QEMU is started, and spoken to while it runs (QMP). A snapshot fits only the arguments that it was taken with."""
import functools
import json
import os
import socket
import time

import clock

MEMORY = "1G"
# Function n is plugged into port n and so is 0000:(n+1):00.0 in the guest; a network card of QEMU's goes into the last one.
PORTS = 3
# On a busy machine a guest gets no core for long: its kernel complains of a stall after two minutes, not 21 seconds.
APPEND = ("console=ttyS0 loglevel=7 panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check net.ifnames=0 "
          "rcupdate.rcu_cpu_stall_timeout=120 ")


@functools.cache
def options():
    """What every guest's kernel is told, this machine's clock rate included."""
    return f"{APPEND}tsc_early_khz={clock.kilohertz()} "


# An IOMMU with its own interrupt remapping; the guest's kernel uses it with intel_iommu=on.
IOMMU = ("-M", "kernel-irqchip=split", "-device", "intel-iommu,intremap=on,caching-mode=on")


def arguments(rig, image, folder, name, memory=MEMORY, append="", extra=(), iommu=False):
    """A guest without any card: ports to plug them into, one serial port for the console and one for commands."""
    ports = []
    for index in range(PORTS):
        ports += ["-device", f"pcie-root-port,id=port{index},bus=pcie.0,slot={index + 1},pref64-reserve=256M,io-reserve=0"]
    return [
        os.path.join(rig, "bin/qemu"), "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", memory,
        "-nographic", "-nodefaults", "-no-reboot",
        "-serial", f"file:{os.path.join(folder, name)}.console",
        "-chardev", f"socket,id=commands,path={os.path.join(folder, name)}.commands,server=on,wait=off", "-serial", "chardev:commands",
        "-qmp", f"unix:{os.path.join(folder, name)}.qmp,server=on,wait=off",
        "-object", f"memory-backend-memfd,id=memory,size={memory},share=on", "-numa", "node,memdev=memory",
        # Tells a guest that comes out of a snapshot to draw new random numbers.
        "-device", "vmgenid,guid=auto",
        # An IOMMU has to be there before the devices that it translates for.
        *(IOMMU if iommu else ()), *ports, *extra, "-kernel", os.path.join(rig, "vmlinux"), "-initrd", image, "-append", options() + append]


class Refused(Exception):
    """QEMU did not do what it was asked."""


class Qmp:
    """QEMU's machine protocol: one JSON object a line (QEMU documentation, qmp-spec)."""

    SECONDS = 60

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(self.SECONDS)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rw")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **values):
        self.lines.write(json.dumps({"execute": command, "arguments": values}) + "\n")
        self.lines.flush()
        while True:
            line = self.lines.readline()
            if not line:
                raise Refused(f"QEMU ended at {command}")
            answer = json.loads(line)
            if "error" in answer:
                raise Refused(f"{command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def migrated(self):
        """Waits until a snapshot is written or read."""
        deadline = time.monotonic() + self.SECONDS
        while True:
            status = self.ask("query-migrate").get("status")
            if status == "completed":
                return
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise Refused(f"the snapshot: {status}")
            time.sleep(0.02)

    def mapped(self):
        """Memory at its own place in the file, so that only what is used is written and read."""
        self.ask("migrate-set-capabilities", capabilities=[{"capability": "mapped-ram", "state": True}])

    def save(self, path):
        self.mapped()
        self.ask("migrate", uri=f"file:{path}")
        self.migrated()

    def restore(self, path):
        self.mapped()
        self.ask("migrate-incoming", uri=f"file:{path}")
        self.migrated()

    def plug(self, index, path):
        """A function of the model's server."""
        self.ask("device_add", driver="vfio-user-pci", id=f"function{index}", bus=f"port{index}",
                 socket={"type": "unix", "path": path})

    def plug_host_network(self, port):
        """A network card to this machine, which is 192.168.76.2 there; a connection to the port here reaches the guest's 18515."""
        self.ask("netdev_add", type="user", id="host", net="192.168.76.0/24",
                 hostfwd=[{"str": f"tcp:127.0.0.1:{port}-:18515"}])
        self.ask("device_add", driver="virtio-net-pci", id="card", netdev="host", bus=f"port{PORTS - 1}",
                 mac="52:54:00:00:01:01", romfile="")
