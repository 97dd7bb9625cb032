"""Scenarios that need the same two guests, one after the other on one pair: a boot takes longer than most of them."""
from machine import Failed
from . import datagrams, errors, verbs

RDMA = {
    "ping-pong": verbs.ping_pong,
    "events": verbs.events,
    "refused-keys": errors.refused_keys,
    "receives": errors.receives,
    "destroyed": errors.destroyed_under_load,
    "datagrams": datagrams.ud_ping_pong,
    "connections": datagrams.connections,
    "managed-datagrams": datagrams.managed_datagrams,
    "multicast": datagrams.multicast,
}


def rdma(stage):
    """ping-pong, events, refused-keys, receives, destroyed, datagrams, connections, managed-datagrams and multicast on one pair of guests."""
    stage.keeps_pair = True
    allowed, shown = [], []
    for name, scenario in RDMA.items():
        try:
            shown.append(f"{name}: {scenario(stage)}")
        except Failed as failure:
            raise Failed(f"{name}, after {len(shown)} others on these guests: {failure}") from None
        allowed.extend(stage.allowed)
    # The kernel's log is read once, at the end.
    stage.allowed = tuple(allowed)
    return "; ".join(shown)
