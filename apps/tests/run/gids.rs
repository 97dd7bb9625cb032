//! Indexes of GIDs: `ringside info` and programs of verbs count alike.

use crate::harness::*;
use std::net::Ipv6Addr;
use std::process::Command;

/// Runs a command of `ringside` with a configuration; returns what it printed.
fn with_config(folder: &Folder, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.arg("--config").arg(folder.path().join("config"));
    command.args(words).env("XDG_RUNTIME_DIR", folder.path());
    succeeded(&command.output().expect("ringside"))
}

#[test]
fn info_and_programs_of_verbs_have_the_same_address_at_each_index() {
    let folder = Folder::new();
    let addresses = "addresses = [\"10.7.0.1/24\", \"fd00::1/64\", \"10.7.1.1/24@7\"]\n";
    let config = folder.path().join("config");
    std::fs::write(config, format!("[network]\n{addresses}")).expect("a file");
    let shown = with_config(&folder, &["info", "--device", "model:0", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let of_info = shown["port"]["gids"].as_array().expect("a list").iter();
    let of_info = of_info.map(|gid| {
        let (address, kind) = gid.as_str().expect("text").split_once(", ").expect("two");
        assert_eq!(kind, "RoCE v2");
        address.parse().expect("an address")
    });
    let of_info = of_info.collect::<Vec<Ipv6Addr>>();
    let libraries = libraries().display().to_string();
    let cat = "cd /sys/class/infiniband/ringside0/ports/1/gids; cat 0 1 2 3";
    let words = ["run", "--device", "model:0", "--libraries", &libraries];
    let of_verbs = with_config(&folder, &[&words[..], &["--", "sh", "-c", cat]].concat());
    let of_verbs = of_verbs.lines().map(|gid| gid.parse().expect("an address"));
    let of_verbs = of_verbs.collect::<Vec<Ipv6Addr>>();
    assert_eq!(of_info, of_verbs);
    assert!(of_info[0].is_unicast_link_local(), "{of_info:?}");
    assert_eq!(of_info[1].to_string(), "::ffff:10.7.0.1");
}
