"""The programs of `examples/`, as users of the package `ringside-nic` build them, over the kernel's VFIO."""
from machine import Failed
from .vfio import FIRST, SECOND, THIRD, bound, built, free_huge_pages, own_guest

# Each with its arguments, and with what it prints at its end.
EXAMPLES = {
    "one_sided": (f"{FIRST} {SECOND}", "written to the peer and read back; all equal"),
    "ping_pong": (f"500 {SECOND} {THIRD}", "500 round trips"),
    "connection_manager": (f"{FIRST} {SECOND}", "messages came back"),
    "request_response": (f"{FIRST} {SECOND}", "clients answered"),
    "asynchronous": (f"{SECOND} {FIRST}", "messages"),
    "block_target": (f"{FIRST} {THIRD}", "all equal"),
    "forward": (f"{FIRST} {SECOND} {THIRD}", "packets forwarded in order"),
}


def over_vfio(stage):
    """The examples on functions that are named by address, over /dev/vfio: each checks what it moved."""
    programs = {f"usr/bin/{name}": built(stage, "example", name) for name in EXAMPLES}
    guest = own_guest(stage, functions=3, files=programs.items())
    bound(guest, FIRST, SECOND, THIRD)
    before = free_huge_pages(guest)
    for name, (words, wanted) in EXAMPLES.items():
        status, output = guest.ask(f"timeout 100 {name} {words} 2>&1", 110)
        if status != 0 or wanted not in output:
            raise Failed(f"`{name} {words}` ended with {status}:\n{output[-2000:]}")
    if free_huge_pages(guest) != before or before == 0:
        raise Failed(f"{free_huge_pages(guest)} huge pages are free afterwards, {before} were before")
    return f"{', '.join(EXAMPLES)} on three functions"
