//! Failures and recoveries that a device reports to its observer.

use super::*;
use ringside_pmd::recovery::RecoverError as Error;
use std::sync::Mutex;

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn failed(&self, life: u32, cause: FailureCause) {
        let line = format!("failed {life} {}", cause.name());
        self.0.lock().unwrap().push(line);
    }

    fn recovered(&self, life: u32, _cause: FailureCause) {
        self.0.lock().unwrap().push(format!("in service {life}"));
    }

    fn release_requested(&self) {
        self.0.lock().unwrap().push("asked for".to_owned());
    }

    fn not_recovered(&self, life: u32, _error: &Error) {
        self.0.lock().unwrap().push(format!("not recovered {life}"));
    }
}

#[test]
fn an_observer_that_comes_late_is_told_of_a_recovery_and_a_failure_before_it() {
    let mut config = Config::default();
    config.housekeeping.thread = false;
    let device = crate::open("model:0", &config).unwrap();
    device.recover().unwrap();
    device.driver().give_up().unwrap();
    let seen = Arc::new(Seen::default());
    device.observe_by(seen.clone());
    assert_eq!(
        *seen.0.lock().unwrap(),
        ["in service 2", "failed 2 requested"]
    );
    device.recover().unwrap();
    assert_eq!(seen.0.lock().unwrap()[2..], ["in service 3"]);
}
