"""initramfs.py guest|package RIG KERNEL-VERSION OUT

guest:   the named programs with the libraries they need, the kernel modules, and the init of this folder.
package: only the firmware package of ice; added to `guest` it is found, left out ice runs in safe mode.

Both are written as `newc` archives directly (no cpio program, no root); the kernel unpacks one after the other.
"""
import glob
import lzma
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = """bash busybox kmod ip rdma devlink dcb ethtool lspci strace ping tcpdump iperf3 tc bridge
    ibv_devinfo ibv_devices ibv_rc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_asyncwatch
    ptp4l phc_ctl hwstamp_ctl iscsid iscsiadm dnsmasq rping ucmatose udaddy rdma_server rdma_client mckey ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw
    ib_write_lat ib_read_lat ib_send_lat ib_atomic_lat""".split()
PROVIDERS = "irdma rxe".split()
MODULES = """ice irdma ib_uverbs rdma_ucm rdma_rxe virtio_net af_packet veth bridge 8021q tun
    nvme-rdma nvmet-rdma null_blk vfio-pci vfio_iommu_type1
    nfsd nfsv4 rpcrdma ib_iser ib_isert ib_srp ib_srpt target_core_iblock sd_mod rds_rdma bonding
    macvlan vxlan geneve sch_mqprio sch_ingress cls_flower act_gact act_mirred""".split()
# Modules of one kernel that are built into others or gone from them.
OLD_MODULES = "crc32_generic crc32c_intel virtio_pci".split()
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
PACKAGE = "usr/lib/firmware/intel/ice/ddp/ice.pkg"
FOLDERS = "dev proc sys run tmp root mnt etc var".split()
MERGED = {"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/sbin": "bin"}
KMOD_NAMES = "modprobe insmod rmmod lsmod modinfo depmod".split()


class Tree:
    """Files of the archive: path in the guest -> (mode, bytes)."""

    def __init__(self, rig):
        self.rig = rig
        self.root = os.path.join(rig, "root")
        self.files = {}

    def add(self, path, source=None, mode=None):
        source = os.path.realpath(source or os.path.join(self.root, path))
        with open(source, "rb") as file:
            self.files[path] = (0o100000 | (mode or os.stat(source).st_mode & 0o777), file.read())

    def text(self, path, content):
        self.files[path] = (0o100644, content.encode())

    def link(self, path, target):
        self.files.setdefault(path, (0o120777, target.encode()))

    def libraries_of(self, program):
        ldd = subprocess.run([f"{self.rig}/bin/ldd", program], capture_output=True, text=True)
        for line in ldd.stdout.splitlines():
            words = line.split()
            if len(words) > 2 and words[1] == "=>" and words[2].startswith("/"):
                self.add(f"{LIBRARIES}/{os.path.basename(words[0])}", words[2])

    def program(self, name):
        for folder in ("usr/bin", "usr/sbin"):
            source = os.path.join(self.root, folder, name)
            if os.path.exists(source):
                self.add(f"usr/bin/{name}", source, 0o755)
                self.libraries_of(os.path.realpath(source))
                return
        sys.exit(f"initramfs: the packages hold no program {name}")

    def write(self, out):
        folders = set(FOLDERS)
        for path in self.files:
            folder = os.path.dirname(path)
            while folder:
                folders.add(folder)
                folder = os.path.dirname(folder)
        with open(out, "wb") as file:
            archive = Archive(file)
            archive.entry(".", 0o40755)
            for folder in sorted(folders):
                archive.entry(folder, 0o40755)
            archive.entry("dev/console", 0o20600, device=(5, 1))
            archive.entry("dev/null", 0o20666, device=(1, 3))
            for path, (mode, data) in sorted(self.files.items()):
                archive.entry(path, mode, data)
            archive.end()


class Archive:
    """A `newc` archive (kernel documentation, driver-api/early-userspace/buffer-format)."""

    def __init__(self, file):
        self.file = file
        self.inode = 0

    def entry(self, path, mode, data=b"", device=(0, 0)):
        self.inode += 1
        name = path.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields) + name
        self.file.write(header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4))

    def end(self):
        self.entry("TRAILER!!!", 0)
        self.file.write(b"\0" * (-self.file.tell() % 512))


def module_files(tree, version):
    """The paths of the modules and of those that they depend on; one that is built in has none."""
    paths = set()
    for module in MODULES + OLD_MODULES:
        shown = subprocess.run([f"{tree.rig}/bin/modprobe", "-d", f"{tree.rig}/modules", "-S", version, "--show-depends", module],
                               capture_output=True, text=True)
        if shown.returncode != 0 and module not in OLD_MODULES:
            sys.exit(f"initramfs: Linux {version} has no module {module}: {shown.stderr}")
        paths.update(line.split()[1] for line in shown.stdout.splitlines() if line.startswith("insmod "))
    return paths


def add_modules(tree, version):
    """The modules and what they depend on, uncompressed, with an index made for just these."""
    work = tempfile.mkdtemp(dir=tree.rig)
    folder = f"{work}/lib/modules/{version}"
    os.makedirs(f"{folder}/kernel")
    for path in sorted(module_files(tree, version)):
        with open(path, "rb") as file:
            module = file.read()
        if path.endswith(".xz"):
            module = lzma.decompress(module)
        with open(f"{folder}/kernel/{os.path.basename(path).removesuffix('.xz')}", "wb") as file:
            file.write(module)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(f"{tree.rig}/modules/lib/modules/{version}/{name}", folder)
    subprocess.run([f"{tree.rig}/bin/depmod", "-b", work, version], check=True)
    for place, _, names in os.walk(folder):
        for name in names:
            source = os.path.join(place, name)
            tree.add("usr" + source[len(work):], source, 0o644)
    shutil.rmtree(work)


def guest(tree, version):
    for name in PROGRAMS:
        tree.program(name)
    tree.add("usr/bin/verbs_peer", f"{tree.rig}/verbs_peer", 0o755)
    tree.add(LOADER, mode=0o755)
    # Loaded by name when a thread is cancelled, so no program lists it.
    tree.add(f"{LIBRARIES}/libgcc_s.so.1")
    for provider in PROVIDERS:
        for source in glob.glob(f"{tree.root}/{LIBRARIES}/libibverbs/lib{provider}-*.so"):
            tree.add(f"{LIBRARIES}/libibverbs/{os.path.basename(source)}", source)
            tree.libraries_of(os.path.realpath(source))
        tree.add(f"etc/libibverbs.d/{provider}.driver")
    tree.add("usr/share/misc/pci.ids")
    for path, target in MERGED.items():
        tree.link(path, target)
    for name in KMOD_NAMES:
        tree.link(f"usr/bin/{name}", "kmod")
    applets = subprocess.run([f"{tree.root}/usr/bin/busybox", "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        tree.link(f"usr/bin/{applet}", "busybox")
    add_modules(tree, version)
    # Names without a server for them: libfabric asks for the guest's own.
    tree.text("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 guest\n")
    tree.add("init", os.path.join(os.path.dirname(os.path.abspath(__file__)), "init"), 0o755)


def main():
    kind, rig, version, out = sys.argv[1:5]
    tree = Tree(rig)
    if kind == "guest":
        guest(tree, version)
    else:
        tree.add(PACKAGE, mode=0o644)
    tree.write(out)


if __name__ == "__main__":
    main()
