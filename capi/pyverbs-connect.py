"""Runs the connection manager's tests of rdma-core's Python bindings on two ports of a model.

ringside run -- python3 pyverbs-connect.py FOLDER   FOLDER holds the package `tests` of rdma-core, unpacked

Each test forks a process for each side, and the original's sides open one device. A device of ringside has one owner:
here the waiting side takes port 0, which has 10.0.0.1, and the connecting side takes port 1, which has 10.0.0.2. The
parent process opens no device. What a test does is not changed.
"""

import os
import sys
import unittest

folder = sys.argv.pop(1)
sys.path[:0] = [folder, os.path.join(folder, "tests")]
from args_parser import parser  # noqa: E402
from pyverbs.cmid import AddrInfo  # noqa: E402
from tests import base, base_rdmacm, rdmacm_utils, test_rdmacm, utils  # noqa: E402

WAITING, CONNECTING = "10.0.0.1", "10.0.0.2"


def set_up(self):
    """The values that the original finds by opening the device."""
    self.dev_name, self.ib_port, self.gid_index = "ringside0", 1, 1
    self.ip_addr = WAITING
    self.pre_environment, self.server, self.client = {}, None, None


def take_port(self, passive):
    """Gives the side of this process its own port."""
    socket = os.environ["RINGSIDE_DEVICE"]
    os.environ["RINGSIDE_DEVICE"] = socket.replace("/0.sock", "/0.sock" if passive else "/1.sock")
    self.ip_addr = WAITING if passive else CONNECTING


class Meeting(AddrInfo):
    """Both sides of the original have one address; here the connecting side names the other's."""

    def __init__(self, dst=None, **rest):
        super().__init__(dst=dst and WAITING, **rest)

    def get_addrinfo(self, src=None, dst=None, *rest, **named):
        super().get_addrinfo(src, dst and WAITING, *rest, **named)


def connected(flow):
    def one_side(self, passive=None, **options):
        take_port(self, passive)
        base_rdmacm.AddrInfo = rdmacm_utils.AddrInfo = Meeting
        return flow(self, passive=passive, **options)

    return one_side


class OneGroup(str):
    """An address of which the original makes the group's: both sides must name one."""

    def __getitem__(self, index):
        return WAITING[index]


def grouped(flow):
    def one_side(self, passive=None, **options):
        take_port(self, passive)
        self.ip_addr = OneGroup(self.ip_addr)
        return flow(self, passive=passive, **options)

    return one_side


class HasGroups:
    """The original asks the device what it is, in the parent process. A side without multicast groups fails."""

    max_mcast_grp, vendor_id, vendor_part_id = 1, 0, 0

    def __init__(self, **_):
        pass

    def query_device(self):
        return self


case = base.RDMACMBaseTest
case.setUp = set_up
case.is_eth_and_has_roce_hw_bug = lambda self: False
for name in ["rdmacm_traffic", "rdmacm_remote_traffic"]:
    setattr(case, name, connected(getattr(case, name)))
case.rdmacm_multicast_traffic = grouped(case.rdmacm_multicast_traffic)
utils.d.Context = HasGroups
parser.parse_args()
unittest.main(module=test_rdmacm, argv=sys.argv, verbosity=2)
