use super::*;

#[test]
fn every_fault_that_is_listed_is_read_and_written_alike() {
    for (usage, _) in FAULTS {
        let all: Vec<&str> = usage.split(' ').collect();
        let optional = all.iter().filter(|word| word.starts_with('[')).count();
        let filled = |count: usize| {
            let numbers = (1..count).map(|number| format!(" {number}"));
            format!("{}{}", all[0], numbers.collect::<String>())
        };
        for count in [all.len(), all.len() - optional] {
            let fault: Fault = filled(count).parse().unwrap();
            assert_eq!(fault.to_string().parse(), Ok(fault), "{usage}");
            assert_eq!(fault.is_of_the_wire(), usage.contains("MILLION"));
        }
        let more = filled(all.len() + 1).parse::<Fault>();
        assert!(
            matches!(more, Err(FaultWordsError::TooMany { .. })),
            "{usage}"
        );
        let wanted = all.len() - optional;
        if wanted > 1 {
            let fewer = filled(wanted - 1).parse::<Fault>();
            assert!(matches!(fewer, Err(FaultWordsError::Missing { .. })));
        }
    }
}

/// The document for people names each of them.
#[test]
fn every_fault_is_documented() {
    let document = include_str!("../../../../docs/model-server.md");
    for (usage, _) in FAULTS {
        let name = usage.split(' ').next().unwrap_or_default();
        let named = [format!("`{name}`"), format!("`{name} ")];
        assert!(named.iter().any(|name| document.contains(name)), "{name}");
    }
}

#[test]
fn numbers_are_decimal_or_hexadecimal_and_in_range() {
    let fails = |code| Fault::AdminCommandFails {
        opcode: 0x601,
        code,
    };
    assert_eq!("admin-fails 0x601 5".parse(), Ok(fails(5)));
    assert_eq!("admin-fails:1537,0x5".parse(), Ok(fails(5)));
    for bad in [
        "admin-fails 65536 5",
        "admin-fails x 5",
        "drop -1",
        "drop 0xg",
    ] {
        let refused = bad.parse::<Fault>().unwrap_err();
        assert!(
            matches!(refused, FaultWordsError::BadNumber { .. }),
            "{bad}"
        );
    }
    for unknown in ["", "  ", "linkdown", "DROP 1"] {
        let refused = unknown.parse::<Fault>().unwrap_err();
        assert!(refused.to_string().contains("link-down"), "{refused}");
    }
}

#[test]
fn numbers_beyond_what_there_is_are_refused_with_the_largest() {
    for (bad, largest) in [
        ("drop 1000001", "1000000"),
        ("delay 2000000 1 5", "1000000"),
        ("hmc-error 16 0", "15"),
        ("hmc-error 1 32", "31"),
    ] {
        let refused = bad.parse::<Fault>().unwrap_err();
        assert!(refused.to_string().contains(largest), "{bad}: {refused}");
    }
}
