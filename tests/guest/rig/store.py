"""Where the rig is kept: fetched and built once, and again only when what it is made from has changed.

Under target/guest there is `packages-HASH` (what `setup` fetched and unpacked) and `image-HASH` (the guests' files made
of it, with links to the packages it needs), each hash over the recipe. Runs may share the folder: one makes, others wait.
"""
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
PEER = os.path.join(os.path.dirname(HERE), "verbs_peer")
SETUP_SECONDS = 900
# What no run has used for so long goes, when something new is made.
KEEP_SECONDS = 24 * 3600


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


def prepare(base):
    """The folder of the rig that this checkout asks for; None if this machine cannot make it."""
    packages = "packages-" + digest(*(os.path.join(HERE, name) for name in ("setup", "kernel_image.py")))
    image = "image-" + digest(packages, *(os.path.join(HERE, name) for name in ("init", "initramfs.py", "qemu.py")), *peer_sources())
    os.makedirs(base, exist_ok=True)
    with open(os.path.join(base, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, make in ((packages, make_packages), (image, lambda part: make_image(part, packages))):
            if not produce(base, name, make):
                return None
            os.utime(os.path.join(base, name))
    return os.path.join(base, image)


def produce(base, name, make):
    """Makes the folder `name` if it is not there: whole, or not at all."""
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
    """Removes what was not used for long."""
    for folder in glob.glob(os.path.join(base, "packages-*")) + glob.glob(os.path.join(base, "image-*")):
        if time.time() - os.path.getmtime(folder) > KEEP_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def make_packages(part):
    return subprocess.run(["timeout", str(SETUP_SECONDS), os.path.join(HERE, "setup"), part]).returncode == 0


def make_image(part, packages):
    """The guests' files, and links to what QEMU needs."""
    for name in ("bin", "root", "vmlinux", "kernel-version"):
        os.symlink(os.path.join("..", packages, name), os.path.join(part, name))
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
    """A guest as it is when it has booted, without cards: what each scenario begins with."""
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
