//! The messages of the command when it cannot carry out its task: each message as it was reviewed.
//!
//! After a change that is meant, run with `INSTA_UPDATE=always` and review the difference. What
//! depends on the machine stands in brackets.

mod transcript;

use tempfile::tempdir;
use transcript::assert_transcript;

#[test]
fn flags_of_bench() {
    assert_transcript(
        "flags-of-bench",
        &tempdir().unwrap(),
        &[
            "bench wirte",
            "bench write latency",
            "bench read lat bw",
            "bench --sise 8",
            "bench -s 8388609",
            "bench -s eight",
            "bench -s -1",
            "bench -s",
            "bench -s 8 -a",
            "bench -n 4",
            "bench -n 100 -D 1",
            "bench -D 0",
            "bench -D 100000",
            "bench -I 102",
            "bench -q 0",
            "bench -q 65",
            "bench -t 0",
            "bench -t 4096",
            "bench -r 0",
            "bench -r 2049",
            "bench write lat -s 0",
            "bench -m 1500",
            "bench --cores 1,1",
            "bench --cores 0,1,2",
            "bench --cores one",
            "bench --cores 9999",
            "bench --idle sleep",
            "bench -R",
            "bench write bw --hgrm {folder}/latency.hgrm",
        ],
    );
}

#[test]
fn devices_of_bench() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    assert_transcript(
        "devices-of-bench",
        &folder,
        &[
            "bench --device e810",
            "bench --device model:x",
            "bench --device model:2",
            "bench --device 0000:ff:1f.9",
            "bench --device vfio-user:",
            "bench --device vfio-user:{folder}/none",
            "bench --device vfio-user:{folder}/none --peer vfio-user:{folder}/file",
            "bench --device vfio-user:{folder}/file --peer vfio-user:{folder}/none",
            "bench --device vfio-user:{folder}/file --peer vfio-user:{folder}/./file",
            "bench --peer model:1",
            "bench --peer vfio-user:{folder}/none",
        ],
    );
}

#[test]
fn files_of_bench() {
    assert_transcript(
        "files-of-bench",
        &tempdir().unwrap(),
        &[
            "bench write lat -n 5 --pcap {folder}/no/capture.pcap",
            "bench write lat -n 5 --hgrm {folder}/no/latency.hgrm",
            "bench write lat -n 5 --out_json --out_json_file {folder}/no/report.json",
            "bench write lat -n 5 --hgrm",
            "bench write lat -n 5 --hgrm -",
            "bench write lat -n 5 --pcap -",
            "bench write lat -n 5 --hgrm {folder}/same --out_json_file {folder}/same",
            "bench write lat -n 5 --pcap {folder}/same --hgrm {folder}/same",
            "bench write lat -n 5 --hgrm /proc/no.hgrm",
            "bench write lat -n 5 -a --hgrm /dev/null",
        ],
    );
}

#[test]
fn meetings() {
    assert_transcript(
        "meetings",
        &tempdir().unwrap(),
        &[
            "bench --listen 127.0.0.1 --connect 127.0.0.1",
            "bench --listen",
            "bench --listen 127.0.0.1",
            "bench --connect 127.0.0.1 --device model:1",
            "bench --listen 127.0.0.1:0 --device vfio-user:{folder}/none",
            "bench --listen 192.0.2.1 --device vfio-user:{folder}/none",
            "bench --listen 127.0.0.1:99999 --device vfio-user:{folder}/none",
            "bench --connect 127.0.0.1:port --device vfio-user:{folder}/none",
            "bench --connect 127.0.0.1 --device vfio-user:{folder}/none",
            "bench --listen 127.0.0.1 -a",
            "bench --listen 127.0.0.1 --pcap {folder}/capture.pcap",
            "bench --listen 127.0.0.1 --hgrm {folder}/latency.hgrm",
            "bench --connect 127.0.0.1 --peer model:1",
            "bench --connect 127.0.0.1 --cores 0,1",
            "bench --connect 127.0.0.1 --wait 0",
            "bench --verify-only",
        ],
    );
}

#[test]
fn chaos() {
    assert_transcript(
        "chaos",
        &tempdir().unwrap(),
        &[
            "bench --chaos write",
            "bench --chaos -q 4",
            "bench --chaos --chaos-rounds 0",
            "bench --chaos --chaos-rounds 3 -D 5",
            "bench --chaos -D 0",
            "bench --chaos --chaos-kinds reset",
            "bench --chaos --listen 127.0.0.1",
            "bench --chaos --pcap {folder}/capture.pcap",
            "bench --chaos --chaos-control {folder}/control",
            "bench --chaos --chaos-control {folder}/control --chaos-prompt",
            "bench --chaos --device vfio-user:{folder}/none --peer vfio-user:{folder}/file",
            "bench --chaos --chaos-prompt",
            "bench --chaos --chaos-function 63",
            "bench --chaos -v",
            "bench --chaos-rounds 3",
            "bench write lat --chaos-rounds 3",
        ],
    );
}

#[test]
fn perftest_as_the_other_side() {
    let device = "--connect 127.0.0.1 --device vfio-user:{folder}/none --perftest";
    assert_transcript(
        "perftest",
        &tempdir().unwrap(),
        &[
            "bench write bw --perftest",
            "bench write bw --wait 3",
            "bench write bw --idle spin",
            &format!("bench {device}"),
            &format!("bench {device} write"),
            &format!("bench {device} write bw -s 0"),
            &format!("bench {device} write bw -n 5000001"),
            &format!("bench {device} write bw -D 1"),
            &format!("bench {device} write bw --verify-only"),
            &format!("bench {device} write bw --peer-mac 01:00:5e:00:00:01"),
            &format!("bench {device} write bw --peer-mac 02:00:00:00:01"),
            "bench --connect 127.0.0.1 --peer-mac 02:00:00:00:00:01",
        ],
    );
}

#[test]
fn configuration_files() {
    let folder = tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let texts = [
        ("syntax", "[rdma\nqueue_pairs = 1\n"),
        ("section", "[rmda]\nqueue_pairs = 1\n"),
        ("key", "[rdma]\nqueue_pear = 1\n"),
        ("type", "[rdma]\nqueue_pairs = \"many\"\n"),
        ("negative", "[rdma]\nqueue_pairs = -1\n"),
        ("range", "[rdma]\nqueue_pairs = 0\n"),
        (
            "several",
            "[rdma]\nqueue_pairs = 0\narp_entries = 0\n[link]\nmtu = 100\n",
        ),
        ("mtu", "[rdma]\npath_mtu = 1500\n"),
        ("between", "[link]\nmtu = 1500\n[rdma]\npath_mtu = 4096\n"),
        ("device", "[device]\naddress = \"e810\"\n"),
        ("deadline", "[deadlines]\nconnect_ms = 0\n"),
        ("twice", "[link]\nmtu = 9000\nmtu = 1500\n"),
        ("alone", "[model]\nfunctions = 1\n"),
        (
            "ddp",
            "[ddp]\nrequire = true\nsearch = []\nfile = \"no.pkg\"\n",
        ),
    ];
    for (name, text) in texts {
        file(name, text);
    }
    std::fs::write(folder.path().join("bytes"), [0xFF, 0xFE]).unwrap();
    let mut lines: Vec<_> = texts
        .iter()
        .map(|(name, _)| format!("bench write lat -n 5 --config {{folder}}/{name}"))
        .collect();
    for name in ["bytes", "none", ""] {
        lines.push(format!("devices --config {{folder}}/{name}"));
    }
    lines.push("devices --config".to_owned());
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    assert_transcript("configuration-files", &folder, &lines);
}

#[test]
fn other_commands() {
    assert_transcript(
        "other-commands",
        &tempdir().unwrap(),
        &[
            "bnech",
            "info --device model:7",
            "info --device model:77",
            "info --device vfio-user:{folder}/none",
            "info --device",
            "bring-up --device model:7",
            "bring-up --fail-at nowhere",
            "bring-up --fail-at link",
            "bind",
            "bind e810",
            "bind model:0",
            "bind 0000:ff:1f.7",
            "unbind",
            "unbind model:0",
            "unbind 0000:ff:1f.7",
            "doctor model:0",
            "doctor 0000:ff:1f.7",
            "run --first 8 --fault 8:link-down -- true",
            "run --device bogus -- true",
            "capture --direction out -w {folder}/x",
            "forward --interactive --stats-period 3",
            "forward --cores 9999",
            "forward --cores 0,0 --queues 1",
            "sim --runs 1 --keep 149-150",
            "sim --config {folder}/x",
            "bind 0000:ff:1f.7 --config {folder}/x",
            "unbind 0000:ff:1f.7 --config {folder}/x",
            "model tell {folder}/x report --config {folder}/x",
            "config schema --config {folder}/x",
        ],
    );
}

#[test]
fn serving_the_model() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    std::fs::write(folder.path().join("core"), "[model]\nthread_core = 1000\n").unwrap();
    let long = "x".repeat(120);
    assert_transcript(
        "model",
        &folder,
        &[
            "model",
            "model sreve",
            "model serve",
            "model serve --socket {folder}/no/socket",
            "model serve --socket {folder}/file",
            "model serve --socket {folder}/a --socket {folder}/a",
            &format!("model serve --socket {{folder}}/{long}"),
            "model serve --socket {folder}/a --core 9999",
            "model serve --socket {folder}/a --config {folder}/core",
            "model serve --socket {folder}/a --spin-us long",
            "model serve --socket {folder}/a --dgram {folder}/b",
            "model serve --socket {folder}/a --fault 0:confetti",
            "model serve --socket {folder}/a --fault 3:link-down",
            "model serve --socket {folder}/a --pcap {folder}/no/capture.pcap",
            "model serve --socket {folder}/a --pcap -",
            "model serve --socket {folder}/a --record {folder}/no/record",
            "model serve --socket {folder}/a --record -",
            "model serve --socket {folder}/a --control {folder}/file",
            "model serve --socket {folder}/a --json --report {folder}/report",
            "model serve --socket {folder}/a --report {folder}/no/report",
            "model serve --socket {folder}/a --dgram {folder}/./a,{folder}/b",
            "model serve --socket {folder}/a --dgram {folder}/b,{folder}/b",
            "model serve --socket {folder}/a --tap a-name-of-more-than-15-bytes",
            "model serve --socket {folder}/a --first 65535",
            "model tell",
        ],
    );
}
