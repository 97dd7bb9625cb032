use super::timer_steps;
use crate::rdma::address::with_priority;

#[test]
fn an_acknowledge_timeout_is_never_shorter_than_asked_up_to_the_longest_of_the_card() {
    // The usual code of programs is what Linux's driver writes for every program.
    assert_eq!(timer_steps(14), 5);
    let step_ns = 4096.0 * 16_384.0 / 5.0;
    for code in 1..=18 {
        let asked_ns = 4096.0 * f64::from(1_u32 << code);
        let steps = f64::from(timer_steps(code));
        assert!(steps * step_ns >= asked_ns, "code {code}: {steps} steps");
        assert!(
            (steps - 1.0) * step_ns < asked_ns,
            "code {code}: a step too many"
        );
    }
    for code in [0, 19, 31, 32, 255] {
        assert_eq!(timer_steps(code), 127, "code {code}");
    }
}

#[test]
fn a_service_level_is_the_priority_of_the_tag_and_leaves_its_number() {
    assert_eq!(with_priority(0xE064, 3), 0x6064);
    assert_eq!(with_priority(0x0064, 15), 0xE064);
}
