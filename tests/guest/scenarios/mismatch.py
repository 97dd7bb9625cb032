"""perftest's programs against ringside bench --perftest where the two sides run different tests: ringside ends soon and names the flags."""
import time

from machine import PATIENCE, Failed
from . import perftest
from .ours import HOST, free_port, guest_with_way_out
from .peers import soft_roce_guest

# More than the 30 s for which a side waits for a silent peer.
SOON = 40
FLAGS = "-s 64 -n 5"
# The program, its flags, the test that ringside expects.
BOTH_WAYS = (
    ("ib_write_bw", "-b", "write bw"),
    ("ib_read_bw", "-b", "read bw"),
    ("ib_send_bw", "-b", "send bw"),
)
ATOMICS = (
    ("ib_atomic_bw", "", "write bw"),
    ("ib_atomic_bw", "", "read bw"),
    ("ib_atomic_lat", "", "write lat"),
    ("ib_atomic_lat", "", "send lat"),
)
# Other transports, a measurement by time, another operation, another size, another number of messages.
OTHERS = (
    ("ib_write_bw", "-c UC", "write bw"),
    ("ib_send_bw", "-c UC", "send bw"),
    ("ib_send_bw", "-c UD", "send bw"),
    ("ib_read_bw", "", "write bw"),
    ("ib_send_bw", "", "write bw"),
    ("ib_write_bw", "", "send bw"),
    ("ib_write_lat", "", "send lat"),
)
# Flags of a client. A server only receives, or is the target of writes and reads: ringside as its client measures what it was asked for.
OTHER_CLIENTS = (
    ("ib_send_bw", "-s 128", "send bw"),
    ("ib_write_bw", "-D 1", "write bw"),
    ("ib_write_bw", "-s 128", "write bw"),
    ("ib_read_bw", "-n 7", "read bw"),
)


def peer_flags(program, flags):
    """The flags of both sides, without those that the peer has otherwise. An atomic operation has 8 bytes; the program refuses another size."""
    size = "" if "atomic" in program or "-s " in flags else "-s 64"
    return f"{size} {'' if '-n ' in flags or '-D ' in flags else '-n 5'} {flags}"


def told(what, program, began, wanted):
    """Waits for ringside's end, which must be a failure, come soon and name each of `wanted`; returns its last line."""
    status, said = program.ended(SOON + 5)
    took = time.monotonic() - began
    if status in (0, None):
        raise Failed(f"{what}: ringside {'still runs' if status is None else 'ended well'} after {took:.0f} s:\n{said[-1500:]}")
    if took > SOON * PATIENCE:
        raise Failed(f"{what}: ringside took {took:.0f} s to say\n{said[-1500:]}")
    for text in wanted:
        if text not in said:
            raise Failed(f"{what}: ringside does not say '{text}':\n{said[-1500:]}")
    return said.strip().splitlines()[-1]


def as_client(stage, guest, port, case, device):
    """The guest's program is the server, ringside the client."""
    program, flags, words = case
    guest.start("perftest", f"timeout 60 {program} -d {device} -x 0 -F {peer_flags(program, flags)}")
    guest.run("for i in $(seq 100); do netstat -ltn | grep -q :18515 && exit 0; sleep 0.1; done; cat /run/perftest.output; exit 1", 30)
    began = time.monotonic()
    asking = stage.host_program("bench", "--connect", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}",
                                "--perftest", *words.split(), *FLAGS.split())
    why = told(f"{program} {flags} serves, ringside asks for {words}", asking, began, (f"ib_{words.replace(' ', '_')}", FLAGS))
    guest.finish("perftest", 70)
    return why


def as_server(stage, guest, case, device):
    """ringside is the server, the guest's program the client."""
    program, flags, words = case
    port = free_port()
    serving = stage.host_program("bench", "--listen", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}",
                                 "--perftest", *words.split(), *FLAGS.split())
    serving.says("Listening on", 30)
    began = time.monotonic()
    guest.start("perftest", f"timeout 60 {program} -d {device} -x 0 -F {peer_flags(program, flags)} -p {port} {HOST}")
    why = told(f"{program} {flags} asks, ringside serves {words}", serving, began, (f"ib_{words.replace(' ', '_')}", FLAGS))
    guest.finish("perftest", 70)
    return why


def both_ends(stage, guest, port, cases, device):
    """Each case with ringside on either end; returns ringside's last lines."""
    said = []
    for case in cases:
        for why in (as_client(stage, guest, port, case, device), as_server(stage, guest, case, device)):
            said.append(f"{case[0]} {case[1]}: {why}")
            print(f"        {said[-1]}", flush=True)
    return said


def both_ways(stage):
    """perftest's -b, which ringside does not have, as server and as client: an error that names the flags, soon."""
    # The peer's requests have no receive, or arrive after ringside has ended: its queue pair fails.
    stage.allowed = (r"abnormal ae_id = 0x",)
    guest, port = guest_with_way_out(stage)
    said = both_ends(stage, guest, port, BOTH_WAYS, "irdma0")
    return f"{len(said)} tests both ways, each ended by ringside within {SOON} s with the program and the flags that it awaits"


def atomics(stage):
    """perftest's atomic programs on rdma_rxe, which ringside does not have, as server and as client: an error that names the flags, soon."""
    guest, port = soft_roce_guest(stage)
    said = both_ends(stage, guest, port, ATOMICS, "rxe0")
    return f"{len(said)} tests with atomics, each ended by ringside within {SOON} s with the program and the flags that it awaits"


def by_connection_manager(stage, guest, port, device):
    """perftest's -R listens at the connection manager and not on TCP: ringside as client finds no peer, and says why."""
    guest.start("perftest", f"timeout 30 ib_write_bw -d {device} -x 0 -F -R {FLAGS}")
    began = time.monotonic()
    asking = stage.host_program("bench", "--connect", f"127.0.0.1:{port}", "--device", f"vfio-user:{stage.server.sockets[-1]}",
                                "--perftest", "write", "bw", *FLAGS.split())
    why = told("ib_write_bw -R serves", asking, began, ("-R",))
    guest.finish("perftest", 40)
    return why


def others(stage):
    """perftest on rdma_rxe with another transport, operation, size, number, -D or -R, as server and as client: an error that names the flags."""
    guest, port = soft_roce_guest(stage)
    said = both_ends(stage, guest, port, OTHERS, "rxe0")
    said += [as_server(stage, guest, case, "rxe0") for case in OTHER_CLIENTS]
    said.append(by_connection_manager(stage, guest, port, "rxe0"))
    print("\n".join(f"        {line}" for line in said[-1 - len(OTHER_CLIENTS):]), flush=True)
    return f"{len(said)} tests that differ, each ended by ringside within {SOON} s with the program and the flags that it awaits"
