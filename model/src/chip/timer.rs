//! A timer of the device, from which time stamps are taken.

use ringside_bus::Instant;
use ringside_spec::lan::registers::clock::{NOMINAL_INCREMENT, TimerCommand};

/// A timer: the source that drivers read, or the PHY's copy that stamps frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timer {
    enabled: bool,
    /// nanoseconds at `since`
    base: u64,
    since: Instant,
    /// 2^-32 ns in each clock cycle
    increment: u64,
}

/// The time that a command sets, and its increment or adjustment: both lie in one register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) time: u64,
    pub(crate) increment: u64,
}

impl Prepared {
    /// Nanoseconds to add: the high half, a number with a sign. The low half has parts of one.
    const fn adjustment(self) -> i64 {
        (self.increment >> 32) as u32 as i32 as i64
    }
}

impl Timer {
    /// A timer that runs since power on, at the pace of real time.
    pub(crate) const fn running() -> Self {
        Self {
            enabled: true,
            base: 0,
            since: Instant(0),
            increment: NOMINAL_INCREMENT,
        }
    }

    pub(crate) const fn enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) const fn increment(&self) -> u64 {
        self.increment
    }

    /// Its time, nanoseconds.
    pub(crate) fn at(&self, now: Instant) -> u64 {
        if !self.enabled {
            return self.base;
        }
        let elapsed = now.0.saturating_sub(self.since.0);
        // 812.5 MHz: 13 cycles in 16 ns.
        let advance = (u128::from(elapsed) * 13 * u128::from(self.increment)) >> 36;
        self.base.wrapping_add(advance as u64)
    }

    pub(crate) fn enable(&mut self, enabled: bool, now: Instant) {
        (self.base, self.since) = (self.at(now), now);
        self.enabled = enabled;
    }

    /// Carries a command out. False: the model does not know it, or the timer is not enabled.
    pub(crate) fn execute(
        &mut self,
        command: TimerCommand,
        prepared: Prepared,
        now: Instant,
    ) -> bool {
        let known = TimerCommand::ZERO
            .with_set_time(true)
            .with_set_increment(true)
            .with_adjust(true);
        let one_register = command.adjust() && command.set_increment();
        if one_register || command.with_timer(false).0 & !known.0 != 0 || !self.enabled {
            return false;
        }
        (self.base, self.since) = (self.at(now), now);
        if command.set_time() {
            self.base = prepared.time;
        }
        if command.set_increment() {
            self.increment = prepared.increment;
        }
        if command.adjust() {
            self.base = self.base.wrapping_add_signed(prepared.adjustment());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: TimerCommand = TimerCommand::ZERO.with_set_time(true);
    const INCREMENT: TimerCommand = TimerCommand::ZERO.with_set_increment(true);

    fn prepared(time: u64, increment: u64) -> Prepared {
        Prepared { time, increment }
    }

    #[test]
    fn a_timer_runs_at_the_pace_of_its_increment() {
        let mut timer = Timer::default();
        assert!(!timer.execute(TIME, prepared(5, 0), Instant(0)), "disabled");
        timer.enable(true, Instant(0));
        assert_eq!(timer.at(Instant(1_000_000)), 0, "no increment");
        assert!(timer.execute(INCREMENT, prepared(9, NOMINAL_INCREMENT), Instant(1000)));
        assert_eq!(timer.at(Instant(1000)), 0, "the time is not set");
        assert!(timer.execute(TIME, prepared(1 << 33, 9), Instant(2000)));
        // The nominal increment is short of 1 ns by a hundredth of a billionth.
        assert_eq!(timer.at(Instant(1_000_002_000)), (1 << 33) + 999_999_999);
        let half = NOMINAL_INCREMENT / 2;
        assert!(timer.execute(INCREMENT, prepared(0, half), Instant(2000)));
        assert_eq!(timer.at(Instant(10_002_000)), (1 << 33) + 4_999_999);
    }

    #[test]
    fn a_timer_that_is_disabled_stands_still() {
        let mut timer = Timer::running();
        timer.enable(false, Instant(1_000_000));
        let stopped = timer.at(Instant(1_000_000));
        assert_eq!(stopped, 999_999);
        assert_eq!(timer.at(Instant(9_000_000)), stopped);
        timer.enable(true, Instant(9_000_000));
        assert_eq!(timer.at(Instant(9_000_000)), stopped);
    }

    #[test]
    fn a_timer_is_adjusted_forwards_and_backwards() {
        let adjust = TimerCommand::ZERO.with_adjust(true);
        let by = |nanoseconds: i32| prepared(77, u64::from(nanoseconds as u32) << 32);
        let mut timer = Timer::running();
        assert!(timer.execute(TIME, prepared(1 << 33, 0), Instant(2000)));
        assert!(timer.execute(adjust, by(1_000_000), Instant(2000)));
        assert_eq!(timer.at(Instant(2000)), (1 << 33) + 1_000_000);
        assert!(timer.execute(adjust, by(-500_000_000), Instant(2000)));
        assert_eq!(timer.at(Instant(2000)), (1 << 33) - 499_000_000);
        assert_eq!(timer.increment(), NOMINAL_INCREMENT);
        let both = adjust.with_set_increment(true);
        assert!(!timer.execute(both, by(1), Instant(2000)), "one register");
        let later = adjust.with_at_time(true);
        assert!(!timer.execute(later, by(1), Instant(2000)), "not modelled");
    }

    #[test]
    fn a_command_that_is_not_known_changes_nothing() {
        let mut timer = Timer::running();
        let before = timer;
        let read = TimerCommand::ZERO.with_read(true);
        assert!(!timer.execute(read, prepared(1, 1), Instant(50)));
        assert_eq!(timer, before);
    }
}
