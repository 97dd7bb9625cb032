"""Unmodified RDMA programs: by `ringside run` on a function behind VFIO in one guest, on Linux's irdma in another, on one wire."""
import os
import re
import subprocess

import overlay
from machine import PATIENCE, Failed, Guest
from qemu import PORTS
from .lan import iperf
from .stage import address, load, rdma_active
from .vfio import FIRST, bound, free_huge_pages, own_guest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PROGRAMS = ("ibv_uc_pingpong", "rstream", "riostream", "cmtime", "fio", "fi_pingpong")
# Addresses on the wire of the model, and on a network card of QEMU, over which programs exchange their numbers by TCP.
WIRE = ("10.0.0.1", "10.0.0.2")
BESIDE = ("192.168.77.1", "192.168.77.2")
GROUP = "239.1.2.3"
CONFIG = """
[rdma]
path_mtu = {path_mtu}
[network]
addresses = ["10.0.0.1/24"]
host_interface = "ring0"
"""
# The kernel's own address on that interface.
OF_KERNEL = "10.0.0.77"
# The path MTU of a link of that MTU.
MTUS = {1500: 1024, 9000: 4096}
# Numbers of messages are small: a round trip takes milliseconds under emulation.
ROUNDS, MESSAGES = 50, 20
VERBS = ("write", "read", "send")
# The whole table takes more than the usual ten minutes.
LIFETIME = 3600
# A client that comes too early is started again.
ATTEMPTS = 6
# The server has a port of the kernel, or two seconds have passed.
READY = ("for i in $(seq 20); do netstat -ltn | grep -q :18515 && exit 0; [ -e /run/serving.status ] && exit 0; sleep 0.1; done")


class Row:
    """A pair of programs. `server` and `client` hold {device}, replaced by an option that names the device of the side;
    {own} and {server}, addresses on the wire; {beside}, the server's other one. Both must succeed, and each print what is
    in `says` for it. With `irdma_only`, only irdma's side is the server. With `refused`, the client must fail and print that;
    the server, which waits for it, is ended."""

    def __init__(self, name, server, client, says=("", ""), seconds=90, irdma_only=False, refused=""):
        self.name, self.server, self.client, self.says, self.seconds = name.strip(), server, client, says, seconds
        self.irdma_only, self.refused = irdma_only, refused


def same(command, peer="beside", says=("", ""), name=None):
    """The client is the server with an address behind it."""
    return Row(name or command.replace("{device} ", ""), command, f"{command} {{{peer}}}", says)


def ping_pongs():
    said = "iters in"
    for options in ("-c", "-c -e"):
        yield same(f"ibv_rc_pingpong {{device}} -g 1 -n {ROUNDS} {options}", says=(said, said))
    yield same(f"ibv_rc_pingpong {{device}} -g 1 -n 10 -s 100000 -c", says=(said, said))
    for options in ("-c", "-e"):
        yield same(f"ibv_ud_pingpong {{device}} -g 1 -n {ROUNDS} -s 1000 {options}", says=(said, said))


def perftests():
    device = "{device} -x 1 -F"
    for verb in ("write", "read", "send"):
        for kind in ("bw", "lat"):
            yield same(f"ib_{verb}_{kind} {device} -n {MESSAGES}")
            yield same(f"ib_{verb}_{kind} {device} -a -n 5")
            yield same(f"ib_{verb}_{kind} -F -R -n {MESSAGES}", "server")
        yield same(f"ib_{verb}_bw {device} -b -n {MESSAGES}")
        for queue_pairs in (4, 16):
            yield same(f"ib_{verb}_bw {device} -q {queue_pairs} -s 4096 -n {MESSAGES}")
        yield same(f"ib_{verb}_bw {device.replace('1', '0')} -n {MESSAGES}")
    yield same(f"ib_write_lat {device} -I 64 -s 64 -n {MESSAGES}")
    for options in ("-e", "-c UD -s 1000"):
        yield same(f"ib_send_bw {device} {options} -n {MESSAGES}")
    # Linux irdma has no shared receive queues for this card.
    for options in ("", "-q 4 -s 4096"):
        yield Row(f"ib_send_bw --use-srq {options}", f"ib_send_bw {device} {{shared}} {options} -n {MESSAGES}",
                  f"ib_send_bw {device} {{shared}} {options} -n {MESSAGES} {{beside}}")
    yield same(f"ib_send_lat {device} -e -n {MESSAGES}")
    yield same(f"ib_read_bw {device} -e -n {MESSAGES}")
    yield same(f"ib_send_lat {device} -c UD -n {MESSAGES}")
    for kind in ("bw", "lat"):
        command = f"ib_atomic_{kind} {device} -n 5"
        yield Row(f"ib_atomic_{kind} (refused)", command, f"{command} {{beside}}", refused="Couldn't post send")


def managed():
    for options in ("", "-S 60000", "-q"):
        rping = f"-a {{server}} -C 10 -V {options}"
        yield Row(f"rping -V {options}", f"rping -s {rping}", f"rping -c {rping} -v", ("", "ping data"))
    for name, options in (("ucmatose", ""), ("ucmatose", "-c 4 -C 10 -S 1000"), ("udaddy", ""), ("udaddy", "-c 4 -C 10 -S 500")):
        yield Row(f"{name} {options}", f"{name} -b {{own}} {options}", f"{name} -b {{own}} -s {{server}} {options}",
                  ("return status 0", "return status 0"))
    yield Row("mckey", f"mckey -m {GROUP} -b {{own}} -C 10 -S 200", f"mckey -m {GROUP} -b {{own}} -s -C 10 -S 200",
              ("return status 0", "return status 0"))
    yield Row("rdma_server, rdma_client", "rdma_server", "rdma_client -s {server}", ("end 0", "end 0"))


def sockets():
    for name in ("rstream", "riostream"):
        for options in ("", "-T v", "-T b", "-T n", "-T a"):
            command = f"{name} -S 4096 -C 10 -I 5 {options}"
            # A client of rdma-core that polls ends with 16, POLLHUP, if its server ends before it has read the last bytes.
            yield Row(command, command, f"{command} -s {{server}}", irdma_only=options == "-T a")
        for size in (64, 65536):
            command = f"{name} -T v -S {size} -C 5 -I 3"
            yield Row(command, command, f"{command} -s {{server}}")
    yield Row("rstream -T r", "rstream -S 4096 -C 10 -I 5 -T r", "rstream -S 4096 -C 10 -I 5 -T r -s {server}")


def jobs():
    for verb in VERBS:
        yield Row(f"fio rdma {verb}", f"fio /etc/fio/{verb}-server-{{server}}", f"fio /etc/fio/{verb}-client-{{server}}")


def fabrics():
    for name, options in (("verbs", "-p verbs -e msg"), ("verbs;ofi_rxm", "-p 'verbs;ofi_rxm' -e rdm")):
        command = f"fi_pingpong {options} -I {MESSAGES} -c"
        yield Row(f"fi_pingpong {name}", command, f"{command} {{beside}}", ("bytes", "bytes"))


def all_rows():
    return [*ping_pongs(), *perftests(), *managed(), *sockets(), *jobs(), *fabrics()]


# A row of most kinds: verbs with events, a shared receive queue, a refused request, the connection manager with each kind of
# service, sockets, storage.
FEW = ("ibv_rc_pingpong -g 1 -n 50 -c -e", "ib_send_bw --use-srq -q 4 -s 4096", "ib_atomic_bw (refused)", "rping -V", "udaddy",
       "riostream -S 4096 -C 10 -I 5 -T v", "fio rdma write")


def job_files(stage):
    """The jobs of fio, by path in the guest."""
    files = {}
    for server in WIRE:
        for verb in VERBS:
            common = f"[global]\nioengine=rdma\nfilename={server}/18765\nbs=4k\nsize=128k\n"
            for side, job in (("server", f"[receiver]\nrw=read\nverb={verb}\n"), ("client", f"iodepth=8\n[sender]\nrw=write\nverb={verb}\n")):
                path = os.path.join(stage.folder, f"{verb}-{side}-{server}")
                with open(path, "w") as file:
                    file.write(common + job)
                files[f"etc/fio/{os.path.basename(path)}"] = path
    return files


class Side:
    """A guest, and the words before a program and behind it that choose its device."""

    def __init__(self, guest, index, before, device):
        self.guest, self.index, self.before, self.device = guest, index, before, device

    def command(self, text, server, seconds):
        shown = text.format(device=self.device, own=WIRE[self.index], server=WIRE[server.index], beside=BESIDE[server.index],
                            shared="" if self.device else "--use-srq")
        return f"timeout {seconds * PATIENCE:.0f} {self.before} {shown}"


def libraries(stage):
    """The C libraries, linked beside the command of this run, or those that RINGSIDE_LIBRARIES names."""
    folder = os.environ.get("RINGSIDE_LIBRARIES")
    if not folder:
        built = subprocess.run([os.path.join(ROOT, "capi/build"), "--release"], capture_output=True, text=True, timeout=1800, check=False)
        if built.returncode != 0:
            raise Failed(f"capi/build: {built.stderr[-1500:]}")
        folder = built.stdout.split()[-1]
    stripped = os.path.join(stage.folder, "c-libraries")
    os.makedirs(stripped)
    for name in ("libibverbs.so.1", "librdmacm.so.1", "ringside-files.so"):
        subprocess.run(["strip", "-o", os.path.join(stripped, name), os.path.join(folder, name)], check=True)
    return stripped


def sides(stage, mtu):
    """Two guests: programs by `ringside run` on a function behind an IOMMU, and on Linux's irdma; each side may be the server."""
    files, wires = job_files(stage), [os.path.join(stage.folder, f"beside{index}") for index in range(2)]
    config = os.path.join(stage.folder, "ringside.toml")
    with open(config, "w") as file:
        file.write(CONFIG.format(path_mtu=MTUS[mtu]))
    ours = own_guest(stage, files={"etc/ringside.toml": config, **files}.items(), folders={"usr/bin/c-libraries": libraries(stage)},
                     programs=PROGRAMS, used=1, lifetime=LIFETIME)
    image = overlay.image(stage.rig, "guest-with-package.cpio", os.path.join(stage.folder, "irdma.cpio"), files, PROGRAMS)
    theirs = Guest(stage.rig, stage.folder, "guest1", sockets=[stage.server.sockets[1]], image=image, lifetime=LIFETIME)
    stage.guests.append(theirs)
    theirs.booted()
    os.remove(image)
    load(theirs)
    address(theirs, 1, mtu)
    theirs.run(f"ip route add {GROUP}/32 dev eth0; modprobe irdma; modprobe rdma_ucm", 30)
    rdma_active(theirs)
    for index, (guest, device) in enumerate(((ours, "eth0"), (theirs, "eth1"))):
        beside(guest, device, index, wires)
    bound(ours, FIRST)
    # of the kernel's interface beside RDMA
    ours.run("modprobe tun", 30)
    run = f"ringside --config /etc/ringside.toml run --device {FIRST} --"
    return Side(ours, 0, run, ""), Side(theirs, 1, "", "-d irdma0")


def beside(guest, device, index, wires):
    """A network card of QEMU's, whose other end is in the other guest."""
    local, remote = ({"type": "unix", "path": wires[end]} for end in (index, 1 - index))
    guest.monitor.ask("netdev_add", type="dgram", id="beside", local=local, remote=remote)
    guest.monitor.ask("device_add", driver="virtio-net-pci", id="card", netdev="beside", bus=f"port{PORTS - 1}",
                      mac=f"52:54:00:00:02:0{index}", romfile="")
    guest.run(f"modprobe virtio_net; for i in $(seq 100); do [ -e /sys/class/net/{device} ] && break; sleep 0.1; done; "
              f"ip addr add {BESIDE[index]}/24 dev {device}; ip link set {device} up", 30)


def play(row, server, client):
    """Runs a row; returns what client and server said."""
    server.guest.start("serving", f"echo $$ > /run/serving.pid; exec {server.command(row.server, server, row.seconds)}")
    server.guest.run(READY, 60)
    asking = f"{client.command(row.client, server, row.seconds)} 2>&1"
    # The server may not listen yet: a client that does not find it ends, and is started again.
    for _ in range(ATTEMPTS):
        status, asked = client.guest.ask(asking, row.seconds + 10)
        if status == 0 or (row.refused and row.refused in asked) or server.guest.ask("sleep 1; [ -e /run/serving.status ]")[0] == 0:
            break
    if status != 0:
        server.guest.ask("[ -e /run/serving.status ] || kill $(cat /run/serving.pid)")
    served, told = server.guest.finish("serving", 30)
    if row.refused:
        if status == 0 or row.refused not in asked:
            raise Failed(f"{row.name}: the client ended with {status}, and should say '{row.refused}':\n{asked[-2500:]}")
        return asked, told
    if status != 0 or served != 0 or row.says[0] not in told or row.says[1] not in asked:
        raise Failed(f"{row.name}: client ended with {status}, server with {served}, which should say {row.says[::-1]}\n"
                     f"client:\n{asked[-2500:]}\nserver:\n{told[-2500:]}")
    return asked, told


def shown(stage, rows, mtu):
    """Runs rows with either side as server; returns what was shown, or fails with every row that failed."""
    ours, theirs = sides(stage, mtu)
    before = free_huge_pages(ours.guest)
    told = ours.guest.run(f"{ours.before} ibv_devinfo -v", 60)
    for wanted in ("PORT_ACTIVE (4)", f"active_mtu:\t\t{MTUS[mtu]} ", f"::ffff:{WIRE[0]}, RoCE v2"):
        if wanted not in told:
            raise Failed(f"ibv_devinfo does not show '{wanted}':\n{told}")
    status, told = ours.guest.ask(f"{ours.before} ibv_uc_pingpong -g 1", 60)
    if status == 0 or "Couldn't create QP" not in told:
        raise Failed(f"ibv_uc_pingpong is not refused as by Linux irdma: it ended with {status}:\n{told}")
    told = ours.guest.run(f"{ours.before} ibv_devices", 60)
    if "ringside0" not in told:
        raise Failed(f"ibv_devices does not show ringside0:\n{told}")
    # It waits for events without end. busybox says that it ended a program by the program's status.
    status, told = ours.guest.ask(f"timeout {10 * PATIENCE:.0f} {ours.before} ibv_asyncwatch", 60)
    if status != 143 or "ringside0" not in told:
        raise Failed(f"ibv_asyncwatch ended with {status}:\n{told}")
    beside_programs(ours, theirs, mtu)
    failed = []
    for row in rows:
        for server, client in ((theirs, ours), (ours, theirs))[:1 if row.irdma_only else 2]:
            try:
                play(row, server, client)
            except Failed as failure:
                failed.append(f"{'ours' if server is ours else 'irdma'} served {failure}")
    after = free_huge_pages(ours.guest)
    if after != before or before == 0:
        failed.append(f"{after} huge pages are free afterwards, {before} were before")
    # A program ends without a teardown, as on Linux; the next claim resets the function, and this one ends in order.
    ours.guest.run(f"ringside bring-up --device {FIRST}", 60)
    if failed:
        raise Failed(f"{len(failed)} of {len(rows)} rows, each both ways, failed:\n" + "\n\n".join(failed))
    return f"ibv_devices, ibv_devinfo, ibv_asyncwatch with an interface of the kernel beside it, ibv_uc_pingpong refused; {len(rows)} pairs of programs, each with either side as server, path MTU {MTUS[mtu]}"


def beside_programs(ours, theirs, mtu):
    """While a program has the device, the kernel of its guest talks over the interface beside RDMA, and the port answers for its own address."""
    ours.guest.start("serving", f"echo $$ > /run/serving.pid; exec timeout 60 {ours.before} ibv_asyncwatch")
    ours.guest.run("for i in $(seq 300); do ip link show dev ring0 2>/dev/null | grep -q LOWER_UP && "
                   f"ip addr add {OF_KERNEL}/24 dev ring0 && exit 0; sleep 0.1; done; echo 'ring0 has no carrier'; exit 1", 60)
    large = mtu - 28
    theirs.guest.run(f"for peer in {OF_KERNEL} {WIRE[0]}; do ping -q -c 3 -i 0.1 -W 5 $peer && ping -q -M do -s {large} -c 2 -W 5 $peer || exit 1; done", 60)
    ours.guest.run(f"for peer in {WIRE[1]} {WIRE[0]}; do ping -q -c 3 -i 0.1 -W 5 -I ring0 $peer || exit 1; done", 60)
    iperf(theirs.guest, ours.guest, WIRE[1], f"-B {OF_KERNEL}", 1)
    ours.guest.ask("kill $(cat /run/serving.pid)")
    ours.guest.finish("serving", 30)
    if ours.guest.ask("ip link show dev ring0")[0] == 0:
        raise Failed("ring0 is there after its program has ended")


def few(stage):
    """Unmodified programs by `ringside run` over /dev/vfio in one guest, on irdma in another: one of each kind, both ways round."""
    named = {row.name: row for row in all_rows()}
    return shown(stage, [named[name] for name in FEW], 1500)


def table(stage):
    """Unmodified programs by `ringside run` over /dev/vfio in one guest, on irdma in another: the whole table, both ways round."""
    pattern, rows = os.environ.get("RINGSIDE_ROWS", ""), all_rows()
    wanted = [row for row in rows if re.search(pattern, row.name)]
    if not wanted:
        raise Failed(f"RINGSIDE_ROWS='{pattern}' matches none of these rows:\n" + "\n".join(row.name for row in rows))
    return shown(stage, wanted, 9000)
