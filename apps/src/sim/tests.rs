use super::*;

#[test]
fn steps_are_written_as_they_are_read() {
    let scenario = Scenario::new(1, 30, FaultMix::BySeed).keeping(&[0, 3, 4, 5, 9]);
    let text = steps_text(&scenario.steps);
    assert_eq!(text, "0,3-5,9");
    assert_eq!(numbers(&text), Ok(vec![0, 3, 4, 5, 9]));
    assert!(numbers("5-3").unwrap_err().contains("'5-3'"));
    assert_eq!(numbers(""), Ok(vec![]));
}
