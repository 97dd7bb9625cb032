//! The counters of the port, which LAN and RDMA statistics both report.

use ringside_spec::lan::registers::statistics as port;

/// Counters of the port with the names that ice gives them.
/// Source: ice `ice_ethtool.c`, ice_gstrings_pf_stats.
pub(crate) const PORT_COUNTERS: [(port::Counter, &str); 36] = [
    (port::PORT_RECEIVE_BYTES, "rx_bytes.nic"),
    (port::PORT_TRANSMIT_BYTES, "tx_bytes.nic"),
    (port::PORT_RECEIVE_UNICAST, "rx_unicast.nic"),
    (port::PORT_TRANSMIT_UNICAST, "tx_unicast.nic"),
    (port::PORT_RECEIVE_MULTICAST, "rx_multicast.nic"),
    (port::PORT_TRANSMIT_MULTICAST, "tx_multicast.nic"),
    (port::PORT_RECEIVE_BROADCAST, "rx_broadcast.nic"),
    (port::PORT_TRANSMIT_BROADCAST, "tx_broadcast.nic"),
    (port::PORT_RECEIVE_64, "rx_size_64.nic"),
    (port::PORT_TRANSMIT_64, "tx_size_64.nic"),
    (port::PORT_RECEIVE_127, "rx_size_127.nic"),
    (port::PORT_TRANSMIT_127, "tx_size_127.nic"),
    (port::PORT_RECEIVE_255, "rx_size_255.nic"),
    (port::PORT_TRANSMIT_255, "tx_size_255.nic"),
    (port::PORT_RECEIVE_511, "rx_size_511.nic"),
    (port::PORT_TRANSMIT_511, "tx_size_511.nic"),
    (port::PORT_RECEIVE_1023, "rx_size_1023.nic"),
    (port::PORT_TRANSMIT_1023, "tx_size_1023.nic"),
    (port::PORT_RECEIVE_1522, "rx_size_1522.nic"),
    (port::PORT_TRANSMIT_1522, "tx_size_1522.nic"),
    (port::PORT_RECEIVE_9522, "rx_size_big.nic"),
    (port::PORT_TRANSMIT_9522, "tx_size_big.nic"),
    (port::PORT_CRC_ERRORS, "rx_crc_errors.nic"),
    (port::PORT_ILLEGAL_BYTES, "illegal_bytes.nic"),
    (port::PORT_LOCAL_FAULTS, "mac_local_faults.nic"),
    (port::PORT_REMOTE_FAULTS, "mac_remote_faults.nic"),
    (port::PORT_LENGTH_ERRORS, "rx_length_errors.nic"),
    (port::PORT_RECEIVE_UNDERSIZE, "rx_undersize.nic"),
    (port::PORT_RECEIVE_OVERSIZE, "rx_oversize.nic"),
    (port::PORT_RECEIVE_FRAGMENTS, "rx_fragments.nic"),
    (port::PORT_RECEIVE_JABBER, "rx_jabber.nic"),
    (port::PORT_PAUSE_ON_RECEIVED, "link_xon_rx.nic"),
    (port::PORT_PAUSE_OFF_RECEIVED, "link_xoff_rx.nic"),
    (port::PORT_PAUSE_ON_SENT, "link_xon_tx.nic"),
    (port::PORT_PAUSE_OFF_SENT, "link_xoff_tx.nic"),
    (port::PORT_TRANSMIT_LINK_DOWN, "tx_dropped_link_down.nic"),
];
