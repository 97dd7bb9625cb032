use super::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;

#[test]
fn every_number_is_given_out_once_and_then_the_quota_is_named() {
    let mut random = StdRng::seed_from_u64(1);
    let mut numbers = Numbers::new("queue pairs", "rdma.queue_pairs", 3..20, 10);
    let taken: BTreeSet<u32> = (0..10)
        .map(|_| numbers.take(&mut random).unwrap())
        .collect();
    assert_eq!(taken.len(), 10);
    assert!(taken.iter().all(|number| (3..20).contains(number)));
    let refused = numbers.take(&mut random).unwrap_err();
    assert!(
        refused.to_string().contains("rdma.queue_pairs"),
        "{refused}"
    );
}

#[test]
fn a_number_that_was_given_back_is_given_out_again() {
    let mut random = StdRng::seed_from_u64(2);
    let mut numbers = Numbers::new("completion queues", "key", 5..6, 1);
    let number = numbers.take(&mut random).unwrap();
    numbers.give(number);
    assert_eq!(numbers.used(), 0);
    assert_eq!(numbers.take(&mut random).unwrap(), number);
}

#[test]
fn a_number_that_was_given_back_is_not_used_again_at_once() {
    let mut random = StdRng::seed_from_u64(4);
    let mut numbers = Numbers::new("things", "things.count", 0..400, 400);
    let gone = numbers.take(&mut random).unwrap();
    numbers.give(gone);
    for _ in 0..99 {
        let other = numbers.take(&mut random).unwrap();
        assert_ne!(other, gone);
        numbers.give(other);
    }
    // But it is not lost: all can be in use at once.
    let mut all: Vec<u32> = (0..400)
        .map(|_| numbers.take(&mut random).unwrap())
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..400).collect::<Vec<_>>());
    assert!(numbers.take(&mut random).is_err());
}

#[test]
fn numbers_of_an_earlier_life_rest_in_the_next_one() {
    let mut random = StdRng::seed_from_u64(5);
    let of_400 = || Numbers::new("things", "things.count", 0..400, 400);
    let mut before = of_400();
    let given_back = before.take(&mut random).unwrap();
    before.give(given_back);
    let in_use: Vec<u32> = (0..40).map(|_| before.take(&mut random).unwrap()).collect();
    let mut after = of_400().resting_from(&before.rested());
    for _ in 0..59 {
        let new = after.take(&mut random).unwrap();
        assert!(new != given_back && !in_use.contains(&new), "{new}");
        after.give(new);
    }
    // None is lost.
    let mut all: Vec<u32> = (0..400).map(|_| after.take(&mut random).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..400).collect::<Vec<_>>());
}

#[test]
fn a_life_after_one_that_used_everything_has_numbers_that_cannot_be_guessed() {
    let mut random = StdRng::seed_from_u64(6);
    let mut before = Numbers::new("things", "things.count", 0..400, 400);
    for _ in 0..400 {
        before.take(&mut random).unwrap();
    }
    // The device grants fewer the next time.
    let after = Numbers::new("things", "things.count", 0..200, 200).resting_from(&before.rested());
    assert!(after.free.len() >= 50, "{} free", after.free.len());
    assert_eq!(after.free.len() + after.resting.len(), 200);
    assert!(after.resting.iter().all(|number| *number < 200));
}

#[test]
fn a_number_of_a_fixed_purpose_is_in_use_once_and_never_given_out() {
    let mut random = StdRng::seed_from_u64(6);
    let mut numbers = Numbers::new("queue pairs", "rdma.queue_pairs", 3..5, 2);
    numbers.take_fixed(1).unwrap();
    let text = numbers.take_fixed(1).unwrap_err().to_string();
    assert!(text.contains("number 1 of the queue pairs"), "{text}");
    assert!(text.contains("drop the one that has it"), "{text}");
    assert!(numbers.take_fixed(3).is_err(), "one that take gives");
    assert_eq!(numbers.used(), 0, "it does not count");
    numbers.give(1);
    let taken = [(); 2].map(|()| numbers.take(&mut random).unwrap());
    assert!(taken.iter().all(|number| (3..5).contains(number)));
    assert_eq!(numbers.rested(), Rested(vec![3, 4]));
    numbers.take_fixed(1).unwrap();
}

#[test]
fn a_number_that_is_taken_again_is_given_to_no_other() {
    // Of 3 numbers none is withheld, of 100 the last 25.
    for count in [3, 100] {
        let mut random = StdRng::seed_from_u64(5);
        let mut numbers = Numbers::new("things", "things.count", 0..count, count);
        let number = numbers.take(&mut random).unwrap();
        numbers.give(number);
        numbers.take_again(number).unwrap();
        assert_eq!(numbers.used(), 1);
        numbers.take_again(number).expect_err("it is in use");
        let others: BTreeSet<u32> = (1..count)
            .map(|_| numbers.take(&mut random).unwrap())
            .collect();
        assert_eq!(others.len(), count as usize - 1);
        assert!(!others.contains(&number), "{number} of {count}");
    }
}
