"""The common parts of scenarios: a server, guests with the drivers loaded, and the checks at the end."""
import os
import re

from machine import Failed, Guest, Program, Server


class Stage:
    """Starts the programs of a scenario and always ends them; a scenario passes only without warnings, breaches and leftovers."""

    def __init__(self, rig, ringside, command, folder):
        self.rig, self.ringside, self.command, self.folder = rig, ringside, command, folder
        self.server = None
        # Servers beside the first one, each a model and a wire of its own.
        self.others = []
        self.guests = []
        # The next scenario takes the pair of guests of the one before.
        self.keeps_pair = False
        self.programs = []
        # Warnings that the scenario provokes.
        self.allowed = ()
        # Kinds of breaches that it provokes.
        self.provoked = ()
        # Leftovers of its driver in the device, by kind: ends of lines, each expected once, or patterns, any number of times.
        self.leaves = leaves_of_ice(rig)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.check()
        finally:
            for program in self.programs:
                program.stop()
            for guest in self.guests:
                guest.stop()
            reports = [self.stopped(server, kind is None) for server in (self.server, *self.others) if server]
        for report in reports if kind is None else ():
            check_report(report, "at its end", provoked=self.provoked, leaves=self.leaves)

    @staticmethod
    def stopped(server, in_order):
        """A server's report; where all went well, once its clients have gone."""
        if in_order:
            server.without_clients()
        return server.stop()

    def serve(self, functions=1, options=(), **settings):
        self.server = Server(self.ringside, self.command, self.folder, functions, options, **settings)

    def serve_another(self, functions=1, options=()):
        """A second model, whose functions are on a wire of their own; returns its server."""
        folder = os.path.join(self.folder, f"another{len(self.others)}")
        os.makedirs(folder)
        self.others.append(Server(self.ringside, self.command, folder, functions, options))
        return self.others[-1]

    def boot_at(self, socket, name):
        """One guest with the function of that socket; returns it booted."""
        self.guests.append(Guest(self.rig, self.folder, name, sockets=[socket]))
        self.guests[-1].booted()
        return self.guests[-1]

    def boot(self, count=1, images=(), **settings):
        """Guests, each with one function; returns them booted. `images` has the files of the first ones, where they differ."""
        for index in range(count):
            image = images[index] if index < len(images) else None
            self.guests.append(Guest(
                self.rig, self.folder, f"guest{index}", sockets=[self.server.sockets[index]], image=image, **settings))
        for guest in self.guests:
            guest.booted()
        return self.guests

    def host_program(self, *words, seconds=120):
        """Starts our own command on this machine, in the background."""
        return self.start_program([self.ringside, *words], seconds)

    def start_program(self, command, seconds=120):
        """Starts a program of ours on this machine, in the background."""
        self.programs.append(Program(command, self.folder, f"program{len(self.programs)}", seconds))
        return self.programs[-1]

    def pair(self, mtu=1500, images=(), **settings):
        """Two guests with link up and RDMA devices, on one wire of the model, with all that Linux sends by itself."""
        if self.keeps_pair and self.guests:
            return self.guests
        self.serve(2, **settings)
        guests = self.boot(2, images)
        for index, guest in enumerate(guests):
            load(guest)
            address(guest, index, mtu)
            guest.run("modprobe irdma; modprobe rdma_ucm", 30)
            rdma_active(guest)
        return guests

    def check(self):
        """Checks that there are no warnings, and no leftovers in the model once the drivers are unloaded."""
        for server in (self.server, *self.others):
            if not server.alive():
                raise Failed(f"the model's server ended by itself:\n{server.text()[-2000:]}")
        for guest in self.guests:
            guest.run("for module in irdma ice; do [ ! -e /sys/module/$module ] || rmmod $module || exit 1; done", 60)
        for guest in self.guests:
            bad = guest.complaints(self.allowed)
            if bad:
                raise Failed(f"{guest.name}: the kernel complains:\n" + "\n".join(bad))
        check_report(self.server.tell("status"), "after the drivers were unloaded", PLATFORM, self.provoked, self.leaves)


# Leftovers of QEMU and the guest's PCI layer in a card without a driver.
PLATFORM = ("configuration space bytes", "registers", "MSI-X table", "memory mappings")
# Linux's ice leaves these when it is unloaded, once each; a reset of the function keeps them, its next probe removes them (docs/conformance.md).
ICE_LEAVES = {
    "switch rules": ("88, 8, 0, 0] }", "88, cc, 0, 0] }"),
    "resources (type, number)": ("(22, 0)", "(23, 0)"),
    "scheduler nodes (id, parent, kind)": ("(102, ffffffff, 0)",),
}

# That of 6.1 also leaves the identifiers and the matching entries of the flow director's profiles.
ICE_6_1_LEAVES = re.compile(r"^\((58|59), ")


def leaves_of_ice(rig):
    """The leftovers of `ice` as the kernel of this rig has it."""
    with open(os.path.join(rig, "kernel-version")) as file:
        if not file.read().startswith("6.1."):
            return ICE_LEAVES
    kind = "resources (type, number)"
    return ICE_LEAVES | {kind: (*ICE_LEAVES[kind], ICE_6_1_LEAVES)}


def check_report(report, when, tolerated=(), provoked=(), leaves=None):
    """Checks that the model counted only provoked breaches, and holds no object that a driver should have removed."""
    if report is None:
        raise Failed(f"the model's server made no report {when}")
    for function in report["functions"]:
        breaches = [breach for breach in function["breaches"] if breach["kind"] not in provoked]
        if breaches:
            raise Failed(f"the model counted breaches of the interface, {when}:\n" +
                         "\n".join(f"  {breach['count']} x {breach['kind']}: {breach['first']}" for breach in breaches[:10]))
        left = {kind: unexpected((leaves or {}).get(kind, ()), items) for kind, items in function["left_over"].items() if not kind.startswith(tuple(tolerated))}
        if any(left.values()):
            raise Failed(f"function {function['function']} holds what a driver left, {when}: " +
                         "; ".join(f"{kind}: {' '.join(items[:4])} ({len(items)})" for kind, items in left.items() if items))


def unexpected(known, items):
    """The items without the known leftovers of a driver."""
    once = [end for end in known if isinstance(end, str)]
    kept = []
    for item in items:
        match = next((end for end in once if item.endswith(end)), None)
        if match:
            once.remove(match)
        elif not any(pattern.search(item) for pattern in known if not isinstance(pattern, str)):
            kept.append(item)
    return kept


def load(guest):
    """Loads ice and waits for its network device."""
    guest.run("modprobe ice; for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && exit 0; sleep 0.1; done; exit 1", 30)


def address(guest, index, mtu=1500):
    """10.0.0.1 or 10.0.0.2, and link up."""
    guest.run(f"ip link set eth0 mtu {mtu}; ip addr add 10.0.0.{index + 1}/24 dev eth0; ip link set eth0 up")
    carrier(guest)
    # A little after the link is up, IPv6 adds an address, and with it a multicast group to the card.
    guest.run("for i in $(seq 100); do ip -6 addr show dev eth0 | grep -q fe80 && exit 0; sleep 0.1; done; exit 1", 30)


def carrier(guest, wanted="1"):
    guest.run(f"for i in $(seq 100); do [ \"$(cat /sys/class/net/eth0/carrier)\" = {wanted} ] && exit 0; sleep 0.1; done; exit 1", 30)


def rdma_active(guest):
    guest.run("for i in $(seq 100); do rdma link | grep -q 'irdma0/1 state ACTIVE' && exit 0; sleep 0.1; done; rdma link; exit 1", 30)


def between(guests, command, seconds=60):
    """Runs `command` as server in the first guest and as client in the second; returns the client's and the server's output."""
    server, client = guests
    port = command.split()[0]
    server.start("peer", f"timeout {seconds} {command}")
    client.run("sleep 0.5")
    # The server opens its port when it is ready; clients do not repeat a failed connection.
    listening = "ss -Hltn 2>/dev/null | grep -q 18515 || netstat -ltn 2>/dev/null | grep -q 18515"
    server.run(f"for i in $(seq 100); do ({listening}) && exit 0; sleep 0.1; done; cat /run/peer.output; exit 1", 30)
    status, output = client.ask(f"timeout {seconds} {command} 10.0.0.1", seconds + 10)
    served, other = server.finish("peer", 20)
    if status != 0 or served != 0:
        raise Failed(f"{port}: client ended with {status}, server with {served}\n{output[-1500:]}\n{other[-1500:]}")
    return output, other
