//! Programs that change what is around them, and use the device afterwards.

use crate::harness::*;

/// Compiles a program of `capi/tests` and runs it alone: it says "ok", and leaves the model without
/// a breach of the interface.
fn says_ok(name: &str) {
    let folder = Folder::new();
    let Some(program) = compiled(name, folder.path()) else {
        return;
    };
    let began = start(folder.path(), "0", &[&program]);
    let output = began.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

#[test]
fn programs_that_close_descriptors_drop_rights_or_have_small_stacks_use_the_device() {
    says_ok("surroundings");
}

/// By a socket, other descriptors are opened than with a model of the program's own.
#[test]
fn what_programs_without_standard_descriptors_print_goes_nowhere() {
    says_ok("silent");
}

/// The model counts each use of a queue that is gone, and the command would end with 4.
#[test]
fn programs_with_few_descriptors_are_refused_and_leave_the_device_as_it_was() {
    says_ok("few");
}
