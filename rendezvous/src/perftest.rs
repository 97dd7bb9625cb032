//! The messages of perftest's programs over TCP, as bytes: of those that exchange queue pairs with
//! `ringside bench --perftest`. Does no input or output.
//!
//! Source: perftest 25.01.0 (Debian 13), `perftest_communication.c`, `exchange_versions`,
//! `check_sys_data`, `check_mtu`, `ethernet_write_keys`, `xchg_bw_reports`.

use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a version (`MAX_VERSION`).
pub const VERSION_BYTES: usize = 16;

/// The version of the exchange, in the form that perftest 25.01.0 sends.
pub const VERSION: &str = "6.24";

/// Oldest version with this exchange: older ones are refused by perftest too.
const OLDEST_VERSION: f64 = 5.70;

/// Bytes of a record of keys with a GID (`KEY_MSG_SIZE_GID`).
pub const KEYS_BYTES: usize = 108;

/// Bytes of a path MTU: a digit and an end.
pub const MTU_BYTES: usize = 2;

/// The reason why a peer's record is refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// The peer's version has another exchange, or is none.
    #[error(
        "the peer's version is {found:?}, this side uses that of perftest {VERSION}; run perftest {OLDEST_VERSION:.2} or newer, and the same test, on the other side"
    )]
    Version {
        /// as the peer sent it
        found: String,
    },
    /// A record that no test of this exchange sends.
    #[error(
        "the peer's {what} is {found:?}, which makes no sense; run the same test of perftest, with the same flags, on the other side, and no -R"
    )]
    Nonsense {
        /// name of the field
        what: &'static str,
        /// its value
        found: String,
    },
}

fn nonsense(what: &'static str, found: impl std::fmt::Display) -> RecordError {
    RecordError::Nonsense {
        what,
        found: found.to_string(),
    }
}

/// The text before the first zero byte, as far as it can be shown.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    crate::printable(&String::from_utf8_lossy(bytes))
}

/// This side's version.
#[must_use]
pub fn encode_version() -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    for (place, byte) in bytes.iter_mut().zip(VERSION.bytes()) {
        *place = byte;
    }
    bytes
}

/// The peer's version, if its exchange is this one.
///
/// # Errors
/// [`RecordError::Version`].
pub fn decode_version(bytes: &[u8; VERSION_BYTES]) -> Result<String, RecordError> {
    let found = text(bytes);
    match found.parse::<f64>() {
        Ok(number) if (OLDEST_VERSION..100.0).contains(&number) => Ok(found),
        _ => Err(RecordError::Version { found }),
    }
}

/// A path MTU in bytes as the digit that verbs give it, 1 to 5.
#[must_use]
pub fn encode_mtu(bytes: u32) -> [u8; MTU_BYTES] {
    [b'1' + (bytes.clamp(256, 4096) / 256).ilog2() as u8, 0]
}

/// The peer's path MTU in bytes.
///
/// # Errors
/// [`RecordError::Nonsense`], as of all further records.
pub fn decode_mtu(bytes: &[u8; MTU_BYTES]) -> Result<u32, RecordError> {
    match bytes {
        [digit @ b'1'..=b'5', 0] => Ok(256 << (digit - b'1')),
        other => Err(nonsense("path MTU", format!("{other:02x?}"))),
    }
}

/// The length of the buffer in which small messages go round, or of a cache line: at most 1 MiB.
///
/// # Errors
/// [`RecordError::Nonsense`].
pub fn decode_length(bytes: [u8; 4]) -> Result<u32, RecordError> {
    match u32::from_be_bytes(bytes) {
        length @ 1..=0x10_0000 => Ok(length),
        other => Err(nonsense("length of a cycle buffer or cache line", other)),
    }
}

/// One end of a connection (`struct pingpong_dest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// reads that it lets its peer have under way
    pub reads: u32,
    /// number of the queue pair, 24 bits
    pub queue_pair: u32,
    /// packet sequence number of its first packet, 24 bits
    pub start_psn: u32,
    /// key of the memory that its peer may use
    pub remote_key: u32,
    /// address of the memory that its peer may use
    pub address: u64,
    /// RoCE v2 GID
    pub gid: Ipv6Addr,
}

impl Keys {
    /// Numbers in hexadecimal between colons: LID, reads, queue pair, sequence number, key,
    /// address, the sixteen bytes of the GID, number of a shared receive queue; then a zero byte.
    #[must_use]
    pub fn encode(&self) -> [u8; KEYS_BYTES] {
        let mut text = format!(
            "{:04x}:{:04x}:{:06x}:{:06x}:{:08x}:{:016x}:",
            0,
            self.reads & 0xFFFF,
            self.queue_pair & 0xFF_FFFF,
            self.start_psn & 0xFF_FFFF,
            self.remote_key,
            self.address
        );
        for byte in self.gid.octets() {
            text += &format!("{byte:02x}:");
        }
        text += "00000000:";
        let mut bytes = [0; KEYS_BYTES];
        for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        bytes
    }

    /// The record of a peer.
    ///
    /// # Errors
    /// [`RecordError::Nonsense`].
    pub fn decode(bytes: &[u8; KEYS_BYTES]) -> Result<Self, RecordError> {
        let text = text(bytes);
        let wrong = || nonsense("record of keys", &text);
        let mut numbers = text
            .split(':')
            .map(|word| u64::from_str_radix(word, 16).ok());
        let mut next = |most: u64| {
            let number = numbers.next().flatten();
            number.filter(|&number| number <= most).ok_or_else(wrong)
        };
        let most_24 = (1 << 24) - 1;
        let _lid = next(u64::from(u16::MAX))?;
        let reads = next(u64::from(u16::MAX))? as u32;
        let queue_pair = next(most_24)? as u32;
        let start_psn = next(most_24)? as u32;
        let remote_key = next(u64::from(u32::MAX))? as u32;
        let address = next(u64::MAX)?;
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = next(u64::from(u8::MAX))? as u8;
        }
        let gid = Ipv6Addr::from(gid);
        if gid.is_unspecified() {
            return Err(wrong());
        }
        Ok(Self {
            reads,
            queue_pair,
            start_psn,
            remote_key,
            address,
            gid,
        })
    }

    /// The IP address behind the GID.
    #[must_use]
    pub fn ip_address(&self) -> IpAddr {
        self.gid
            .to_ipv4_mapped()
            .map_or(IpAddr::V6(self.gid), IpAddr::V4)
    }
}

/// A GID for an IP address.
#[must_use]
pub fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The result of a bandwidth test (`struct bw_report_data`): each number is sent alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BandwidthReport {
    /// bytes of a message
    pub bytes: u64,
    /// messages
    pub iterations: u64,
    /// highest rate, in MiB/s, or in Gb/s where the sender has `--report_gbits`
    pub peak: f64,
    /// average rate, in the same unit
    pub average: f64,
    /// millions of messages a second
    pub rate: f64,
}

impl BandwidthReport {
    /// The five fields in the order of the exchange.
    #[must_use]
    pub fn encode(&self) -> [[u8; 8]; 5] {
        [
            self.bytes.to_be_bytes(),
            self.iterations.to_be_bytes(),
            self.peak.to_be_bytes(),
            self.average.to_be_bytes(),
            self.rate.to_be_bytes(),
        ]
    }

    /// The report of a peer.
    ///
    /// # Errors
    /// [`RecordError::Nonsense`].
    pub fn decode(numbers: [[u8; 8]; 5]) -> Result<Self, RecordError> {
        let [bytes, iterations, peak, average, rate] = numbers;
        let sensible = |what, number: f64| match number.is_finite() && number >= 0.0 {
            true => Ok(number),
            false => Err(nonsense(what, number)),
        };
        Ok(Self {
            bytes: u64::from_be_bytes(bytes),
            iterations: u64::from_be_bytes(iterations),
            peak: sensible("peak bandwidth", f64::from_be_bytes(peak))?,
            average: sensible("average bandwidth", f64::from_be_bytes(average))?,
            rate: sensible("message rate", f64::from_be_bytes(rate))?,
        })
    }
}

#[cfg(test)]
mod tests;
