//! The order of failures and recoveries among events.

use ringside_pmd::rdma::Event;

/// The failures and recoveries that the program was told of.
#[derive(Debug)]
pub(super) struct Told {
    /// the life that the last recovery began
    life: u32,
    /// a failure was reported since
    has_failed: bool,
}

impl Told {
    pub(super) const fn new(life: u32) -> Self {
        let has_failed = false;
        Self { life, has_failed }
    }

    /// Puts the recovery that began this life among the events, once: after the failure before it,
    /// and before one in this life. Events from `from` on are new. If the recovery is not done, it
    /// waits for a later call, unless the device has failed again.
    pub(super) fn place(&mut self, life: u32, is_done: bool, events: &mut Vec<Event>, from: usize) {
        let places = events.iter().enumerate().skip(from);
        let mut failures = places
            .filter(|(_, event)| matches!(event, Event::DeviceFailed { .. }))
            .map(|(place, _)| place);
        let before = match self.has_failed {
            true => None,
            false => failures.next(),
        };
        let is_over = failures.next().is_some();
        if self.life >= life || !(is_done || is_over) {
            self.has_failed |= before.is_some();
            return;
        }
        self.life = life;
        let place = match before {
            Some(failure) => failure + 1,
            None if self.has_failed => from,
            None => events.len(),
        };
        events.insert(place, Event::DeviceRecovered { life });
        self.has_failed = is_over;
    }
}

#[cfg(test)]
mod tests {
    use super::Told;
    use ringside_pmd::rdma::Event;
    use ringside_pmd::recovery::FailureCause;

    const RECOVERED: Event = Event::DeviceRecovered { life: 2 };
    const FAILED: Event = Event::DeviceFailed {
        cause: FailureCause::Requested,
    };

    /// The events after a batch of life 2, of which the first `from` ones were told before.
    fn placed(told: &mut Told, batch: &[Event], from: usize) -> Vec<Event> {
        let mut events = batch.to_vec();
        told.place(2, true, &mut events, from);
        events
    }

    #[test]
    fn a_recovery_follows_the_failure_before_it_and_precedes_the_next_one() {
        let new = || Told::new(1);
        let both = [Event::PortDown, FAILED, Event::PortUp, FAILED];
        let wanted = [Event::PortDown, FAILED, RECOVERED, Event::PortUp, FAILED];
        assert_eq!(placed(&mut new(), &both, 0), wanted);
        assert_eq!(placed(&mut new(), &[FAILED], 0), [FAILED, RECOVERED]);
        let quiet = [Event::PortUp, RECOVERED];
        assert_eq!(placed(&mut new(), &[Event::PortUp], 0), quiet);

        let mut told = new();
        told.place(1, true, &mut vec![FAILED], 0);
        let wanted = [Event::PortUp, RECOVERED, FAILED];
        assert_eq!(placed(&mut told, &[Event::PortUp, FAILED], 1), wanted);
        // Once.
        assert_eq!(placed(&mut told, &[FAILED], 0), [FAILED]);
    }

    #[test]
    fn a_recovery_that_is_not_done_is_told_later_or_with_the_next_failure() {
        let mut told = Told::new(1);
        let mut events = vec![FAILED];
        told.place(2, false, &mut events, 0);
        assert_eq!(events, [FAILED]);
        assert_eq!(placed(&mut told, &[], 0), [RECOVERED]);

        let mut told = Told::new(1);
        told.place(2, false, &mut vec![FAILED], 0);
        let mut events = vec![FAILED];
        told.place(2, false, &mut events, 0);
        assert_eq!(events, [RECOVERED, FAILED]);
        assert_eq!(placed(&mut told, &[], 0), []);
    }
}
