use super::*;

fn breach(count: u64) -> Breach {
    Breach {
        kind: "a rule",
        count,
        first: "first".into(),
        further: vec!["second".into()],
    }
}

fn report(items: usize) -> Report {
    let left_over = LeftOver {
        what: "filter rules",
        items: (0..items).map(|number| format!("rule{number}")).collect(),
        more: 0,
    };
    let function = FunctionReport {
        socket: "a".into(),
        faults: Vec::new(),
        breaches: vec![breach(3), breach(4)],
        remarks: Vec::new(),
        left_over: vec![left_over],
    };
    Report {
        functions: vec![function],
        wire_faults: Vec::new(),
        switch: SwitchCounters::default(),
        wires: Vec::new(),
        captured: None,
    }
}

#[test]
fn each_time_that_a_rule_was_broken_counts() {
    let report = report(0);
    assert_eq!(report.breaches(), 7);
    assert_eq!(report.to_json()["breaches"], 7);
    let text = report.to_text();
    assert!(text.contains("broke the interface 7 times"), "{text}");
    assert!(text.contains("  3 x a rule: first; second\n"), "{text}");
}

#[test]
fn a_text_shows_the_first_things_of_a_kind_and_the_number_of_the_others() {
    let kind = "in use or left over: filter rules: rule0";
    for (items, end) in [(1, "rule0\n"), (8, "rule7\n"), (9, "rule7 and 1 more\n")] {
        let text = report(items).to_text();
        let line = text.split_inclusive('\n').find(|line| line.contains(kind));
        assert!(line.is_some_and(|line| line.ends_with(end)), "{text}");
        let all = &report(items).to_json()["functions"][0]["left_over"]["filter rules"];
        assert_eq!(all.as_array().map(Vec::len), Some(items));
    }
}

#[test]
fn things_that_are_not_named_are_counted() {
    let mut report = report(10);
    report.functions[0].left_over[0].more = 90;
    let text = report.to_text();
    assert!(text.contains("rule7 and 92 more\n"), "{text}");
    let all = &report.to_json()["functions"][0]["left_over"]["filter rules"];
    let all = all.as_array().unwrap();
    assert_eq!((all.len(), &all[10]), (11, &json!("and 90 more")));
}
