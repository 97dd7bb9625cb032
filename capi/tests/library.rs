//! The library as programs find it: symbols and their versions, and programs that run on it.

#[path = "library/installed.rs"]
mod installed;
#[path = "library/log.rs"]
mod log;
#[path = "library/releases.rs"]
mod releases;
#[path = "library/surroundings.rs"]
mod surroundings;

use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The archive of this build.
fn archive() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let deps = own.parent().expect("deps");
    let archives = std::fs::read_dir(deps).expect("deps").flatten();
    let newest = archives
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libringside_capi") && name.ends_with(".a")
        })
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    newest.expect("the archive of this build")
}

/// The folder with `libibverbs.so.1`, linked from that archive.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let archive = archive();
        let folder = archive.parent().expect("deps").join("c-libraries");
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("link");
        let linked = Command::new(link).arg(&archive).arg(&folder).output();
        succeeded(&linked.expect("cc"));
        folder
    })
}

fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

/// Notes that a tool is missing, which only a machine that is not CI's may lack.
fn is_missing(tool: &str) {
    let may_miss = std::env::var_os("CI").is_none();
    assert!(may_miss, "{tool} is not installed: .ci/run --tools");
    eprintln!("not run: {tool} is not installed");
}

/// Exit code of `timeout` if there is no such program.
const NOT_FOUND: i32 = 127;

/// Runs a program on the library and a model of its own. Under valgrind, model and IP stack share
/// one processor with it: on a busy machine that takes minutes.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    run_with(&[], program, arguments)
}

fn run_with(variables: &[(&str, &OsStr)], program: &str, arguments: &[&str]) -> Option<Output> {
    let found = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library())
        .env("RINGSIDE_DEVICE", "model:0")
        .envs(variables.iter().copied())
        .output()
        .expect("timeout");
    (found.status.code() != Some(NOT_FOUND)).then_some(found)
}

/// Symbols of the library as `name@NODE`, with `@@` for the default version.
fn exported(name: &str) -> BTreeSet<String> {
    let file = library().join(name);
    let read = Command::new("readelf")
        .args(["--dyn-syms", "-W"])
        .arg(file)
        .output();
    let text = succeeded(&read.expect("readelf"));
    let symbols = text.lines().filter(|line| !line.contains(" UND "));
    let names = symbols.filter_map(|line| line.split_whitespace().nth(7));
    names
        .filter(|name| name.contains('@'))
        .map(str::to_owned)
        .collect()
}

/// The functions of `ringside.h`.
const OWN: [&str; 2] = [
    "ringside_last_error@@RINGSIDE_1.0",
    "ringside_version@@RINGSIDE_1.0",
];

/// Compares what a library exports with the symbols and versions of rdma-core's; returns how many
/// those are.
fn compare(library: &str) -> usize {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/vectors/verbs_abi.json"
    );
    let text = std::fs::read_to_string(path).expect("tests/vectors/verbs_abi.json");
    let all: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let exported = exported(library);
    let mut wanted = BTreeSet::new();
    for one in &all {
        if one["kind"] != "exported_symbols" || one["input"]["library"] != library {
            continue;
        }
        for (node, symbols) in one["decoded"].as_object().expect("nodes") {
            for symbol in symbols.as_array().expect("symbols") {
                let name = symbol["symbol"].as_str().expect("name");
                let both = [format!("{name}@@{node}"), format!("{name}@{node}")];
                let found = both.iter().any(|one| exported.contains(one));
                assert!(found, "{name} of {node} is missing in {library}");
                wanted.insert(format!("{name}@{node}"));
            }
        }
    }
    // Versions themselves, and what one library of ringside takes from the other.
    let is_ours = |symbol: &String| {
        ["IBVERBS_", "RDMACM_", "RINGSIDE_"]
            .iter()
            .any(|one| symbol.starts_with(one))
            || symbol.ends_with("@RINGSIDE_PRIVATE")
            || OWN.contains(&symbol.as_str())
    };
    for own in OWN {
        let is_here = exported.contains(own);
        assert_eq!(is_here, library == "libibverbs.so.1", "{own}");
    }
    for symbol in exported.iter().filter(|symbol| !is_ours(symbol)) {
        assert!(
            wanted.contains(&symbol.replace("@@", "@")),
            "{symbol} is not rdma-core's"
        );
    }
    wanted.len()
}

#[test]
fn every_symbol_of_rdma_core_is_there_with_its_version_and_nothing_else() {
    assert!(compare("libibverbs.so.1") > 280);
    assert_eq!(compare("librdmacm.so.1"), 74);
}

/// Compiles a program of this folder against the headers; nothing if they are missing.
fn compiled(name: &str) -> Option<String> {
    if !Path::new("/usr/include/rdma/rsocket.h").exists() {
        is_missing("librdmacm-dev");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let program = library().join(name);
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]);
    compile.arg(source).arg("-o").arg(&program);
    compile.args(["-lrdmacm", "-libverbs"]);
    succeeded(&compile.output().expect("cc"));
    Some(program.to_str().expect("a path").to_owned())
}

/// Compiles a program and runs it, which says "ok".
fn says_ok(name: &str, arguments: &[&str]) {
    if let Some(program) = compiled(name) {
        let output = run(&program, arguments).expect("the program");
        assert_eq!(succeeded(&output), "ok\n");
    }
}

#[test]
fn what_the_kernel_refuses_is_refused() {
    says_ok("strict", &[]);
}

#[test]
fn threads_are_cancelled_where_calls_sleep() {
    says_ok("cancel", &[]);
}

#[test]
fn threads_are_cancelled_in_no_call_that_does_not_sleep() {
    says_ok("pending", &[]);
}

#[test]
fn a_child_of_a_fork_is_refused_its_parents_objects_and_leaves_their_events() {
    says_ok("children", &[]);
}

#[test]
fn a_child_of_a_fork_opens_the_device_for_itself() {
    for before in [
        "list",
        "context",
        "channel",
        "unused",
        "addresses",
        "socket",
    ] {
        says_ok("daemon", &[before]);
    }
}

#[test]
fn programs_that_change_what_is_around_them_use_the_device_as_before() {
    says_ok("surroundings", &[]);
}

#[test]
fn eight_threads_post_to_one_queue_pair_with_a_shared_receive_queue() {
    says_ok("shared", &[]);
}

#[test]
fn requests_and_their_lists_lie_at_any_address() {
    says_ok("packed", &[]);
}

#[test]
fn a_completion_queue_that_overflows_reports_it_and_every_request_completes() {
    says_ok("overflow", &[]);
}

#[test]
fn a_shared_receive_queue_gives_its_only_queue_pair_every_receive() {
    says_ok("sole", &[]);
}

#[test]
fn queue_pairs_with_one_shared_receive_queue_use_every_receive() {
    says_ok_under_valgrind("copied");
}

#[test]
fn one_completion_queue_serves_several_shared_receive_queues() {
    says_ok_under_valgrind("feeds");
}

#[test]
fn a_queue_pair_lets_its_peer_do_what_its_access_flags_say() {
    says_ok("rights", &[]);
}

/// Compiles a program, and runs it with and without valgrind's checks of memory.
fn says_ok_under_valgrind(name: &str) {
    if let Some(program) = compiled(name) {
        runs_with_and_without_valgrind(&program, &[]);
    }
}

/// Runs a program, and once more under valgrind's checks of memory.
fn runs_with_and_without_valgrind(program: &str, arguments: &[&str]) {
    let plain = run(program, arguments).expect("the program");
    assert_eq!(succeeded(&plain), "ok\n");
    // valgrind runs one thread at a time; without fair scheduling, a poll loop keeps the model from
    // running.
    let mut all = vec!["-q", "--fair-sched=try", "--error-exitcode=9"];
    all.extend(["--leak-check=no", program]);
    all.extend(arguments);
    match run("valgrind", &all) {
        Some(checked) => assert_eq!(succeeded(&checked), "ok\n"),
        None => is_missing("valgrind"),
    }
}

#[test]
fn a_program_built_against_the_headers_runs_on_memory_of_its_own() {
    says_ok_under_valgrind("loopback");
}

#[test]
fn each_state_keeps_what_was_set_and_reset_begins_again() {
    says_ok("states", &[]);
}

#[test]
fn a_queue_pair_that_stops_sending_keeps_what_is_posted_until_it_sends_again() {
    says_ok("drained", &[]);
}

#[test]
fn a_queue_pair_joins_groups_in_any_state_and_keeps_them_through_a_reset() {
    says_ok("groups", &[]);
}

#[test]
fn windows_are_bound_regions_replaced_and_queues_hold_what_they_say() {
    says_ok_under_valgrind("windows");
}

#[test]
fn each_fault_has_its_status_at_both_ends() {
    says_ok("faults", &[]);
}

#[test]
fn wrong_arguments_are_refused_as_the_manual_pages_say() {
    says_ok_under_valgrind("refused");
}

#[test]
fn a_model_has_objects_for_a_thousand_connections() {
    says_ok("many", &[]);
}

#[test]
fn calls_that_the_documents_list_as_refused_are_refused() {
    says_ok("unsupported", &[]);
}

/// Operations that Rust programs do not have, and C programs do.
const OF_C_PROGRAMS: [&str; 3] = [
    "alloc_td",
    "dealloc_td",
    // the answer is that there is no order
    "query_qp_data_in_order",
];

#[test]
fn each_operation_that_the_guide_lists_as_refused_is_called() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("../facade/guide/verbs.md")).expect("a table");
    let called = std::fs::read_to_string(root.join("tests/unsupported.c")).expect("a program");
    let refused: Vec<&str> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | refused |"))
        .map(|(operation, _)| operation)
        .collect();
    assert!(refused.len() > 30, "{refused:?}");
    for operation in refused {
        let is_here = OF_C_PROGRAMS.contains(&operation);
        let function = match operation {
            "query_rt_values" => "query_rt_values_ex",
            other => other,
        };
        let is_called = called.contains(&format!("ibv_{function}("));
        assert!(is_here || is_called, "{operation} is not called");
    }
}

#[test]
fn endpoints_share_the_receives_of_their_ids() {
    says_ok("endpoints", &[]);
}

#[test]
fn calls_for_an_id_that_is_being_destroyed_fail() {
    says_ok_under_valgrind("destroyed");
}

#[test]
fn to_leave_a_group_waits_for_the_acknowledgement_of_joining() {
    says_ok("members", &[]);
}

#[test]
fn an_accept_that_fails_refuses_its_request() {
    says_ok("accepting", &["refused"]);
}

#[test]
fn requests_that_were_read_do_not_count_for_the_backlog() {
    says_ok("accepting", &["backlog"]);
}

#[test]
fn sockets_wait_for_descriptors_as_other_sockets_do() {
    says_ok("descriptors", &[]);
}

#[test]
fn buffers_of_the_library_are_registered_in_the_newest_form() {
    says_ok_under_valgrind("buffers");
}

#[test]
fn ports_are_bound_as_linux_binds_them() {
    says_ok_under_valgrind("listeners");
}

#[test]
fn unread_events_leave_nothing_behind() {
    says_ok_under_valgrind("unread");
}

#[test]
fn a_closed_context_leaves_nothing_that_the_device_uses() {
    if let Some(program) = compiled("closed") {
        // More contexts than the device has queue pairs.
        let plain = run(&program, &["600"]).expect("the program");
        assert_eq!(succeeded(&plain), "ok\n");
        runs_with_and_without_valgrind(&program, &["10"]);
    }
}

#[test]
fn no_completion_event_is_lost_to_programs_that_arm_often() {
    says_ok("events", &[]);
}

#[test]
fn completion_queues_report_to_the_vectors_that_programs_choose() {
    let Some(program) = compiled("vectors") else {
        return;
    };
    // Without a configuration there is a vector for each core.
    let cores = std::thread::available_parallelism().expect("cores").get();
    let output = run(&program, &[&cores.min(32).to_string()]).expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
    let config = library().join("vectors.toml");
    for vectors in ["1", "4"] {
        let text = format!("[rdma]\nevent_queues = {vectors}\n");
        std::fs::write(&config, text).expect("a file");
        let variables = [("RINGSIDE_CONFIG", config.as_os_str())];
        let output = run_with(&variables, &program, &[vectors]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n", "{vectors} vectors");
    }
}

/// Runs a program on a device with these addresses; it says "ok".
fn says_ok_with(name: &str, addresses: &[&str]) {
    let Some(program) = compiled(name) else {
        return;
    };
    let config = library().join(format!("{name}.toml"));
    let text = format!("[network]\naddresses = {addresses:?}\n");
    std::fs::write(&config, text).expect("a file");
    let variables = [("RINGSIDE_CONFIG", config.as_os_str())];
    let output = run_with(&variables, &program, &[]).expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

#[test]
fn peers_are_reached_from_the_address_of_their_network() {
    says_ok_with("networks", &["10.1.0.1/24", "10.2.0.1/24"]);
}

#[test]
fn the_index_of_an_address_chooses_its_vlan() {
    says_ok_with("vlans", &["10.1.0.1/24@7", "10.1.0.1/24@8", "10.3.0.1/24"]);
}

#[test]
fn requests_posted_while_their_queue_pair_fails_complete_in_order() {
    says_ok("order", &[]);
}

#[test]
fn threads_that_wait_on_a_destroyed_channel_stay_asleep() {
    says_ok("waiting", &[]);
}

#[test]
fn requests_are_built_and_completions_read_call_by_call() {
    if let Some(program) = compiled("extended") {
        runs_with_and_without_valgrind(&program, &[]);
        let in_thread_domain = run(&program, &["thread-domain"]).expect("the program");
        assert_eq!(succeeded(&in_thread_domain), "ok\n");
    }
}

#[test]
fn two_sockets_of_one_process_stream_peek_map_and_end() {
    says_ok("sockets", &["both", "10.0.0.1"]);
}

#[test]
fn requests_and_their_ids_are_as_linux_has_them() {
    if let Some(program) = compiled("requests") {
        runs_with_and_without_valgrind(&program, &["192.0.2.1"]);
    }
}

#[test]
fn one_of_two_threads_that_call_the_same_of_an_id_at_once_succeeds() {
    if let Some(program) = compiled("races") {
        runs_with_and_without_valgrind(&program, &["10.0.0.1"]);
    }
}

#[test]
fn programs_may_do_with_ids_what_rdma_core_lets_them() {
    says_ok("habits", &["10.0.0.99"]);
}

#[test]
fn a_program_that_polls_once_for_each_event_gets_all() {
    says_ok("rearmed", &[]);
}

#[test]
fn each_event_stands_for_one_completion_wherever_it_comes_from() {
    says_ok("counted", &[]);
    if let Some(program) = compiled("counted") {
        let single = [("RINGSIDE_SINGLE_THREAD", OsStr::new("1"))];
        let output = run_with(&single, &program, &[]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n");
    }
}

#[test]
fn options_of_sockets_are_those_of_rdma_core() {
    says_ok("options", &["10.0.0.1"]);
}

#[test]
fn vectors_of_many_pieces_go_as_one_transfer() {
    says_ok("gathered", &["10.0.0.1"]);
}

#[test]
fn peers_that_do_not_answer_do_not_hold_the_program() {
    if let Some(program) = compiled("resolving") {
        runs_with_and_without_valgrind(&program, &["10.0.0.1", "10.0.0.99", "192.0.2.1"]);
    }
}

/// Runs a program of random steps in two threads with three seeds, and with a fourth one under
/// valgrind.
fn random_steps(name: &str, steps: &str) {
    let Some(program) = compiled(name) else {
        return;
    };
    for seed in ["1", "2", "3"] {
        let output = run(&program, &[seed, steps, "2"]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n", "seed {seed}");
    }
    runs_with_and_without_valgrind(&program, &["4", "60", "1"]);
}

#[test]
fn random_traffic_completes_as_it_was_posted_through_errors_and_resets() {
    random_steps("traffic", "1500");
}

#[test]
fn random_batches_are_posted_whole_or_not_at_all() {
    random_steps("batches", "1000");
}

#[test]
fn random_datagrams_arrive_once_and_whole() {
    random_steps("ud", "800");
}

#[test]
fn random_datagrams_of_sockets_arrive_once_and_in_order() {
    let Some(program) = compiled("mail") else {
        return;
    };
    for seed in ["1", "2"] {
        let output = run(&program, &["10.0.0.1", seed, "600", "2"]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n", "seed {seed}");
    }
    runs_with_and_without_valgrind(&program, &["10.0.0.1", "3", "60", "1"]);
}

#[test]
fn random_completions_and_failures_give_the_events_that_were_requested() {
    random_steps("notices", "1000");
}

/// Runs a program of random connections with two seeds, and with a third one under valgrind.
fn random(name: &str, rounds: &str, checked_rounds: &str) {
    let Some(program) = compiled(name) else {
        return;
    };
    for seed in ["1", "2"] {
        let output = run(&program, &["10.0.0.1", seed, rounds]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n", "seed {seed}");
    }
    runs_with_and_without_valgrind(&program, &["10.0.0.1", "3", checked_rounds]);
}

#[test]
fn connections_end_in_any_order_on_either_side() {
    random("chaos", "100", "10");
}

#[test]
fn streams_end_in_any_order_on_either_side() {
    random("streams", "60", "8");
}

#[test]
fn signals_end_calls_of_sockets_as_the_program_wants_it() {
    says_ok("signals", &["10.0.0.1"]);
}

#[test]
fn calls_of_one_direction_of_a_socket_take_turns_that_end_as_other_waits_do() {
    says_ok("turns", &["10.0.0.1"]);
}

#[test]
fn ibv_devinfo_lists_the_device_with_its_addresses() {
    let Some(output) = run("ibv_devinfo", &["-v"]) else {
        is_missing("ibverbs-utils");
        return;
    };
    let text = succeeded(&output);
    for line in [
        "hca_id:\tringside0",
        "PORT_ACTIVE (4)",
        "RoCE v2",
        "link_layer:\t\tEthernet",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn without_a_device_the_list_is_empty() {
    let output = Command::new("timeout")
        .args(["-k", "5", "60", "ibv_devices"])
        .env("LD_LIBRARY_PATH", library())
        .env_remove("RINGSIDE_DEVICE")
        .output();
    let output = output.expect("timeout");
    if output.status.code() == Some(NOT_FOUND) {
        is_missing("ibverbs-utils");
        return;
    }
    assert!(!succeeded(&output).contains("ringside0"));
}
