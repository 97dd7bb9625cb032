//! The library as programs are built against it: header, flags of pkg-config, links for the linker.

use super::*;

/// The folder of the libraries, laid out as `capi/build --prefix` installs them.
fn installed() -> PathBuf {
    let prefix = library().join("installed");
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("link");
    let mut linked = Command::new(link);
    linked.arg("--prefix").arg(archive()).arg(&prefix);
    succeeded(&linked.output().expect("cc"));
    prefix
}

/// Compiles a program with what pkg-config says, and nothing else. It finds the libraries by
/// itself.
#[test]
fn a_program_is_built_by_pkg_config_and_runs_on_the_library_that_it_names() {
    if !Path::new("/usr/include/rdma/rsocket.h").exists() {
        is_missing("librdmacm-dev");
        return;
    }
    let prefix = installed();
    for (place, folder) in [
        (library().to_owned(), library().to_owned()),
        (prefix.join("lib/pkgconfig"), prefix.join("lib/ringside")),
    ] {
        let asked = Command::new("pkg-config")
            .args(["--cflags", "--libs", "ringside"])
            .env("PKG_CONFIG_PATH", &place)
            .output();
        let Ok(asked) = asked else {
            is_missing("pkg-config");
            return;
        };
        let flags = succeeded(&asked);
        let program = folder.join("own");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/own.c");
        let compiled = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .output();
        succeeded(&compiled.expect("cc"));
        let output = Command::new("timeout")
            .args(["-k", "5", "100"])
            .arg(&program)
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .expect("timeout");
        assert_eq!(succeeded(&output), "ok\n", "{}", folder.display());
    }
}

/// A program that was built against these libraries finds every symbol in rdma-core's as well.
#[test]
fn a_program_that_was_linked_here_runs_on_rdma_core_too() {
    if compiled("traffic").is_none() {
        return;
    }
    let program = library().join("linked-here");
    let linked = Command::new("cc")
        .args(["-Wl,-z,now", "-pthread", "-L"])
        .arg(library())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traffic.c"))
        .arg("-o")
        .arg(&program)
        .args(["-lrdmacm", "-libverbs"])
        .output();
    succeeded(&linked.expect("cc"));
    // Without a folder of ours, the linker finds rdma-core's.
    let found = Command::new("ldd")
        .arg("-r")
        .arg(&program)
        .env_remove("LD_LIBRARY_PATH")
        .output();
    let found = found.expect("ldd");
    let text = succeeded(&found) + &String::from_utf8_lossy(&found.stderr);
    assert!(text.contains("/libibverbs.so.1 "), "{text}");
    let lacks = ["not found", "undefined", "no version"].map(|word| text.contains(word));
    assert_eq!(lacks, [false; 3], "{text}");
}
