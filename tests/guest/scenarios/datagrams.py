"""Unreliable datagrams, the GSI queue pair, connections by rdma_cm over it, and multicast."""
import re

from machine import Failed
from .netdev import expect
from .stage import between


def ud_ping_pong(stage):
    """ibv_ud_pingpong: datagrams through address handles, polling and with events, small and as large as a packet."""
    guests = stage.pair()
    for options in ("-n 200", "-n 200 -e", "-n 100 -s 1", "-n 100 -s 1024"):
        between(guests, f"ibv_ud_pingpong -d irdma0 -g 1 {options}")
    return "datagrams of 1 B to the path MTU, polling and events"


def managed(guests, server, client, seconds=60):
    """Runs a program of rdma_cm on both sides, over the addresses of the model's wire; returns both outputs."""
    first, second = guests
    first.start("peer", f"timeout {seconds} {server}")
    first.run("sleep 1")
    status, output = second.ask(f"timeout {seconds} {client}", seconds + 10)
    served, other = first.finish("peer", 20)
    if status != 0 or served != 0:
        raise Failed(f"{client}: client ended with {status}, server with {served}\n{output[-1500:]}\n{other[-1500:]}")
    return output, other


def connections(stage):
    """rping and ucmatose: connections by rdma_cm, whose messages are datagrams of the GSI queue pairs."""
    guests = stage.pair()
    output, _ = managed(guests, "rping -s -a 10.0.0.1 -C 20 -V", "rping -c -a 10.0.0.1 -C 20 -V -v")
    if len(re.findall("ping data", output)) != 20:
        raise Failed(f"rping: not 20 rounds:\n{output}")
    managed(guests, "rping -s -a 10.0.0.1 -C 5 -V -S 4096", "rping -c -a 10.0.0.1 -C 5 -V -S 4096")
    for options in ("", "-c 8 -C 20 -S 1000"):
        output, other = managed(guests, f"ucmatose {options}", f"ucmatose {options} -s 10.0.0.1")
        expect(output, "return status 0")
        expect(other, "return status 0")
    return "rping 20 rounds validated; ucmatose with one and eight connections"


def managed_datagrams(stage):
    """udaddy: datagrams between queue pairs that were found through rdma_cm."""
    guests = stage.pair()
    for options in ("", "-c 4 -C 20 -S 500"):
        output, other = managed(guests, f"udaddy {options}", f"udaddy {options} -s 10.0.0.1")
        expect(output, "return status 0")
        expect(other, "return status 0")
    return "one and four queue pairs, messages both ways"


def multicast(stage):
    """mckey: a group joined by rdma_cm; the members in both guests receive each message of the sender."""
    guests = stage.pair()
    group = "239.1.2.3"
    for guest in guests:
        guest.run(f"ip route add {group}/32 dev eth0")
    first, second = guests
    listener = f"timeout 60 mckey -m {group} -b 10.0.0.1 -C 10 -S 200"
    first.start("peer", listener)
    second.start("own", listener.replace("10.0.0.1", "10.0.0.2"))
    first.run("sleep 3")
    output = second.run(f"timeout 60 mckey -m {group} -b 10.0.0.2 -s -C 10 -S 200", 70)
    expect(output, "return status 0")
    for guest, name in ((first, "peer"), (second, "own")):
        status, heard = guest.finish(name, 20)
        if status != 0 or "return status 0" not in heard:
            raise Failed(f"{guest.name}: the member ended with {status}:\n{heard[-1500:]}")
    return "10 messages heard by a member in each guest"
