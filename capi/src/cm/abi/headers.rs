//! The structures of this library as a C program that the installed headers judge.

use crate::abi::layout_tests::{Layout, record_all, recorded};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The sources that define structures of the headers.
const SOURCES: [&str; 3] = [
    include_str!("../../abi.rs"),
    include_str!("../../abi/memory.rs"),
    include_str!("../abi.rs"),
];

/// The headers whose structures these are.
const HEADERS: [&str; 4] = [
    "infiniband/verbs.h",
    "infiniband/sa.h",
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
];

/// Structures and fields that came after rdma-core 44: headers may lack these, and no others.
const NEWER: [(&str, &str); 3] = [
    ("ibv_mr_init_attr", ""),
    ("ibv_qp_ex", "wr_flush"),
    ("ibv_port_attr", "active_speed_ex"),
];

/// The names of `pub struct`s that the headers define.
fn defined() -> Vec<&'static str> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let names = lines.filter_map(|line| line.strip_prefix("pub struct "));
    names
        .filter_map(|rest| rest.split([' ', '<', ';']).next())
        .collect()
}

/// A program whose assertions hold if the headers lay the structures out as this library does.
fn program(all: &[Layout], headers: &str) -> String {
    let mut text = String::from("#include <stddef.h>\n");
    for header in HEADERS {
        let _ = writeln!(text, "#include <{header}>");
    }
    for Layout { name, size, fields } in all {
        // ibv_gid is a union
        let kind = if name == "ibv_gid" { "union" } else { "struct" };
        if !headers.contains(&format!("{kind} {name} {{")) {
            assert!(
                NEWER.contains(&(name.as_str(), "")),
                "the headers have no {kind} {name}"
            );
            continue;
        }
        // Releases have put entries in front of this table: its places count from the end.
        let end = fields
            .iter()
            .find(|(field, _)| name == "verbs_context" && field == "context");
        let mut is_whole = end.is_none();
        for (field, offset) in fields {
            if let Some((_, end)) = end {
                let before = end - offset;
                let end = "offsetof(struct verbs_context, context)";
                let place = format!("{end} - offsetof(struct verbs_context, {field}) == {before}");
                let _ = writeln!(text, "_Static_assert({place}, \"{name}.{field}\");");
                continue;
            }
            let is_newer = NEWER.contains(&(name.as_str(), field.as_str()));
            if is_newer && !headers.contains(field.as_str()) {
                is_whole = false;
                continue;
            }
            let _ = writeln!(
                text,
                "_Static_assert(offsetof({kind} {name}, {field}) == {offset}, \"{name}.{field}\");"
            );
        }
        if is_whole {
            let assert = format!("sizeof({kind} {name}) == {size}");
            let _ = writeln!(text, "_Static_assert({assert}, \"size of {name}\");");
        }
    }
    text
}

/// Compiles a program; the compiler's words if it refuses.
fn compile(text: &str) -> Result<(), String> {
    let name = format!("ringside-layout-{}.c", std::process::id());
    let source = std::env::temp_dir().join(name);
    std::fs::write(&source, text).expect("a source");
    let compiled = Command::new("cc")
        .args(["-fsyntax-only", "-Werror"])
        .arg(&source)
        .output()
        .expect("cc");
    let _ = std::fs::remove_file(&source);
    let words = String::from_utf8_lossy(&compiled.stderr).into_owned();
    if compiled.status.success() {
        Ok(())
    } else {
        Err(words)
    }
}

#[test]
fn the_installed_headers_lay_every_structure_out_as_this_library_does() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "librdmacm-dev is not installed: .ci/run --tools");
        eprintln!("not run: librdmacm-dev is not installed");
        return;
    }
    record_all();
    super::tests::structures_of_the_connection_manager_have_the_layout_of_the_headers();
    let mut all = recorded();
    // The other tests may have checked some at the same time.
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all.dedup_by(|one, other| one.name == other.name);
    for name in defined() {
        let found = all.iter().any(|layout| layout.name == name);
        assert!(found, "no layout of {name} is checked");
    }
    let headers: String = HEADERS
        .iter()
        .map(|header| std::fs::read_to_string(Path::new("/usr/include").join(header)))
        .map(|text| text.expect("a header"))
        .collect();
    let text = program(&all, &headers);
    assert!(text.matches("_Static_assert").count() > 430, "{text}");
    compile(&text).expect("the layout of the headers");

    // The compiler notices a field that is elsewhere.
    let moved = text.replace(
        "offsetof(struct ibv_wc, byte_len) == 20",
        "offsetof(struct ibv_wc, byte_len) == 24",
    );
    assert_ne!(moved, text);
    assert!(
        compile(&moved)
            .expect_err("a wrong offset")
            .contains("ibv_wc.byte_len")
    );
}
