//! Programs in surroundings of their own: kinds of memory, ways to load the library, to wait and to
//! start others.

use super::*;

/// Huge pages of 2 MiB that no process has.
fn free_huge_pages() -> u32 {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

#[test]
fn memory_of_every_kind_is_registered_read_and_written() {
    let Some(program) = compiled("kinds") else {
        return;
    };
    let before = free_huge_pages();
    let output = run(&program, &[library().to_str().expect("a path")]).expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
    let errors = String::from_utf8_lossy(&output.stderr);
    eprint!("{errors}");
    // Other programs may have taken the last ones meanwhile.
    let could_run = before.min(free_huge_pages()) >= 8;
    assert!(
        !could_run || !errors.contains("not run: huge pages"),
        "{errors}"
    );
}

/// More regions than the device has at once: each end leaves nothing behind.
#[test]
fn overlapping_regions_stand_for_themselves_and_many_are_made_in_turn() {
    says_ok("regions", &["20000"]);
}

#[test]
fn one_epoll_descriptor_waits_for_events_of_every_channel() {
    says_ok("epolled", &[]);
}

#[test]
fn interest_lists_hold_sockets_and_other_descriptors() {
    says_ok("repolled", &["10.0.0.1"]);
}

#[test]
fn threads_of_the_library_are_not_where_a_pinned_thread_opens_the_device() {
    says_ok("pinned", &[]);
}

#[test]
fn shared_receive_queues_work_in_programs_that_may_have_little_memory() {
    says_ok("little_room", &["addresses"]);
    says_ok("little_room", &["locked"]);
}

/// One that waits to send was kept out by the other one, for as long as that received nothing.
#[test]
fn a_thread_that_receives_does_not_keep_another_one_from_sending() {
    says_ok("beside", &["10.0.0.1"]);
}

/// The peer had not confirmed the connection yet.
#[test]
fn a_connection_that_was_just_accepted_ends_in_order() {
    says_ok("soon", &["10.0.0.1"]);
}

#[test]
fn connections_of_sockets_stand_before_they_are_accepted() {
    says_ok("unaccepted", &["10.0.0.1"]);
}

/// Compiles a plugin that uses verbs, and a program that is not linked with them; their paths.
fn compiled_apart(name: &str) -> Option<[String; 2]> {
    if !Path::new("/usr/include/rdma/rsocket.h").exists() {
        is_missing("librdmacm-dev");
        return None;
    }
    let made = [format!("plugin-of-{name}.so"), name.to_owned()].map(|name| library().join(name));
    let [plugin, program] = made.map(|path| path.to_str().expect("a path").to_owned());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let compile = |source: &str, flags: &[&str], made: &str, libraries: &[&str]| {
        let mut command = Command::new("cc");
        command.args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-pthread",
            "-D_GNU_SOURCE",
        ]);
        command.args(flags).arg(tests.join(source));
        command.args(["-o", made]).args(libraries);
        succeeded(&command.output().expect("cc"));
    };
    let shared = ["-shared", "-fPIC"];
    compile("plugin.c", &shared, &plugin, &["-libverbs"]);
    compile(&format!("{name}.c"), &[], &program, &["-ldl"]);
    Some([plugin, program])
}

#[test]
fn programs_load_and_unload_the_library_while_they_run() {
    if let Some([plugin, program]) = compiled_apart("late") {
        let output = run(&program, &[&plugin]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n");
    }
}

/// A new folder for the files of `ringside-files.so`, and that library.
fn new_files(name: &str) -> [PathBuf; 2] {
    let files = library().join(format!("files-of-{name}"));
    let _ = std::fs::remove_dir_all(&files);
    std::fs::create_dir(&files).expect("a folder");
    [files, library().join("ringside-files.so")]
}

#[test]
fn counters_are_those_of_now_also_if_a_plugin_brings_verbs_with_it() {
    let Some([plugin, program]) = compiled_apart("metered") else {
        return;
    };
    let [files, preload] = new_files("plugins");
    let variables = [
        ("LD_PRELOAD", preload.as_os_str()),
        ("RINGSIDE_FILES", files.as_os_str()),
    ];
    let output = run_with(&variables, &program, &[&plugin]).expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

#[test]
fn verbs_work_before_main_and_after_it() {
    let Some(program) = compiled("before_main") else {
        return;
    };
    let output = run(&program, &[]).expect("the program");
    assert_eq!(succeeded(&output), "ok\nok\n");
}

#[test]
fn programs_that_start_others_keep_their_device_and_leave_them_none_of_its_descriptors() {
    says_ok("forked", &[]);
}

#[test]
fn a_program_of_one_thread_for_each_object_needs_no_locks() {
    let promised = [("RINGSIDE_SINGLE_THREAD", OsStr::new("1"))];
    for (name, arguments) in [
        ("loopback", &[][..]),
        ("traffic", &["1", "1500", "1"]),
        // each thread has objects of its own
        ("traffic", &["2", "1500", "2"]),
        ("extended", &[]),
    ] {
        let Some(program) = compiled(name) else {
            return;
        };
        let output = run_with(&promised, &program, arguments).expect("the program");
        assert_eq!(succeeded(&output), "ok\n", "{name}");
    }
}

#[test]
fn what_programs_without_standard_descriptors_print_goes_nowhere() {
    says_ok("silent", &[]);
}

/// Programs look at the number alone, and at the first entry if it is not 0.
#[test]
fn a_device_that_is_not_there_is_not_listed() {
    let Some(program) = compiled("unlisted") else {
        return;
    };
    for (device, errno) in [
        ("vfio-user:/no/such.sock", "ENODEV"),
        ("model:99", "ENODEV"),
        ("ffff:ff:1f.7", "ENODEV"),
        ("e810", "EINVAL"),
    ] {
        let variables = [("RINGSIDE_DEVICE", OsStr::new(device))];
        let output = run_with(&variables, &program, &[errno]).expect("the program");
        assert_eq!(succeeded(&output), "ok\n", "{device}");
    }
}

/// Runs a program under `ringside-files.so`, which says "ok". The folder of its files is new.
fn says_ok_with_files(name: &str) {
    let Some(program) = compiled(name) else {
        return;
    };
    let [files, preload] = new_files(name);
    let variables = [
        ("LD_PRELOAD", preload.as_os_str()),
        ("RINGSIDE_FILES", files.as_os_str()),
        // Sockets, too, are answered for.
        ("RINGSIDE_LOOPBACK", OsStr::new("10.0.0.1,10.0.0.1,8")),
    ];
    let output = run_with(&variables, &program, &["again"]).expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

#[test]
fn files_of_the_device_are_found_by_fortified_functions_and_by_paths_with_detours() {
    says_ok_with_files("paths");
}

#[test]
fn a_program_that_clears_its_environment_keeps_its_device_and_files() {
    says_ok_with_files("cleared");
}
