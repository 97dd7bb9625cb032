//! Memory of the program in pieces, read from the front: one transfer takes bytes of many pieces.

/// Memory of the program.
pub(super) type Piece = (*mut u8, usize);

/// Bytes of all pieces; `usize::MAX` if the sum is beyond that.
pub(super) fn total(pieces: &[Piece]) -> usize {
    let lengths = pieces.iter().map(|(_, length)| *length);
    lengths.fold(0, usize::saturating_add)
}

/// Pieces that are read once, in order.
pub(super) struct Gather<'a> {
    pieces: &'a [Piece],
    /// bytes of the first piece that were read
    skip: usize,
}

impl<'a> Gather<'a> {
    pub(super) const fn new(pieces: &'a [Piece]) -> Self {
        Self { pieces, skip: 0 }
    }

    /// The address of the next bytes, if that many lie in one piece. They count as read.
    pub(super) fn straight(&mut self, length: usize) -> Option<*const u8> {
        self.pass();
        let (start, all) = self.pieces.first().copied()?;
        if all - self.skip < length {
            return None;
        }
        let found = start.wrapping_add(self.skip).cast_const();
        self.skip += length;
        Some(found)
    }

    /// Gives the next bytes to `take`, part by part with the bytes that were read before, until
    /// there are `length` of them or the pieces end.
    pub(super) fn read(&mut self, length: usize, mut take: impl FnMut(usize, *const u8, usize)) {
        let mut done = 0;
        while done < length {
            self.pass();
            let Some((start, all)) = self.pieces.first().copied() else {
                return;
            };
            let part = (all - self.skip).min(length - done);
            take(done, start.wrapping_add(self.skip).cast_const(), part);
            self.skip += part;
            done += part;
        }
    }

    /// Leaves the pieces behind that were read, and empty ones.
    fn pass(&mut self) {
        while let [(_, length), rest @ ..] = self.pieces
            && self.skip >= *length
        {
            self.pieces = rest;
            self.skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gather, Piece, total};
    use std::ptr::null_mut;

    #[test]
    fn pieces_longer_than_all_memory_do_not_count_as_short() {
        let nowhere = null_mut();
        assert_eq!(total(&[]), 0);
        assert_eq!(total(&[(nowhere, 3), (nowhere, 0), (nowhere, 4)]), 7);
        assert_eq!(total(&[(nowhere, usize::MAX), (nowhere, 9)]), usize::MAX);
    }

    /// Lengths that are read, by address below `base`.
    fn read(from: &mut Gather<'_>, base: *mut u8, length: usize) -> Vec<(usize, usize, usize)> {
        let mut parts = Vec::new();
        from.read(length, |done, at, part| {
            parts.push((done, at.addr() - base.addr(), part));
        });
        parts
    }

    #[test]
    fn bytes_of_many_pieces_are_read_once_and_in_order() {
        let mut memory = [0_u8; 32];
        let base = memory.as_mut_ptr();
        let at = |offset: usize, length: usize| -> Piece { (base.wrapping_add(offset), length) };
        let none = (null_mut(), 0);
        let pieces = [none, at(0, 3), none, at(10, 1), at(20, 6), none];
        let mut from = Gather::new(&pieces);
        assert_eq!(read(&mut from, base, 2), [(0, 0, 2)]);
        assert_eq!(from.straight(2), None, "they lie in two pieces");
        assert_eq!(
            read(&mut from, base, 4),
            [(0, 2, 1), (1, 10, 1), (2, 20, 2)]
        );
        let straight = from.straight(3).map(<*const u8>::addr);
        assert_eq!(straight, Some(base.addr() + 22));
        // No more than there is.
        assert_eq!(read(&mut from, base, 9), [(0, 25, 1)]);
        assert_eq!(from.straight(1), None);
        assert_eq!(read(&mut from, base, 1), []);
    }
}
