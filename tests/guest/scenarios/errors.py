"""Error paths through the real driver: each ends in the completion status that verbs define, and the device stays usable."""
import re
import time

from machine import Failed
from .stage import carrier

LISTENER = "10.0.0.1"


def peers(guests, scenes, options="", seconds=60):
    """verbs_peer in both guests, answering in the first, requesting in the second; returns the output of each side."""
    server, client = guests
    server.start("verbs_peer", f"timeout {seconds} verbs_peer {options} -l {scenes}")
    status, output = client.ask(f"timeout {seconds} verbs_peer {options} -c {LISTENER} {scenes}", seconds + 10)
    served, other = server.finish("verbs_peer", 10)
    if status != 0 or served != 0:
        raise Failed(f"{scenes}: the requester ended with {status}, the responder with {served}\n"
                     f"requester:\n{output[-1500:]}\nresponder:\n{other[-1500:]}")
    return output, other


def said(output):
    """The status of each scene that the requester printed."""
    return [line.removeprefix("status: ") for line in output.splitlines() if line.startswith("status: ")]


def refused_keys(stage):
    """Wrong keys, bounds and rights: the requester gets a remote access error, the responder an event, memory is untouched."""
    guests = stage.pair()
    # irdma prints this for every asynchronous event that ends a queue pair.
    stage.allowed = (r"abnormal ae_id = 0x",)
    scenes = "wrong-key-write wrong-key-read out-of-bounds no-right-to-write no-right-to-read deregistered wrong-local-key"
    output, _ = peers(guests, scenes, seconds=120)
    return "; ".join(f"{scene}: {status}" for scene, status in zip(scenes.split(), said(output)))


# Two loops on a guest's two processors, for as long as the scenes take.
LOAD = "for i in 1 2; do timeout {seconds} sh -c 'while :; do :; done' & done; wait"
ROUNDS = 3


def refused_keys_under_load(stage):
    """Wrong keys and rights while each guest's processors are busy: a late refusal is still a refusal, and no time-out."""
    guests = stage.pair()
    stage.allowed = (r"abnormal ae_id = 0x",)
    scenes = "wrong-key-write wrong-key-read no-right-to-read"
    refused = 0
    for guest in guests:
        guest.start("load", LOAD.format(seconds=300))
    for _ in range(ROUNDS):
        output, _ = peers(guests, scenes, seconds=120)
        refused += len(said(output))
    for guest in guests:
        guest.run("killall timeout; exit 0")
    return f"{refused} requests refused as they are without load"


def receives(stage):
    """Receives that are missing, late or too small."""
    guests = stage.pair()
    stage.allowed = (r"abnormal ae_id = 0x",)
    shown = []
    for scene, options in (("receive-too-small", ""), ("late-receive", ""), ("no-receive", "-R 2")):
        output, _ = peers(guests, scene, options)
        shown.append(f"{scene}: {said(output)[0]}")
    # irdma 6.12 names "too many RNRs" and has no completion status for it: the request is flushed like those behind it.
    if "abnormal ae_id = 0x50f " not in guests[1].kernel_log():
        raise Failed("the requester's driver was not told of too many RNRs (0x50f)")
    return "; ".join(shown)


def link_lost(stage):
    """The model takes the link down in the middle of a stream: after a short time the stream continues, after a long one it ends with the retry limit."""
    guests = stage.pair()
    stage.allowed = (r"abnormal ae_id = 0x50a ",)
    shown = []
    # The timeout is 4.096 us x 2^14 = 67 ms, seven retries.
    for scene, seconds in (("stream", 0.15), ("stream-broken", 3)):
        server, client = guests
        options = "-t 14 -r 7 -s 4"
        server.start("verbs_peer", f"timeout 60 verbs_peer {options} -l {scene}")
        client.start("verbs_peer", f"timeout 60 verbs_peer {options} -c {LISTENER} {scene}")
        client.run("for i in $(seq 100); do grep -q streaming /run/verbs_peer.output && exit 0; sleep 0.1; done; exit 1", 30)
        time.sleep(1)
        stage.server.tell("fault", "1", "link-down")
        time.sleep(seconds)
        if seconds > 1:
            carrier(client, "0")
        stage.server.tell("clear", "1")
        carrier(client)
        client.run("ping -c 3 -i 0.2 10.0.0.1 || { ip -s link show eth0; ip neigh; ethtool -S eth0 | grep -v ': 0'; exit 1; }")
        status, output = client.finish("verbs_peer", 50)
        served, other = server.finish("verbs_peer", 20)
        if status != 0 or served != 0:
            raise Failed(f"{scene}: the requester ended with {status}, the responder with {served}\n{output}\n{other}")
        pause = int(re.search(r"longest pause (\d+) ms", output)[1])
        if pause < 100:
            raise Failed(f"{scene}: the link was not lost during the stream: {output}")
        shown.append(f"{seconds} s down: {said(output)[0]}")
    return "; ".join(shown)


def destroyed_under_load(stage):
    """Queue pairs destroyed with 64 writes under way, by either side and by both at once, 30 times."""
    guests = stage.pair()
    stage.allowed = (r"abnormal ae_id = 0x50a ",)
    output, _ = peers(guests, "destroyed-under-load", "-t 8 -r 3", 120)
    return said(output)[0]
