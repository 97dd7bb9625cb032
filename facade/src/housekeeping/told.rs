//! The order of failures and recoveries among events.

use ringside_pmd::rdma::Event;

/// What the program was told of so far.
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
    /// and before one in this life. Events from `from` on are new.
    pub(super) fn place(&mut self, life: u32, events: &mut Vec<Event>, from: usize) {
        let is_failure = |event: &Event| matches!(event, Event::DeviceFailed { .. });
        let new = events.get(from..).unwrap_or(&[]);
        let first = new.iter().position(is_failure);
        if self.life >= life {
            self.has_failed |= first.is_some();
            return;
        }
        self.life = life;
        let at = match first {
            _ if self.has_failed => from,
            Some(first) => from + first + 1,
            None => events.len(),
        };
        events.insert(at, Event::DeviceRecovered { life });
        let later = events.get(at..).unwrap_or(&[]);
        self.has_failed = later.iter().any(is_failure);
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
        told.place(2, &mut events, from);
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
        told.place(1, &mut vec![FAILED], 0);
        let wanted = [Event::PortUp, RECOVERED, FAILED];
        assert_eq!(placed(&mut told, &[Event::PortUp, FAILED], 1), wanted);
        // Once.
        assert_eq!(placed(&mut told, &[FAILED], 0), [FAILED]);
    }
}
