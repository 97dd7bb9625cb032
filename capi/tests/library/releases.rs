//! Programs that were linked with other releases of rdma-core.

use super::*;

/// The symbols that `private.c` takes from a release, all in its version script.
fn stub(release: &str, folder: &Path) -> PathBuf {
    let public = [
        "ibv_get_device_list",
        "ibv_free_device_list",
        "ibv_open_device",
        "ibv_close_device",
    ];
    let registration = format!("verbs_register_driver_{release}");
    let private = ["ibv_query_gid_type", "ibv_cmd_dealloc_pd", &registration];
    let functions = public.iter().chain(&private);
    let mut source: String = functions
        .map(|name| format!("void {name}(void) {{}}\n"))
        .collect();
    source += "_Bool verbs_allow_disassociate_destroy;\n";
    let versions = format!(
        "IBVERBS_1.1 {{ global: {}; }};\nIBVERBS_PRIVATE_{release} {{ global: {}; \
         verbs_allow_disassociate_destroy; local: *; }};\n",
        public.join("; "),
        private.join("; "),
    );
    std::fs::write(folder.join("stub.c"), source).expect("a source");
    std::fs::write(folder.join("stub.map"), versions).expect("a version script");
    let made = folder.join("libibverbs.so.1");
    let linked = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"])
        .arg("-Wl,--version-script=stub.map")
        .args(["-o", "libibverbs.so.1", "stub.c"])
        .current_dir(folder)
        .output();
    succeeded(&linked.expect("cc"));
    made
}

/// Every symbol is bound at the start, so a missing one ends the program.
#[test]
fn programs_of_every_release_find_their_private_names() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        is_missing("libibverbs-dev");
        return;
    }
    for release in ["34", "57", "59", "64", "65"] {
        let folder = library().join(format!("release-{release}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let program = folder.join("private");
        let linked = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-Wl,-z,now"])
            .arg(format!("-DRELEASE={release}"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/private.c"))
            .arg("-o")
            .arg(&program)
            .arg(stub(release, &folder))
            .output();
        succeeded(&linked.expect("cc"));
        let output = run(program.to_str().expect("a path"), &[]);
        let output = output.expect("a program whose symbols are all there");
        assert_eq!(succeeded(&output), "ok\n", "release {release}");
    }
}
