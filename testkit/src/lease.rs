//! The answers of a DHCP server, made by hand.

/// Bytes before the DHCP message: Ethernet, IPv4, UDP.
const HEADERS: usize = 42;
/// Bytes of the message before its options. Source: RFC 2131, section 2.
const FIXED: usize = 240;

/// The IPv4 header in a frame.
const IPV4: std::ops::Range<usize> = 14..34;

/// Fills in the checksum of an IPv4 header. Source: RFC 1071.
fn finish_header(header: &mut [u8]) {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let once = (sum & 0xFFFF) + (sum >> 16);
    let folded = (once & 0xFFFF) + (once >> 16);
    header[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
}

/// The kind of a DHCP message: option 53 of RFC 2132.
fn kind(message: &[u8]) -> Option<u8> {
    let mut rest = message.get(FIXED..)?;
    while let [code, length, data @ ..] = rest {
        if *code == 53 {
            return data.first().copied();
        }
        rest = data.get(usize::from(*length)..)?;
    }
    None
}

/// The answer to a frame with a message of a DHCP client: the offer of an address, or its lease for
/// an hour, with a mask of 24 bits. `None` for other frames. The answer has no checksum
/// of UDP, as IPv4 permits.
///
/// `mac` and `server` are the addresses of the server's station.
#[must_use]
pub fn lease_for(
    frame: &[u8],
    (mac, server): ([u8; 6], [u8; 4]),
    granted: [u8; 4],
) -> Option<Vec<u8>> {
    let is_question = frame.get(12..14)? == [8, 0] && frame.get(36..38)? == [0, 67];
    let message = frame.get(HEADERS..).filter(|_| is_question)?;
    let answer = match kind(message)? {
        1 => 2, // discover: offer
        _ => 5, // request: acknowledgement
    };
    let mut said = vec![0; FIXED];
    said[..4].copy_from_slice(&[2, 1, 6, 0]);
    said[4..8].copy_from_slice(message.get(4..8)?);
    said[16..20].copy_from_slice(&granted);
    said[20..24].copy_from_slice(&server);
    said[28..34].copy_from_slice(message.get(28..34)?);
    said[236..].copy_from_slice(&[99, 130, 83, 99]);
    said.extend([
        53, 1, answer, 51, 4, 0, 0, 14, 16, 1, 4, 255, 255, 255, 0, 54, 4,
    ]);
    said.extend(server);
    said.push(255);
    let mut sent = frame.get(6..12)?.to_vec();
    sent.extend(mac);
    let length = (20 + 8 + said.len()) as u16;
    sent.extend([8, 0, 0x45, 0]);
    sent.extend(length.to_be_bytes());
    sent.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    sent.extend(server);
    sent.extend([255; 4]);
    finish_header(sent.get_mut(IPV4)?);
    sent.extend([0, 67, 0, 68]);
    sent.extend((length - 20).to_be_bytes());
    sent.extend([0, 0]);
    sent.extend(said);
    Some(sent)
}
