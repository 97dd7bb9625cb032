"""The scenarios, by name, in the order in which they run."""
from .stage import Stage
from . import recording
from . import chaos, clocks, consumers, datagrams, dpdk, dpdk_ours, errors, examples, forwarding, lan, mismatch, netdev, nvme, ours, outside, packets, peers, perftest, programs, recovery, removal, settings, steering, storage, together, verbs, vfio

ALL = {
    "link": netdev.link,
    "package": netdev.package,
    "safe-mode": netdev.safe_mode,
    "recording": recording.recording,
    "recording-package": recording.recording_package,
    "ping": lan.ping,
    "tcp": lan.tcp,
    "vlan": lan.vlan,
    "classes": lan.classes,
    "rss": lan.rss,
    "rules": steering.rules,
    "mtu": lan.mtu,
    "counters": lan.counted,
    "ptp": clocks.ptp,
    "ethtool": settings.ethtool,
    "stacked": settings.stacked,
    "tunnelled": settings.tunnelled,
    "tap": lan.tap,
    "resets": lan.resets,
    "safe-traffic": lan.safe_traffic,
    "device": verbs.device,
    "rdma": together.rdma,
    "ping-pong": verbs.ping_pong,
    "sizes": verbs.sizes,
    "events": verbs.events,
    "large-mtu": verbs.large_mtu,
    "refused-keys": errors.refused_keys,
    "refused-keys-load": errors.refused_keys_under_load,
    "receives": errors.receives,
    "link-lost": errors.link_lost,
    "destroyed": errors.destroyed_under_load,
    "datagrams": datagrams.ud_ping_pong,
    "connections": datagrams.connections,
    "managed-datagrams": datagrams.managed_datagrams,
    "multicast": datagrams.multicast,
    "storage": storage.storage,
    "nvme-target": nvme.target,
    "nfs": consumers.nfs,
    "iser": consumers.iser,
    "srp": consumers.srp,
    "soft-roce": outside.soft_roce,
    "ours": ours.driver_and_irdma,
    "ours-mtu": ours.large_mtu,
    "ours-datagrams": ours.datagrams,
    "ours-soft-roce": peers.soft_roce,
    "forward-echo": packets.echo,
    "forward": packets.forward,
    "our-tap": packets.host_interface,
    "our-dhcp": packets.lease,
    "perftest": perftest.one_size,
    "perftest-over-port": perftest.over_the_port,
    "perftest-sizes": perftest.all_sizes,
    "perftest-both-ways": mismatch.both_ways,
    "perftest-atomics": mismatch.atomics,
    "perftest-others": mismatch.others,
    "reload": recovery.reload,
    "reset": recovery.reset,
    "engine-errors": recovery.engine_errors,
    "peer-killed": recovery.peer_killed,
    "dpdk-24": dpdk.dpdk_24,
    "dpdk-25": dpdk.dpdk_25,
    "ours-dpdk": dpdk_ours.traffic,
    "vfio-tools": vfio.tools,
    "vfio": vfio.drive,
    "vfio-bodies": vfio.bodies,
    "vfio-contained": vfio.contained,
    "vfio-irdma": peers.vfio_irdma,
    "vfio-memory": peers.vfio_memory,
    "vfio-facade": peers.vfio_facade,
    "vfio-soft-roce": peers.vfio_soft_roce,
    "vfio-examples": examples.over_vfio,
    "vfio-forward": forwarding.forward,
    "vfio-programs": programs.few,
    "vfio-programs-all": programs.table,
    "vfio-sleep": vfio.sleep,
    "vfio-killed": vfio.killed,
    "vfio-vanished": vfio.vanished,
    "vfio-removed": removal.removed,
    "vfio-chaos": chaos.chaos,
}

# The longest scenarios begin first when all run, so that no core waits for them at the end.
LONGEST = ("dpdk-24", "dpdk-25", "vfio-programs-all", "perftest-sizes", "vfio-bodies", "rdma", "vfio-programs", "vfio-vanished", "vfio-killed",
           "reload", "vfio-irdma", "sizes", "recording", "perftest", "vfio-forward")

# Scenarios of the nightly run only: their judge moves, or they take long and others come close to what they show.
NIGHTLY = (
    # on the model: the kernel's drivers, and their settings
    "classes", "counters", "ptp", "ethtool", "stacked", "tunnelled", "vlan", "mtu", "rules", "tap", "reload", "resets", "reset", "safe-traffic",
    # RDMA between two kernels
    "perftest-sizes", "perftest-both-ways", "perftest-atomics", "perftest-others", "refused-keys-load", "sizes", "large-mtu", "engine-errors", "peer-killed",
    "nfs", "iser", "srp", "soft-roce", *together.RDMA,
    # our driver on the model beside a kernel's, and DPDK
    "ours", "ours-mtu", "ours-datagrams", "our-dhcp", "perftest-over-port", "ours-dpdk", "dpdk-24", "dpdk-25",
    # our driver over VFIO
    "vfio-bodies", "vfio-examples", "vfio-forward", "vfio-killed", "vfio-memory", "vfio-programs-all", "vfio-removed", "vfio-soft-roce", "vfio-tools",
    "vfio-vanished",
)
# The judge of a scenario that has one besides the rig's.
DPDK = {"dpdk-24": "dpdk-24", "dpdk-25": "dpdk-25", "ours-dpdk": "dpdk-24"}
# Scenarios that compare with recordings of one kernel, the first of the table of judges.
RECORDED = ("recording", "recording-package")

__all__ = ["ALL", "DPDK", "LONGEST", "Stage"]
