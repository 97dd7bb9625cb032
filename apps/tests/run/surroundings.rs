//! Programs that change what is around them, and use the device afterwards.

use crate::harness::*;

#[test]
fn programs_that_close_descriptors_drop_rights_or_have_small_stacks_use_the_device() {
    let folder = Folder::new();
    let Some(program) = compiled("surroundings", folder.path()) else {
        return;
    };
    let began = start(folder.path(), "0", &[&program]);
    let output = began.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

/// By a socket, other descriptors are opened than with a model of the program's own.
#[test]
fn what_programs_without_standard_descriptors_print_goes_nowhere() {
    let folder = Folder::new();
    let Some(program) = compiled("silent", folder.path()) else {
        return;
    };
    let began = start(folder.path(), "0", &[&program]);
    let output = began.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

/// The model counts each use of a queue that is gone, and the command would end with 4.
#[test]
fn programs_with_few_descriptors_are_refused_and_leave_the_device_as_it_was() {
    let folder = Folder::new();
    let Some(program) = compiled("few", folder.path()) else {
        return;
    };
    let began = start(folder.path(), "0", &[&program]);
    let output = began.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}
