//! Numbers in network byte order inside of bytes, and the sums over them.

/// The 16-bit number at `at`.
#[inline]
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let (number, _) = bytes.get(at..)?.split_first_chunk::<2>()?;
    Some(u16::from_be_bytes(*number))
}

/// The 32-bit number at `at`.
#[inline]
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let (number, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_be_bytes(*number))
}

/// Writes bytes over those at `at`; `None` and no change if they do not fit.
#[inline]
pub(super) fn put(bytes: &mut [u8], at: usize, new: &[u8]) -> Option<()> {
    let end = at.checked_add(new.len())?;
    bytes.get_mut(at..end)?.copy_from_slice(new);
    Some(())
}

/// Adds up 16-bit numbers in ones' complement. Source: RFC 1071.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes, which begin at an even distance; an odd one at the end counts as high byte.
    #[must_use]
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            // A sum of 32-bit numbers folds to the same as one of 16-bit numbers.
            self.0 += u64::from(u32::from_be_bytes(*word));
        }
        let mut last = [0; 4];
        for (place, byte) in last.iter_mut().zip(rest) {
            *place = *byte;
        }
        self.0 += u64::from(u32::from_be_bytes(last));
        self
    }

    /// Adds a number.
    #[must_use]
    pub(super) const fn number(mut self, number: u32) -> Self {
        self.0 += number as u64;
        self
    }

    /// The sum in 16 bits, not complemented.
    #[must_use]
    pub(super) const fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum that makes the whole add up to all ones.
    #[must_use]
    pub(super) const fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// CRC-32C, as SCTP has it. Source: RFC 9260, appendix A.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let append = |crc, part: &&[u8]| crc32c::crc32c_append(crc, part);
    parts.iter().fold(0, append)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_rfc_1071() {
        let example = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
        assert_eq!(Sum::default().bytes(&example).folded(), 0xDDF2);
        assert_eq!(Sum::default().bytes(&example).checksum(), 0x220D);
        // an odd byte at the end, and a part at a time
        let parts = Sum::default().bytes(&example[..2]).bytes(&example[2..]);
        assert_eq!(parts.folded(), 0xDDF2);
        assert_eq!(Sum::default().bytes(&[0x12]).folded(), 0x1200);
        assert_eq!(
            Sum::default().bytes(&[0xFF; 7]).number(0xFFFF).folded(),
            0xFF00
        );
    }

    #[test]
    fn crc_is_that_of_rfc_3720() {
        // Source: RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[&[0xFF; 16], &[0xFF; 16]]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[&rising]), 0x46DD_794E);
    }
}
