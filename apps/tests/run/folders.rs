//! Programs that name folders of their own for their libraries, as those of conda do.

use crate::harness::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A libibverbs that has no devices.
const EMPTY: &str = "void *ibv_get_device_list(int *count) { (void)count; return 0; }\n\
                     const char *ibv_get_device_name(void *one) { (void)one; return \"\"; }\n";
const VERSIONS: &str = "IBVERBS_1.1 { global: ibv_get_device_list; ibv_get_device_name; };\n";

fn compile(folder: &Path, words: &[&str]) {
    let mut command = Command::new("cc");
    let command = command.current_dir(folder).args(["-Wall", "-Werror"]);
    succeeded(&command.args(words).output().expect("cc"));
}

/// A program whose own folder has a libibverbs without devices.
fn program(folder: &Path, tags: &str) -> PathBuf {
    std::fs::write(folder.join("empty.c"), EMPTY).expect("a file");
    std::fs::write(folder.join("empty.map"), VERSIONS).expect("a file");
    let shared = ["-shared", "-fPIC", "-Wl,--version-script=empty.map"];
    let named = ["-Wl,-soname,libibverbs.so.1", "-o", "libibverbs.so.1"];
    compile(folder, &[&shared[..], &named, &["empty.c"]].concat());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/tests/named.c");
    let own = format!("-Wl,{tags},-rpath,{}", folder.display());
    let words = [source, "-o", "named", "libibverbs.so.1", &own];
    compile(folder, &words);
    folder.join("named")
}

/// The output of a program that `ringside run` starts.
fn said(folder: &Folder, program: &Path) -> String {
    let program = program.to_str().expect("a path");
    let output = start(folder.path(), "0", &[program]).wait_with_output();
    succeeded(&output.expect("the program"))
}

#[test]
fn programs_that_search_folders_of_their_own_first_find_the_device() {
    let folder = Folder::new();
    if compiled("named", folder.path()).is_none() {
        return;
    }
    let first = program(folder.path(), "--disable-new-dtags");
    // Such a program finds its own library, whatever `LD_LIBRARY_PATH` says.
    let alone = Command::new(&first)
        .env("LD_LIBRARY_PATH", libraries())
        .output();
    assert_eq!(succeeded(&alone.expect("the program")), "none\n");
    assert_eq!(said(&folder, &first), "ringside0 preloaded\n");
    let script = folder.path().join("script");
    std::fs::write(&script, format!("#!{}\n", first.display())).expect("a file");
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, rights).expect("rights");
    assert_eq!(said(&folder, &script), "ringside0 preloaded\n");
    // `DT_RUNPATH` comes after `LD_LIBRARY_PATH`: nothing more is preloaded.
    let later = program(folder.path(), "--enable-new-dtags");
    assert_eq!(said(&folder, &later), "ringside0\n");
}
