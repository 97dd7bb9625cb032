//! The exchange of perftest's programs: records of fixed length.
//!
//! Checked: decoded keys and reports equal themselves after they are encoded and decoded again.

use crate::source::Source;

use ringside_pmd::rdma::address::mac_of_link_local;
use ringside_rendezvous::perftest::{
    BandwidthReport, KEYS_BYTES, Keys, MTU_BYTES, VERSION_BYTES, decode_length, decode_mtu,
    decode_version, encode_mtu,
};

/// A record of perftest's exchange.
pub fn perftest(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    match source.byte() % 5 {
        0 => {
            let version: [u8; VERSION_BYTES] = source.array();
            match decode_version(&version) {
                Ok(text) => assert!(text.len() <= VERSION_BYTES),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        1 => {
            let digits: [u8; MTU_BYTES] = source.array();
            if let Ok(mtu) = decode_mtu(&digits) {
                assert_eq!(encode_mtu(mtu), digits);
            }
        }
        2 => {
            if let Ok(length) = decode_length(source.array()) {
                assert!((1..=1 << 20).contains(&length));
            }
        }
        3 => {
            let numbers = std::array::from_fn(|_| source.array());
            if let Ok(report) = BandwidthReport::decode(numbers) {
                assert_eq!(BandwidthReport::decode(report.encode()), Ok(report));
            }
        }
        _ => {
            let record: [u8; KEYS_BYTES] = source.array();
            match Keys::decode(&record) {
                Ok(keys) => {
                    assert!(keys.queue_pair < 1 << 24 && keys.start_psn < 1 << 24);
                    assert_eq!(Keys::decode(&keys.encode()), Ok(keys));
                    let _ = (keys.ip_address(), mac_of_link_local(keys.gid));
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}
