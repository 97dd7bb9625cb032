//! A DHCP server at the far end of a datagram wire, which grants one address.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The address that it grants, of a network of 24 bits.
pub(crate) const GRANTED: [u8; 4] = [198, 51, 100, 77];
const SERVER: [u8; 4] = [198, 51, 100, 254];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xFE];

/// Bytes before the DHCP message: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
/// Bytes of a message before its options. Source: RFC 2131, section 2.
const FIXED: usize = 240;
/// Bytes of a message at least. Source: RFC 1542, section 2.1.
const LEAST: usize = 300;

/// Answers until it is dropped.
pub(crate) struct DhcpServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DhcpServer {
    /// Answers at `own` what comes from `far`, the model's end of the wire.
    pub(crate) fn start(own: &Path, far: &Path) -> Self {
        let wire = UnixDatagram::bind(own).unwrap();
        wire.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let (stop, far) = (Arc::new(AtomicBool::new(false)), far.to_owned());
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut frame = [0; 10_000];
            while !told.load(Ordering::Relaxed) {
                let Ok(length) = wire.recv(&mut frame) else {
                    continue;
                };
                if let Some(answer) = answer(&frame[..length]) {
                    // A model that has ended takes nothing.
                    let _ = wire.send_to(&answer, &far);
                }
            }
        });
        let thread = Some(thread);
        Self { stop, thread }
    }
}

impl Drop for DhcpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The answer to a client's frame: an offer, or the grant. Source: RFC 2131, table 3; RFC 2132.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    // IPv4 without options, UDP, to port 67.
    let (headers, asked) = frame.split_at_checked(HEADERS)?;
    if headers[12..15] != [8, 0, 0x45] || headers[23] != 17 || headers[36..38] != [0, 67] {
        return None;
    }
    let kind = asked
        .get(FIXED..)?
        .windows(3)
        .find(|option| option[..2] == [53, 1])?[2];
    let kind = match kind {
        1 => 2,
        3 => 5,
        _ => return None,
    };
    let mut message = vec![0; FIXED];
    message[..4].copy_from_slice(&[2, 1, 6, 0]);
    message[4..8].copy_from_slice(&asked[4..8]);
    message[16..20].copy_from_slice(&GRANTED);
    message[28..44].copy_from_slice(&asked[28..44]);
    message[236..].copy_from_slice(&[99, 130, 83, 99]);
    message.extend([53, 1, kind, 54, 4]);
    message.extend(SERVER);
    message.extend([51, 4, 0, 0, 14, 16, 1, 4, 255, 255, 255, 0, 255]);
    message.resize(LEAST.max(message.len()), 0);
    let mut frame = [&asked[28..34], &MAC, &[8, 0]].concat();
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let mut header = vec![0x45, 0];
    header.extend(length(28 + message.len()));
    header.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    header.extend(SERVER);
    header.extend(GRANTED);
    let words = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = !(((sum & 0xFFFF) + (sum >> 16)) as u16);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([0, 67, 0, 68]);
    frame.extend(length(8 + message.len()));
    // No checksum, which IPv4 permits.
    frame.extend([0, 0]);
    frame.extend(message);
    Some(frame)
}
