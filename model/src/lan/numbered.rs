//! Things that have a number: a sorted list, as there are a few of a kind in most functions.

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbered<T>(Vec<(u16, T)>);

// Not derived: that would require `T: Default`.
impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Numbered<T> {
    #[inline]
    fn place(&self, number: u16) -> Result<usize, usize> {
        match self.0.first() {
            Some((first, _)) if *first == number => Ok(0),
            _ => self.0.binary_search_by_key(&number, |(known, _)| *known),
        }
    }

    /// The one of that number.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&T> {
        let place = self.place(number).ok()?;
        self.0.get(place).map(|(_, one)| one)
    }

    /// The one of that number.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut T> {
        let place = self.place(number).ok()?;
        self.0.get_mut(place).map(|(_, one)| one)
    }

    /// True if there is one of that number.
    pub(super) fn contains(&self, number: u16) -> bool {
        self.place(number).is_ok()
    }

    /// Puts one in, in place of one of that number.
    pub(super) fn insert(&mut self, number: u16, one: T) {
        match self.place(number) {
            Ok(place) => {
                if let Some((_, old)) = self.0.get_mut(place) {
                    *old = one;
                }
            }
            Err(place) => self.0.insert(place, (number, one)),
        }
    }

    /// Takes the one of that number out.
    pub(super) fn remove(&mut self, number: u16) -> Option<T> {
        let place = self.place(number).ok()?;
        Some(self.0.remove(place).1)
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Default> Numbered<T> {
    /// The one of that number, made if there is none.
    #[inline]
    pub(super) fn entry(&mut self, number: u16) -> &mut T {
        let place = match self.place(number) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, (number, T::default()));
                place
            }
        };
        // In bounds: it was found or inserted there.
        &mut self.0[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_found_by_their_number_in_any_order() {
        let mut all = Numbered::default();
        for number in [9, 3, 7, 1] {
            all.insert(number, u32::from(number) * 10);
        }
        all.insert(7, 71);
        assert_eq!(all.0, [(1, 10), (3, 30), (7, 71), (9, 90)]);
        assert_eq!((all.get(7), all.get(8)), (Some(&71), None));
        *all.entry(8) += 5;
        assert_eq!(all.get_mut(8).copied(), Some(5));
        assert_eq!((all.remove(1), all.remove(1)), (Some(10), None));
        assert!(all.contains(3) && !all.contains(1));
        all.clear();
        assert!(!all.contains(3));
    }
}
