//! The receives that no queue pair has yet, oldest first.

use ringside_spec::verbs::Fragment;

/// Receives that wait for a member.
#[derive(Debug)]
pub(super) struct Pool {
    /// The caller's number and the count of fragments.
    pub(super) waiting: Box<[(u64, usize)]>,
    /// Fragments of the receives, `stride` places each.
    fragments: Box<[Fragment]>,
    pub(super) stride: usize,
    head: usize,
    tail: usize,
}

impl Pool {
    pub(super) fn new(capacity: usize, stride: usize) -> Self {
        let slots = capacity.next_power_of_two();
        Self {
            waiting: vec![(0, 0); slots].into_boxed_slice(),
            fragments: vec![Fragment::default(); slots * stride].into_boxed_slice(),
            stride,
            head: 0,
            tail: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.head.wrapping_sub(self.tail)
    }

    /// Appends a receive. There is always room: receives posted and not consumed never exceed the
    /// capacity.
    pub(super) fn put(&mut self, id: u64, fragments: &[Fragment]) {
        let slot = self.head & (self.waiting.len() - 1);
        self.head = self.head.wrapping_add(1);
        let first = slot * self.stride;
        if let (Some(place), Some(room)) = (
            self.waiting.get_mut(slot),
            self.fragments.get_mut(first..first + self.stride),
        ) {
            *place = (id, fragments.len().min(self.stride));
            for (to, from) in room.iter_mut().zip(fragments) {
                *to = *from;
            }
        }
    }

    pub(super) fn oldest(&self) -> Option<(u64, &[Fragment])> {
        if self.count() == 0 {
            return None;
        }
        let slot = self.tail & (self.waiting.len() - 1);
        let first = slot * self.stride;
        let &(id, count) = self.waiting.get(slot)?;
        Some((id, self.fragments.get(first..first + count)?))
    }

    /// Makes room for `capacity` receives and keeps the order of those that wait.
    pub(super) fn grow(&mut self, capacity: usize) {
        if capacity <= self.waiting.len() {
            return;
        }
        let mut larger = Self::new(capacity, self.stride);
        while let Some((id, fragments)) = self.oldest() {
            larger.put(id, fragments);
            self.drop_oldest();
        }
        *self = larger;
    }

    pub(super) fn drop_oldest(&mut self) {
        self.tail = self.tail.wrapping_add(1);
    }
}
