use std::io::Write;

use super::*;

fn error_of(text: &str) -> ConfigError {
    match Config::from_toml_str(text) {
        Ok(config) => panic!("accepted {text:?} as {config:?}"),
        Err(error) => error,
    }
}

fn messages(text: &str) -> Vec<String> {
    error_of(text)
        .faults()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn sample_equals_the_defaults() {
    let sample = Config::from_toml_str(SAMPLE).expect("the sample is valid");
    assert_eq!(sample, Config::default());
    assert_eq!(
        Config::from_toml_str("").expect("empty is valid"),
        Config::default()
    );
    Config::default()
        .validate()
        .expect("the defaults are valid");
}

#[test]
fn sample_names_every_key_of_the_schema() {
    let written = Config::default().to_toml_string().expect("serializes");
    let sample: toml::Table = SAMPLE.parse().expect("TOML");
    let schema: toml::Table = written.parse().expect("TOML");
    assert_eq!(sample, schema);
    let keys: usize = schema
        .values()
        .filter_map(|value| value.as_table())
        .map(|t| t.len())
        .sum();
    assert_eq!(
        keys, 45,
        "a new key needs a test of its range, and its line in the sample"
    );
}

#[test]
fn a_changed_configuration_survives_being_written_and_read() {
    let mut config = Config::default();
    config.device.address = "0000:3b:00.1".parse().expect("address");
    config.memory.numa_node = NumaNode::Node(1);
    config.memory.hugepages = HugePages::OneGib;
    config.rdma.path_mtu = PathMtu::Bytes1024;
    config.link.speed = LinkSpeed::Gigabits25;
    config.network.addresses = vec!["10.1.0.1/24@100".parse().expect("address")];
    config.network.gateways = vec!["10.1.0.254".parse().expect("address")];
    config.worker.cores = vec![2, 3];
    config.model.thread_core = Core::Pinned(1);
    let text = config.to_toml_string().expect("serializes");
    assert_eq!(Config::from_toml_str(&text).expect("valid"), config);
}

#[test]
fn every_fault_is_reported_with_line_and_column() {
    let text = "\
[rdma]
queue_pairs = 0
mtu = 4
pbles = \"many\"

[memory]
hugepages = \"3MiB\"

[worker]
poll_batch = 257
";
    let found = messages(text);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert_eq!(
        found[0],
        "line 2, column 15: rdma.queue_pairs = 0: allowed is 1 to 262141"
    );
    assert!(
        found[1].starts_with("line 3, column 1: rdma.mtu: unknown field `mtu`"),
        "{found:#?}"
    );
    assert!(
        found[2].starts_with("line 4, column 9: rdma.pbles: invalid type"),
        "{found:#?}"
    );
    assert!(
        found[3].starts_with("line 7, column 13: memory.hugepages: "),
        "{found:#?}"
    );
    assert!(
        found[3].contains("`auto`") && found[3].contains("`2MiB`"),
        "{found:#?}"
    );
    assert_eq!(
        found[4],
        "line 10, column 14: worker.poll_batch = 257: allowed is 1 to 256 completions"
    );
}

#[test]
fn unknown_sections_and_broken_toml_are_located() {
    let found = messages("[rdma]\nqueue_pairs = 4\n[lnik]\nmtu = 1500\n");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("line 3, column 2: lnik: unknown field"),
        "{found:#?}"
    );
    let found = messages("[rdma]\nqueue_pairs = = 4\n");
    assert!(found[0].starts_with("line 2, column "), "{found:#?}");
    let found = messages("[rdma]\nqueue_pairs = 4\nqueue_pairs = 5\n");
    assert!(
        found[0].starts_with("line 3, column 1: duplicate key"),
        "{found:#?}"
    );
    let found = messages("rdma = 4\n");
    assert!(
        found[0].starts_with("line 1, column 8: rdma: invalid type"),
        "{found:#?}"
    );
}

#[test]
fn dotted_and_inline_keys_are_located_too() {
    let found = messages("rdma.queue_pairs = 0\nlink = { mtu = 10 }\n");
    assert_eq!(
        found[0],
        "line 1, column 20: rdma.queue_pairs = 0: allowed is 1 to 262141"
    );
    assert!(
        found[1].starts_with("line 2, column 16: link.mtu = 10: "),
        "{found:#?}"
    );
}

#[test]
fn every_number_out_of_range_is_refused_below_and_above() {
    let cases: &[(&str, &str, i64, i64)] = &[
        ("device", "reset_deadline_ms", 99, 120_001),
        ("device", "ready_deadline_ms", 99, 120_001),
        ("memory", "numa_node", -1, 1024),
        ("rdma", "queue_pairs", 0, 262_142),
        ("rdma", "completion_queues", 0, 524_286),
        ("rdma", "memory_regions", 0, 8_388_608),
        ("rdma", "pbles", -1, 536_870_912),
        ("rdma", "address_handles", 0, 262_144),
        ("rdma", "arp_entries", 0, 4095),
        ("rdma", "multicast_groups", -1, 4096),
        ("rdma", "event_queues", -1, 1025),
        ("rdma", "path_mtu", 255, 9000),
        ("link", "mtu", 575, 9703),
        ("link", "wait_ms", -1, 120_001),
        ("deadlines", "admin_queue_ms", 0, 60_001),
        ("deadlines", "control_queue_ms", 0, 60_001),
        ("deadlines", "resource_lock_ms", 0, 600_001),
        ("deadlines", "quiesce_ms", 0, 60_001),
        ("deadlines", "connect_ms", 0, 600_001),
        ("worker", "poll_batch", 0, 257),
        ("worker", "sleep_ms", 0, 60_001),
        ("worker", "inbox", 1, 65_537),
        ("model", "functions", 0, 65),
        ("model", "thread_core", -1, 1024),
    ];
    for &(section, key, below, above) in cases {
        for value in [below, above] {
            let found = messages(&format!("[{section}]\n{key} = {value}\n"));
            let name = format!("{section}.{key}");
            assert!(
                found.iter().any(|fault| fault.contains(&name)),
                "{name} = {value}: {found:?}"
            );
        }
    }
}

#[test]
fn limits_themselves_are_allowed() {
    for text in [
        "[rdma]\nqueue_pairs = 262141\ncompletion_queues = 524285\npbles = 0\nmulticast_groups = 0",
        "[link]\nmtu = 9702\nwait_ms = 0",
        "[link]\nmtu = 576\n[rdma]\npath_mtu = 256",
        "[worker]\npoll_batch = 256\ncores = [0, 1023]\n[model]\nfunctions = 64\nthread_core = 7",
    ] {
        Config::from_toml_str(text).expect(text);
    }
}

#[test]
fn path_mtu_must_fit_the_link() {
    let found = messages("[link]\nmtu = 4179\n");
    assert!(
        found[0].contains("rdma.path_mtu = 4096 needs at least 4180 bytes"),
        "{found:?}"
    );
    Config::from_toml_str("[link]\nmtu = 4180\n").expect("just fits");
    let found = messages("[rdma]\npath_mtu = 1500\n");
    assert!(
        found[0].contains("allowed are 256, 512, 1024, 2048 and 4096"),
        "{found:?}"
    );
}

#[test]
fn cores_are_named_once_and_not_shared_with_the_model() {
    assert!(messages("[worker]\ncores = [1, 2, 1]")[0].contains("name each core once"));
    let bound = messages("[worker]\nbind_interrupts = true");
    assert!(
        bound[0].contains("name worker.cores or housekeeping.core"),
        "{bound:?}"
    );
    let found = messages("[worker]\ncores = [1]\n[model]\nthread_core = 1");
    assert!(
        found[0].starts_with("line 4, column 15: model.thread_core = 1"),
        "{found:?}"
    );
    let found = messages("[model]\nthread_core = \"all\"");
    assert!(
        found[0].contains("the number of a logical CPU or \"any\""),
        "{found:?}"
    );
}

#[test]
fn ddp_needs_a_place_to_look() {
    assert!(messages("[ddp]\nsearch = [\"firmware\"]")[0].contains("absolute path"));
    assert!(messages("[ddp]\nfile = \"a/b\"")[0].contains("give a file name"));
    assert!(messages("[ddp]\nfile = \"\"")[0].contains("give a file name"));
    assert!(messages("[ddp]\nsearch = []\nrequire = true")[0].contains("ddp.search = []"));
    let many = format!("[ddp]\nsearch = [{}]", "\"/a\", ".repeat(17));
    assert!(messages(&many)[0].contains("17 folders"));
    Config::from_toml_str("[ddp]\nsearch = []\nfile = \"/tmp/ice.pkg\"\nrequire = true")
        .expect("an absolute path needs no search");
}

#[test]
fn device_addresses_are_read_and_written_as_text() {
    for text in ["model:1", "vfio-user:/run/e810.sock", "0000:3b:00.0"] {
        let file = format!("[device]\naddress = \"{text}\"\n");
        let config = Config::from_toml_str(&file).expect(text);
        assert_eq!(config.device.address, text.parse().expect(text));
        assert!(
            config.to_toml_string().expect("serializes").contains(&file),
            "{text}"
        );
    }
}

#[test]
fn texts_that_name_no_device_are_refused_where_they_stand() {
    for text in [
        "",
        "model:",
        "model:x",
        "vfio-user:",
        "vfio-user:here",
        "eth0",
        "0000:3b:20.0",
    ] {
        let found = messages(&format!("[device]\naddress = \"{text}\"\n"));
        assert!(
            found[0].starts_with("line 2, column 11: device.address"),
            "{found:?}"
        );
    }
    let found = messages("[device]\naddress = \"model:2\"\n");
    assert!(found[0].contains("model.functions = 2"), "{found:?}");
}

#[test]
fn validation_in_code_has_no_positions() {
    let mut config = Config::default();
    config.rdma.queue_pairs = 0;
    config.worker.inbox = 0;
    let error = config.validate().expect_err("two faults");
    assert_eq!(error.faults().len(), 2);
    assert!(error.faults().iter().all(|fault| fault.position.is_none()));
    assert_eq!(
        error.to_string(),
        "the configuration is not valid\n  rdma.queue_pairs = 0: allowed is 1 to 262141\n  \
         worker.inbox = 0: allowed is 2 to 65536 requests"
    );
}

/// A file of its own, removed when dropped; its name ends with `name`.
fn scratch(name: &str, content: &[u8]) -> tempfile::NamedTempFile {
    let suffix = format!("-{name}.toml");
    let mut file = tempfile::Builder::new()
        .suffix(&suffix)
        .tempfile()
        .expect("scratch");
    file.write_all(content).expect("scratch");
    file
}

#[test]
fn files_load_and_their_errors_name_them() {
    let good = scratch("good", SAMPLE.as_bytes());
    assert_eq!(Config::load(good.path()).expect("loads"), Config::default());

    let bad = scratch("bad", b"[rdma]\nqueue_pairs = 0\n");
    let text = Config::load(bad.path()).expect_err("invalid").to_string();
    assert!(
        text.contains("-bad.toml is not valid\n  line 2, column 15"),
        "{text}"
    );

    let binary = scratch("binary", b"\xFF\xFE[rdma]");
    assert!(matches!(
        Config::load(binary.path()),
        Err(ConfigError::Unreadable { .. })
    ));

    let long = scratch("long", &vec![b'#'; (1 << 20) + 1]);
    assert!(matches!(
        Config::load(long.path()),
        Err(ConfigError::TooLong {
            length_bytes: 1_048_577,
            limit_bytes: 1_048_576,
            ..
        })
    ));

    let missing = Config::load("/nonexistent/ringside.toml").expect_err("missing");
    assert!(matches!(missing, ConfigError::Unreadable { .. }));
    assert!(missing.to_string().contains("/nonexistent/ringside.toml"));
}

#[test]
fn a_file_full_of_faults_ends() {
    let mut text = String::from("[rdma]\n");
    for index in 0..500 {
        text.push_str(&format!("unknown_{index} = 1\n"));
    }
    assert_eq!(error_of(&text).faults().len(), 50);
}

#[test]
fn positions_count_characters_and_lines_from_one() {
    let text = "ä = 1\nbß = 2";
    assert_eq!(
        Position::of_offset(text, 0),
        Position { line: 1, column: 1 }
    );
    assert_eq!(
        Position::of_offset(text, 5),
        Position { line: 1, column: 5 }
    );
    assert_eq!(
        Position::of_offset(text, 7),
        Position { line: 2, column: 1 }
    );
    assert_eq!(
        Position::of_offset(text, 999),
        Position { line: 2, column: 7 }
    );
}

#[test]
fn every_sample_is_valid_and_differs_from_the_defaults() {
    for (name, text) in SAMPLES {
        let config = Config::from_toml_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_ne!(config, Config::default(), "{name}");
        // A sample holds only values that differ from the defaults, except those that it
        // emphasises.
        let sample: toml::Table = text.parse().expect("TOML");
        assert!(sample.contains_key("worker"), "{name}");
    }
}

/// Returns the properties of a section's keys in the schema.
fn properties<'s>(schema: &'s serde_json::Value, section: &str) -> &'s serde_json::Value {
    let place = &schema["properties"][section];
    let name = place["$ref"]
        .as_str()
        .or_else(|| place["allOf"][0]["$ref"].as_str());
    let name = name.unwrap_or_else(|| panic!("{section}: {place}"));
    &schema["$defs"][name.rsplit('/').next().unwrap_or("")]["properties"]
}

#[test]
fn the_schema_has_every_key_and_its_ranges_are_those_that_are_checked() {
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).expect("JSON");
    let written = Config::default().to_toml_string().expect("serializes");
    let defaults: toml::Table = written.parse().expect("TOML");
    let mut ranges = 0;
    for (section, keys) in &defaults {
        let properties = properties(&schema, section);
        for key in keys.as_table().expect("a table").keys() {
            let property = &properties[key];
            assert!(property.is_object(), "{section}.{key}");
            let (Some(low), Some(high)) =
                (property["minimum"].as_i64(), property["maximum"].as_i64())
            else {
                continue;
            };
            ranges += 1;
            let named = format!("{section}.{key} = ");
            let faults = |value: i64| {
                let text = format!("[{section}]\n{key} = {value}\n");
                match Config::from_toml_str(&text) {
                    Ok(_) => false,
                    Err(error) => error.faults().iter().any(|fault| {
                        let text = fault.to_string();
                        text.contains(&named) && text.contains("allowed is")
                            || text.contains(&format!("{section}.{key}: "))
                    }),
                }
            };
            assert!(
                !faults(low) && !faults(high),
                "{section}.{key}: {low} to {high}"
            );
            assert!(faults(high + 1), "{section}.{key}: {}", high + 1);
            assert!(low == 0 || faults(low - 1), "{section}.{key}: {}", low - 1);
        }
    }
    assert_eq!(ranges, 25, "a key with a range has it in its schema too");
}

#[test]
fn addresses_of_the_port_are_checked_one_by_one_and_against_each_other() {
    let sound = "[network]\naddresses = [\"192.0.2.1/24\", \"10.0.0.1/8@5\"]\n\
                 gateways = [\"192.0.2.254\"]";
    let config = Config::from_toml_str(sound).expect("valid");
    assert_eq!(config.network.addresses[1].vlan, Some(5));
    // Each VLAN has addresses of its own.
    let on_two = "[network]\naddresses = [\"10.0.0.1/8\", \"10.0.0.1/8@5\", \"10.0.0.1/8@6\"]";
    assert!(Config::from_toml_str(on_two).is_ok());
    // A router is known by its link-local address as a rule, and the port always has one, too.
    let router = "[network]\naddresses = [\"2001:db8::2/64\"]\ngateways = [\"fe80::1\"]";
    assert!(Config::from_toml_str(router).is_ok());
    for (text, expected) in [
        (
            "addresses = [\"192.0.2.1\"]".to_owned(),
            "the prefix length is missing",
        ),
        (
            "addresses = [\"192.0.2.1/24\", \"192.0.2.1/25\"]".to_owned(),
            "the address is listed twice",
        ),
        (
            "addresses = [\"192.0.2.1/24@7\", \"192.0.2.1/25@7\"]".to_owned(),
            "the address is listed twice",
        ),
        (
            "gateways = [\"2001:db8::1\"]".to_owned(),
            "no address of network.addresses is in the network of this gateway",
        ),
        (
            "gateways = [\"192.0.2.254\"]".to_owned(),
            "no address of network.addresses is in the network of this gateway",
        ),
        (
            "addresses = [\"192.0.2.1/24\"]\ngateways = [\"192.0.2.2\", \"192.0.2.3\"]".to_owned(),
            "at most one gateway of each IP version is possible",
        ),
        (
            "addresses = [\"192.0.2.1/24\"]\ngateways = [\"192.0.2.1\"]".to_owned(),
            "network.gateways = 192.0.2.1: this is an address of the port itself",
        ),
        (
            "addresses = [\"200.0.0.1/2\"]\ngateways = [\"224.0.0.1\"]".to_owned(),
            "network.gateways = 224.0.0.1: no single station can have this address; name the",
        ),
        (
            "addresses = [\"192.0.2.1/24\"]\ngateways = [\"192.0.2.255\"]".to_owned(),
            "network.gateways = 192.0.2.255: no single station can have this address",
        ),
        (
            "gateways = [\"ff02::1\"]".to_owned(),
            "network.gateways = ff02::1: no single station can have this address",
        ),
        (
            "addresses = [\"::ffff:192.0.2.1/96\"]".to_owned(),
            "it stands for an IPv4 address: write 192.0.2.1",
        ),
        (
            "host_interface = \"a/b\"".to_owned(),
            "network.host_interface = \"a/b\": 1 to 15 bytes",
        ),
        (
            format!(
                "addresses = {:?}",
                (1..66)
                    .map(|at| format!("10.0.0.{at}/8"))
                    .collect::<Vec<_>>()
            ),
            "at most 64 are possible",
        ),
    ] {
        let found = messages(&format!("[network]\n{text}\n"));
        let named = found.iter().any(|message| message.contains(expected));
        assert!(named, "{text}: {found:?}");
    }
}

#[test]
fn more_addresses_on_a_vlan_than_the_stack_answers_for_are_refused() {
    let list = |vlans: &[(u32, &str)]| {
        let each = vlans.iter().flat_map(|(count, vlan)| {
            (1..=*count).map(move |last| format!("10.{}.0.{last}/24{vlan}", vlan.len()))
        });
        format!("[network]\naddresses = {:?}\n", each.collect::<Vec<_>>())
    };
    Config::from_toml_str(&list(&[(8, ""), (8, "@7")])).expect("eight on each");
    let found = messages(&list(&[(9, ""), (8, "@7"), (10, "@100")]));
    assert_eq!(found.len(), 2, "{found:?}");
    for (message, said) in found
        .iter()
        .zip(["9 addresses without a VLAN", "10 addresses on VLAN 100"])
    {
        assert!(
            message.contains(said) && message.contains("at most 8"),
            "{message}"
        );
    }
}

/// Code builds addresses without the text that is checked when it is read.
#[test]
fn addresses_that_code_made_are_checked_as_those_of_text() {
    let v4 = std::net::IpAddr::from([10, 5, 0, 1]);
    let v6: std::net::IpAddr = "fd00::5".parse().expect("an address");
    let group = std::net::IpAddr::from([224, 0, 0, 1]);
    let faults = |address| {
        let mut config = Config::default();
        config.network.addresses = vec![address];
        config.faults().into_iter().map(|fault| fault.to_string())
    };
    let new = LocalAddress::new;
    for (address, why) in [
        (new(v4, 33), "10.5.0.1/33: its prefix has 1 to 32 bits"),
        (new(v4, 0), "10.5.0.1/0: its prefix has 1 to 32 bits"),
        (new(v6, 129), "fd00::5/129: its prefix has 1 to 128 bits"),
        (new(group, 24), "224.0.0.1/24: a port has unicast addresses"),
        (new(v4, 24).on_vlan(0), "10.5.0.1/24@0: a VLAN is 1 to 4094"),
        (
            new(v4, 24).on_vlan(5000),
            "10.5.0.1/24@5000: a VLAN is 1 to 4094",
        ),
    ] {
        let found: Vec<String> = faults(address).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(why), "{found:?}");
    }
    assert_eq!(faults(new(v4, 32).on_vlan(4094)).count(), 0);
}

#[test]
fn every_element_of_a_list_is_named_that_has_a_fault() {
    let text = "[network]\naddresses = [\"10.0.0.1/33\", \"10.0.0.3/24\", \"10.0.0.2/99\"]\n\
                [worker]\ncores = [1, \"two\", -3]\n";
    let found = messages(text);
    for part in ["10.0.0.1/33", "10.0.0.2/99", "two", "-3"] {
        assert!(
            found.iter().any(|message| message.contains(part)),
            "{part}: {found:?}"
        );
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn an_event_queue_for_each_core_unless_a_number_is_given() {
    let read = |text: &str| Config::from_toml_str(text).expect(text);
    assert_eq!(read("").event_queues(), 1);
    let cores = read("[worker]\ncores = [3, 5, 7]\n");
    assert_eq!(cores.event_queues(), 3);
    let of = [0, 1, 2, 3].map(|number| cores.core_of_event_queue(number));
    assert_eq!(of, [Some(3), Some(5), Some(7), None]);
    let given = read("[rdma]\nevent_queues = 8\n[worker]\ncores = [3, 5]\n");
    assert_eq!(given.event_queues(), 8);
    assert_eq!(given.core_of_interrupt(Some(0)), None, "off by default");
    let bound =
        read("[rdma]\nevent_queues = 8\n[worker]\ncores = [3, 5]\nbind_interrupts = true\n");
    let cores = [Some(0), Some(1), Some(2), None].map(|queue| bound.core_of_interrupt(queue));
    assert_eq!(cores, [Some(3), Some(5), None, None]);
    let pinned = read("[worker]\nbind_interrupts = true\n[housekeeping]\ncore = 7\n");
    let cores = [Some(0), None].map(|queue| pinned.core_of_interrupt(queue));
    assert_eq!(cores, [None, Some(7)]);
}

#[test]
fn keys_that_a_file_does_not_name_keep_the_values_of_the_program() {
    let mut others = Config::default();
    others.rdma.queue_pairs = 512;
    others.rdma.memory_regions = 16_384;
    others.model.functions = 3;
    let path = std::env::temp_dir().join(format!("ringside-over-{}.toml", std::process::id()));
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Config::load_over(&path, &others)
    };
    let text = "[rdma]\nmemory_regions = 2048\n[network]\naddresses = [\"10.0.0.1/24\"]\n";
    let merged = load(text).unwrap();
    let faulty = load("[rdma]\nqueue_pairs = \"many\"\n").unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let mut wanted = Config::from_toml_str(text).unwrap();
    wanted.rdma.queue_pairs = 512;
    wanted.model.functions = 3;
    assert_eq!(merged, wanted);
    assert_eq!(faulty.faults()[0].position.map(|at| at.line), Some(2));
}

/// A file over a configuration that differs from the defaults is judged with that configuration.
#[test]
fn a_file_over_another_configuration_is_checked_with_its_values() {
    let path = std::env::temp_dir().join(format!("ringside-with-{}.toml", std::process::id()));
    let mut others = Config::default();
    others.rdma.path_mtu = crate::PathMtu::Bytes1024;
    others.link.mtu = 1500;
    let load = |text: &str, others: &Config| {
        std::fs::write(&path, text).unwrap();
        Config::load_over(&path, others)
    };
    let shorter = load("[link]\nmtu = 1400\n", &others).unwrap();
    let with_defaults = load("[link]\nmtu = 1400\n", &Config::default());
    let alone = load("\n[rdma]\nqueue_pairs = 0\n", &others).unwrap_err();
    let together = load("[rdma]\npath_mtu = 4096\n", &others).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        (shorter.link.mtu, shorter.rdma.path_mtu),
        (1400, others.rdma.path_mtu)
    );
    let line = |error: &ConfigError| error.faults()[0].position.map(|at| at.line);
    assert_eq!(line(&with_defaults.unwrap_err()), Some(2));
    assert_eq!(line(&alone), Some(3));
    assert!(
        together.to_string().contains("rdma.path_mtu = 4096"),
        "{together}"
    );
}

#[test]
fn a_section_that_is_no_table_is_named_as_files_have_it() {
    for (text, expected) in [
        (
            "rdma = 3\n",
            "rdma: invalid type: integer `3`, expected the table [rdma]",
        ),
        ("ddp = \"ice.pkg\"\n", "expected the table [ddp]"),
        ("model = true\n", "expected the table [model]"),
        (
            "device = [\"model:1\"]\n",
            "line 1, column 10: device: invalid type: list, expected the table [device]",
        ),
        ("link = [9000, \"auto\", 10]\n", "expected the table [link]"),
        (
            "[[device]]\n",
            "device: invalid type: list, expected the table",
        ),
        ("nothing = []\n", "nothing: unknown field"),
    ] {
        let error = Config::from_toml_str(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_gateway_that_is_no_address_is_named() {
    let text = "[network]\naddresses = [\"10.0.0.1/24\"]\ngateways = [\"10.0.0.2\", \"zz\"]\n";
    let found = messages(text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("network.gateways") && found[0].contains("zz is not an IP address"),
        "{found:?}"
    );
}

#[test]
fn the_largest_path_mtu_is_that_of_packets_which_the_link_carries() {
    let mut config = Config::default();
    for (link, largest) in [
        (9000, 4096),
        (4180, 4096),
        (4179, 2048),
        (1500, 1024),
        (576, 256),
    ] {
        config.link.mtu = link;
        assert_eq!(config.largest_path_mtu().bytes(), largest, "{link}");
        config.rdma.path_mtu = config.largest_path_mtu();
        assert_eq!(config.faults().len(), 0, "{link}");
    }
}
