"""Keeps the rig: fetches and builds it once, and again only when its sources have changed.

Under target/guest there are `packages-HASH` (what `setup` fetched and unpacked), `kernel-NAME-HASH`, `dpdk-NAME-HASH`, and
`image-HASH` (the guests' files made of packages and a kernel, with links to both), each hash over the recipe, which for a
moving judge includes the day. Runs may share the folder: one makes, the others wait.
"""
import contextlib
import datetime
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

from machine import Failed, Guest
from qemu import Refused

HERE = os.path.dirname(os.path.abspath(__file__))
JUDGES = os.path.join(os.path.dirname(HERE), "judges")
# The judges that `setup` fetches.
PROGRAMS = ("qemu", "rdma-core", "perftest", "fio", "iperf3", "dnsmasq", "linuxptp", "ddp-package")
PEER = os.path.join(os.path.dirname(HERE), "verbs_peer")
SETUP_SECONDS = 900
# The age after which unused folders are removed, when a new one is made.
KEEP_SECONDS = 24 * 3600


def rows(named):
    """The rows of the table of judges for these names; for a moving judge with the day."""
    with open(JUDGES) as file:
        table = [line.split() for line in file if line.split() and not line.startswith("#")]
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return [" ".join(row) + (day if row[1] == "moving" else "") for row in table if row[0] in named]


def kernels():
    """The kernels that the table of judges names."""
    with open(JUDGES) as file:
        return [line.split()[0] for line in file if line.startswith("kernel-")]


def judged_by(folders):
    """A line for each judge: its version in these folders, or on this machine."""
    lines = []
    for folder in folders:
        with open(os.path.join(folder, "judges")) as file:
            for name, kind, suite, package, version, note in (line.rstrip("\n").split("\t") for line in file):
                lines.append(f"judge {name:13} {kind:7} {suite:17} {package} {version}{f' ({note})' if note else ''}")
    with open(JUDGES) as file:
        table = [line.split() for line in file if line.split() and not line.startswith("#")]
    for name, kind, suite, package, version in table:
        if kind == "host":
            asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
            found = asked.stdout if asked.returncode == 0 else "not installed"
            lines.append(f"judge {name:13} {kind:7} {suite:17} {package} {found}{'' if found == version else f' (last look: {version})'}")
    return lines


def digest(*parts):
    """A short name for files (by content) and strings."""
    made = hashlib.sha256()
    for part in parts:
        content = part.encode()
        if os.path.exists(part):
            with open(part, "rb") as file:
                content = os.path.basename(part).encode() + b"\0" + file.read()
        made.update(len(content).to_bytes(8, "little") + content)
    return made.hexdigest()[:12]


def peer_sources():
    return sorted(glob.glob(os.path.join(PEER, "*.[ch]")))


def prepare(base, kernel="kernel-6.12"):
    """The folder of the rig for this checkout, with that kernel; None if this machine cannot make it."""
    with locked(base):
        packages = fetched(base, "packages", "setup", PROGRAMS)
        linux = packages and fetched(base, kernel, "kernel", (kernel,), kernel, os.path.join(base, packages), sources=("kernel_image.py",))
        if not linux:
            return None
        own = (os.path.join(HERE, name) for name in ("init", "initramfs.py", "qemu.py"))
        image = "image-" + digest(packages, linux, *own, *peer_sources())
        return kept(base, image, lambda part: make_image(part, packages, linux))


def dpdk(base, judge):
    """The folder of a version of DPDK; None if this machine cannot make it."""
    with locked(base):
        name = fetched(base, judge, "dpdk", (judge,), judge)
        return name and os.path.join(base, name)


@contextlib.contextmanager
def locked(base):
    os.makedirs(base, exist_ok=True)
    with open(os.path.join(base, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetched(base, name, script, named, *arguments, sources=()):
    """The name of the folder that a script of this folder fetches for the judges `named`; None if it cannot."""
    recipe = (os.path.join(HERE, one) for one in (script, "packages.sh", *sources))
    folder = f"{name}-{digest(*recipe, *rows(named))}"
    command = ["timeout", str(SETUP_SECONDS), os.path.join(HERE, script)]
    made = kept(base, folder, lambda part: subprocess.run([*command, part, *arguments]).returncode == 0)
    return folder if made else None


def kept(base, name, make):
    """The path of the folder `name`, made if it is not there; None if it cannot be made."""
    path = os.path.join(base, name)
    if not produce(base, name, make):
        return None
    os.utime(path)
    return path


def produce(base, name, make):
    """Makes the folder `name` if it is missing: completely, or not at all."""
    folder = os.path.join(base, name)
    if os.path.isdir(folder):
        return True
    forget(base)
    part = folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    if not make(part):
        return False
    os.rename(part, folder)
    return True


def forget(base):
    """Removes folders that were not used for long."""
    for folder in glob.glob(os.path.join(base, "*-*")):
        if time.time() - os.path.getmtime(folder) > KEEP_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def make_image(part, packages, linux):
    """The guests' files, and links to what QEMU needs."""
    for folder, names in ((packages, ("bin", "root")), (linux, ("modules", "vmlinux", "kernel-version"))):
        for name in names:
            os.symlink(os.path.join("..", folder, name), os.path.join(part, name))
    with open(os.path.join(part, "judges"), "w") as out:
        for folder in (packages, linux):
            with open(os.path.join(os.path.dirname(part), folder, "judges")) as file:
                out.write(file.read())
    with open(os.path.join(part, "kernel-version")) as file:
        version = file.read().strip()
    if not compile_peer(part):
        return False
    for kind in ("guest", "package"):
        made = subprocess.run([sys.executable, os.path.join(HERE, "initramfs.py"), kind, part, version,
                               os.path.join(part, f"{kind}.cpio")])
        if made.returncode != 0:
            return False
    with open(os.path.join(part, "guest-with-package.cpio"), "wb") as whole:
        for kind in ("guest", "package"):
            with open(os.path.join(part, f"{kind}.cpio"), "rb") as file:
                shutil.copyfileobj(file, whole)
    return snapshot(part)


def snapshot(part):
    """Saves a booted guest without cards: the state in which each scenario begins."""
    folder = tempfile.mkdtemp(prefix="ringside-boot-")
    guest = None
    try:
        guest = Guest(part, folder, "guest")
        guest.monitor.save(os.path.join(part, "snapshot"))
        return True
    except (Failed, Refused) as error:
        print(f"rig: the snapshot of a booted guest: {error}; logs: {folder}", file=sys.stderr)
        return False
    finally:
        if guest:
            guest.stop()
        if os.path.exists(os.path.join(part, "snapshot")):
            shutil.rmtree(folder, ignore_errors=True)


def compile_peer(part):
    """Our verbs program for guests: this machine's compiler, the headers and libraries of the packages."""
    libraries = os.path.join(part, "root/usr/lib/x86_64-linux-gnu")
    sources = [path for path in peer_sources() if path.endswith(".c")]
    command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(part, "root/usr/include"),
               *sources, os.path.join(libraries, "libibverbs.so.1"), "-Wl,--allow-shlib-undefined",
               "-o", os.path.join(part, "verbs_peer")]
    try:
        return subprocess.run(command).returncode == 0
    except FileNotFoundError:
        print("rig: this machine has no C compiler (cc)", file=sys.stderr)
        return False
