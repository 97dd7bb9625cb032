//! Files of packets in the format pcapng. Source: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3.

use crate::mirror::Direction;
use std::io::{self, Write};

const SECTION: u32 = 0x0A0D_0D0A;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// Link type of Ethernet frames.
const ETHERNET: u16 = 1;
/// Options: the last one; name, description and resolution of time of an interface; flags of a
/// packet.
const OPTION_END: u16 = 0;
const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;
/// Resolution: nanoseconds.
const NANOSECONDS: u8 = 9;
/// Directions in a packet's flags.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Bytes of a packet's block beside its data.
const PACKET_OVERHEAD: u64 = 12 + 20 + 12;

/// An interface of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Interface {
    pub(super) name: String,
    /// meaning of its time stamps; empty if they are the time of day
    pub(super) description: &'static str,
}

impl From<&str> for Interface {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: "",
        }
    }
}

/// Writes a file of packets of several interfaces.
pub(super) struct Pcapng<W: Write> {
    out: W,
    /// bytes written
    pub(super) bytes: u64,
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

impl<W: Write> Pcapng<W> {
    /// Begins a file with these interfaces.
    pub(super) fn new(out: W, interfaces: &[Interface], snap_length: u32) -> io::Result<Self> {
        let mut file = Self { out, bytes: 0 };
        let mut section = BYTE_ORDER.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        // The length of the section is not known beforehand.
        section.extend(u64::MAX.to_le_bytes());
        file.block(SECTION, &section)?;
        for Interface { name, description } in interfaces {
            let mut body = ETHERNET.to_le_bytes().to_vec();
            body.extend([0, 0]);
            body.extend(snap_length.to_le_bytes());
            option(&mut body, OPTION_NAME, name.as_bytes());
            if !description.is_empty() {
                option(&mut body, OPTION_DESCRIPTION, description.as_bytes());
            }
            option(&mut body, OPTION_RESOLUTION, &[NANOSECONDS]);
            option(&mut body, OPTION_END, &[]);
            file.block(INTERFACE, &body)?;
        }
        Ok(file)
    }

    /// Bytes that the file has once a packet of `length` captured bytes is in it.
    pub(super) fn bytes_with(&self, length: usize) -> u64 {
        self.bytes + PACKET_OVERHEAD + length.next_multiple_of(4) as u64
    }

    /// Appends a packet.
    pub(super) fn packet(
        &mut self,
        (interface, direction): (u32, Direction),
        time_ns: u64,
        data: &[u8],
        original: u32,
    ) -> io::Result<()> {
        let mut body = Vec::with_capacity(data.len() + 64);
        let numbers = [
            interface,
            (time_ns >> 32) as u32,
            time_ns as u32,
            data.len() as u32,
            original,
        ];
        body.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        let flags = match direction {
            Direction::Received => INBOUND,
            Direction::Sent => OUTBOUND,
        };
        option(&mut body, OPTION_FLAGS, &flags.to_le_bytes());
        option(&mut body, OPTION_END, &[]);
        self.block(PACKET, &body)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = (12 + body.len()) as u32;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(body)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.bytes += u64::from(length);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predicted_size_is_the_size_written() {
        let names = ["model:0".into(), "b".into()];
        let mut written = Vec::new();
        let mut file = Pcapng::new(&mut written, &names, 1518).unwrap();
        for length in [0, 1, 3, 4, 60, 1514] {
            let expected = file.bytes_with(length);
            let data = vec![7; length];
            file.packet((1, Direction::Sent), 5, &data, 9000).unwrap();
            assert_eq!(file.bytes, expected);
        }
        let bytes = file.bytes;
        assert_eq!(bytes as usize, written.len());
        // Each block has its length at its beginning and at its end.
        let mut at = 0;
        let mut kinds = Vec::new();
        let number = |at: usize| u32::from_le_bytes(written[at..at + 4].try_into().unwrap());
        while at < written.len() {
            let length = number(at + 4) as usize;
            assert_eq!(number(at + length - 4) as usize, length);
            kinds.push(number(at));
            at += length;
        }
        assert_eq!(kinds, [SECTION, 1, 1, 6, 6, 6, 6, 6, 6]);
    }
}
