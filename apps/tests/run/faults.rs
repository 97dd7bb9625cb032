//! Programs on models with faults. `capi/faults` has the whole table.

use super::harness::*;
use std::process::Output;
use std::sync::PoisonError;

/// Runs a program of `capi/tests` on a model with a fault. It has 50 s.
fn with(fault: &str, name: &str, arguments: &[&str]) -> Option<Output> {
    let folder = Folder::new();
    let program = compiled(name, folder.path())?;
    let flags = ["--port", "0", "--fault", fault];
    let started = run_with(
        folder.path(),
        &flags,
        &[&[program.as_str()], arguments].concat(),
    );
    let output = started.wait_with_output().expect("the program");
    assert!(!folder.pid_file().exists(), "{fault}: the model is left");
    Some(output)
}

#[test]
fn bytes_arrive_whole_under_each_fault_of_the_wire_and_under_all_at_once() {
    if !is_installed("rping") || !is_installed("ibv_rc_pingpong") {
        return;
    }
    let each = [
        "wire:drop 5000",
        "wire:duplicate 50000",
        "wire:reorder 20000 3 2",
        "wire:delay 20000 1 300",
        "wire:corrupt 5000",
    ];
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    for faults in each.iter().map(std::slice::from_ref).chain([&each[..]]) {
        let mut flags = vec!["--port", "0"];
        flags.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
        let folder = Folder::new();
        let rping = ["rping", "-a", "10.0.0.1", "-C", "20", "-S", "20000", "-V"];
        let mut server = run_with(folder.path(), &flags, &[&rping[..], &["-s"]].concat());
        let client = client_of(&mut server, has_succeeded, || {
            let flags = ["--port", "1"];
            run_with(folder.path(), &flags, &[&rping[..], &["-c"]].concat())
        });
        for output in [client, server.wait_with_output().expect("the server")] {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{faults:?}: {errors}");
        }
    }
}

#[test]
fn traffic_arrives_whole_in_spite_of_lost_interrupts_and_slow_commands() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    for fault in [
        "0:interrupts-lost 300000",
        "0:control-delayed 0xff 1000",
        "0:control-late 0xff 1000",
    ] {
        let Some(output) = with(fault, "traffic", &["1", "150", "1"]) else {
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{fault}: {errors}");
        assert_eq!(output.stdout, b"ok\n", "{fault}: {errors}");
    }
}

#[test]
fn programs_whose_device_fails_or_refuses_end_in_time_and_say_why() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    for fault in [
        "0:control-fails 0x00 1 1",
        "0:control-silent 0x0a",
        "0:control-garbled 0x03",
        "0:control-queue-creation-fails",
        "0:memory-at-most 1000000",
        "0:dma-refused",
        "0:function-dead",
    ] {
        let Some(output) = with(fault, "traffic", &["1", "150", "1"]) else {
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        // 124 is of `timeout`; a signal has no code, or one above 128
        let code = output.status.code();
        assert!(
            matches!(code, Some(1..124)),
            "{fault}: {:?}: {errors}",
            output.status
        );
        assert!(
            !errors.is_empty(),
            "{fault}: status {code:?} without a word"
        );
        assert!(!errors.contains("memcmp"), "{fault}: {errors}");
    }
}
