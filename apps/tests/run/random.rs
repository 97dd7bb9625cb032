//! The random programs of `capi/tests` on a model in another process.

use crate::harness::*;
use std::sync::PoisonError;

/// Runs a program on each of so many ports of one model.
fn run(name: &str, steps: &str, programs: usize) {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let Some(program) = compiled(name, folder.path()) else {
        return;
    };
    let begin = |(port, seed)| start(folder.path(), port, &[&program, seed, steps, "2"]);
    let all = [("0", "21"), ("1", "22")].into_iter().take(programs);
    for child in all.map(begin).collect::<Vec<_>>() {
        let output = child.wait_with_output().expect("the program");
        assert_eq!(succeeded(&output), "ok\n");
    }
}

#[test]
fn random_traffic_completes_as_it_was_posted() {
    run("traffic", "700", 2);
}

#[test]
fn random_batches_are_posted_whole_or_not_at_all() {
    run("batches", "500", 2);
}

#[test]
fn random_completions_and_failures_give_the_events_that_were_requested() {
    run("notices", "700", 2);
}

/// One program: two would receive each other's datagrams to groups.
#[test]
fn random_datagrams_arrive_once_and_whole() {
    run("ud", "700", 1);
}
