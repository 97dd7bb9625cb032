//! The guide's table of verbs has every operation of rdma-core 56 once, with a call or a reason.

use std::collections::BTreeMap;

/// The members of `verbs_context_ops` in rdma-core 56, `libibverbs/driver.h`.
const OPERATIONS: [&str; 76] = [
    "advise_mr",
    "alloc_dm",
    "alloc_mw",
    "alloc_null_mr",
    "alloc_parent_domain",
    "alloc_pd",
    "alloc_td",
    "async_event",
    "attach_counters_point_flow",
    "attach_mcast",
    "bind_mw",
    "close_xrcd",
    "cq_event",
    "create_ah",
    "create_counters",
    "create_cq",
    "create_cq_ex",
    "create_flow",
    "create_flow_action_esp",
    "create_qp",
    "create_qp_ex",
    "create_rwq_ind_table",
    "create_srq",
    "create_srq_ex",
    "create_wq",
    "dealloc_mw",
    "dealloc_pd",
    "dealloc_td",
    "dereg_mr",
    "destroy_ah",
    "destroy_counters",
    "destroy_cq",
    "destroy_flow",
    "destroy_flow_action",
    "destroy_qp",
    "destroy_rwq_ind_table",
    "destroy_srq",
    "destroy_wq",
    "detach_mcast",
    "free_context",
    "free_dm",
    "get_srq_num",
    "import_dm",
    "import_mr",
    "import_pd",
    "modify_cq",
    "modify_flow_action_esp",
    "modify_qp",
    "modify_qp_rate_limit",
    "modify_srq",
    "modify_wq",
    "open_qp",
    "open_xrcd",
    "poll_cq",
    "post_recv",
    "post_send",
    "post_srq_ops",
    "post_srq_recv",
    "query_device_ex",
    "query_ece",
    "query_port",
    "query_qp",
    "query_qp_data_in_order",
    "query_rt_values",
    "query_srq",
    "read_counters",
    "reg_dm_mr",
    "reg_dmabuf_mr",
    "reg_mr",
    "req_notify_cq",
    "rereg_mr",
    "resize_cq",
    "set_ece",
    "unimport_dm",
    "unimport_mr",
    "unimport_pd",
];

const TABLE: &str = include_str!("../guide/verbs.md");

/// The rows of the first table: operation, kind, text.
fn rows() -> Vec<[String; 3]> {
    let end = TABLE.find("\n# ").expect("a second part");
    let lines = TABLE.get(..end).expect("a boundary").lines();
    let cells = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        [(); 3].map(|()| cells.next().unwrap_or_default().to_owned())
    };
    lines
        .filter(|line| line.starts_with("| `"))
        .map(cells)
        .collect()
}

#[test]
fn each_operation_of_verbs_is_here_or_refused_with_a_reason() {
    let mut seen = BTreeMap::new();
    for [operation, kind, text] in rows() {
        let operation = operation.trim_matches('`').to_owned();
        assert!(
            ["here", "refused"].contains(&kind.as_str()),
            "{operation}: {kind}"
        );
        assert!(text.len() > 10, "{operation}: {text}");
        assert!(
            kind == "refused" || text.contains('`'),
            "{operation} names no call"
        );
        assert!(
            seen.insert(operation.clone(), kind).is_none(),
            "{operation} twice"
        );
    }
    let listed: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(listed, OPERATIONS);
}

/// Calls that the table names, also as what a refused one leaves, by the method's name: each is in
/// the sources of the driver, of its memory or of this crate. Refused operations have no call in
/// Rust; `capi/tests/unsupported.c` calls those of C programs.
#[test]
fn the_calls_that_the_table_names_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut sources = String::new();
    let mut folders = ["pmd", "facade", "bus"]
        .map(|one| format!("{root}/{one}/src"))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect(&folder) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path.display().to_string());
            } else {
                sources += &std::fs::read_to_string(&path).expect("text");
            }
        }
    }
    for [operation, _, text] in rows() {
        for call in text.split('`').skip(1).step_by(2) {
            let name = call.rsplit("::").next().expect("a name");
            let is_there = [
                format!("fn {name}("),
                format!("fn {name}<"),
                format!("struct {name}"),
                format!("\n    {name}("),
            ]
            .iter()
            .any(|form| sources.contains(form.as_str()));
            assert!(is_there, "{operation}: {call}");
        }
    }
}
