//! Programs and their memory: unmapped while it is registered, and watched by the address
//! sanitizer.

use super::harness::*;
use std::process::{Command, Output};
use std::sync::PoisonError;

/// Opens the device, connects two queue pairs with each other and writes to a region that was
/// unmapped.
const UNMAPPED: &str = r#"
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define DEMAND(condition) do { if (!(condition)) { perror(#condition); return 1; } } while (0)

static int connect_to(struct ibv_qp *qp, struct ibv_qp *peer, const union ibv_gid *gid) {
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_qp_attr begin = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
    DEMAND(!ibv_modify_qp(qp, &begin, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1,
            .grh = {.dgid = *gid, .sgid_index = 1, .hop_limit = 64}}};
    DEMAND(!ibv_modify_qp(qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .max_rd_atomic = 1};
    DEMAND(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    return 0;
}

int main(void) {
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    DEMAND(list && count == 1);
    struct ibv_context *device = ibv_open_device(list[0]);
    DEMAND(device);
    struct ibv_pd *domain = ibv_alloc_pd(device);
    struct ibv_cq *queue = ibv_create_cq(device, 16, NULL, NULL, 0);
    DEMAND(domain && queue);
    struct ibv_qp *pairs[2];
    for (int side = 0; side < 2; side++) {
        struct ibv_qp_init_attr wanted = {.send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
        DEMAND(pairs[side] = ibv_create_qp(domain, &wanted));
    }
    union ibv_gid gid;
    DEMAND(!ibv_query_gid(device, 1, 1, &gid));
    for (int side = 0; side < 2; side++)
        if (connect_to(pairs[side], pairs[1 - side], &gid)) return 1;
    void *memory[2];
    struct ibv_mr *regions[2];
    for (int side = 0; side < 2; side++) {
        memory[side] = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        DEMAND(memory[side] != MAP_FAILED);
        int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        DEMAND(regions[side] = ibv_reg_mr(domain, memory[side], 8192, rights));
    }
    DEMAND(!munmap(memory[1], 8192));
    struct ibv_sge piece = {.addr = (uintptr_t)memory[0], .length = 4096, .lkey = regions[0]->lkey};
    struct ibv_send_wr write = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)memory[1], .rkey = regions[1]->rkey}}, *bad;
    DEMAND(!ibv_post_send(pairs[0], &write, &bad));
    struct ibv_wc done;
    int polled;
    while ((polled = ibv_poll_cq(queue, 1, &done)) == 0) {}
    DEMAND(polled == 1);
    printf("status %d\n", done.status);
    return 0;
}
"#;

#[test]
fn a_write_to_a_region_that_was_unmapped_is_an_error_completion_and_no_failure_of_the_model() {
    let folder = Folder::new();
    let source = folder.path().join("unmapped.c");
    std::fs::write(&source, UNMAPPED).expect("a program");
    let Some(program) = compiled_with(source.to_str().expect("a path"), folder.path(), &[]) else {
        eprintln!("librdmacm-dev is not installed: not run");
        return;
    };
    let output = start(folder.path(), "0", &[&program]).wait_with_output();
    // IBV_WC_REM_ACCESS_ERR
    assert_eq!(succeeded(&output.expect("the program")), "status 10\n");
    assert!(!folder.pid_file().exists(), "the program ended the model");
}

/// Runs a program of `capi/tests` that was built with the address sanitizer. Nothing if the
/// sanitizer is missing, which only a machine that is not CI's may lack.
fn sanitized(name: &str, arguments: &[&str]) -> Option<Output> {
    let folder = Folder::new();
    let source = folder.path().join("probe.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a program");
    let mut probe = Command::new("cc");
    probe.args(["-fsanitize=address", "-o"]);
    probe.arg(folder.path().join("probe")).arg(&source);
    let has_sanitizer = probe.output().is_ok_and(|output| output.status.success());
    if !has_sanitizer {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "cc has no address sanitizer: .ci/run --tools");
        eprintln!("cc has no address sanitizer: not run");
        return None;
    }
    let source = format!("{}/../capi/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let flags = ["-fsanitize=address", "-g", "-Wno-use-after-free"];
    let Some(program) = compiled_with(&source, folder.path(), &flags) else {
        eprintln!("librdmacm-dev is not installed: not run");
        return None;
    };
    let started = start(
        folder.path(),
        "0",
        &[&[program.as_str()], arguments].concat(),
    );
    Some(started.wait_with_output().expect("the program"))
}

/// Real traffic, with every byte compared, all ends of an object's life, and nothing that is left:
/// the sanitizer looks for lost memory of the program, too.
#[test]
fn programs_with_the_address_sanitizer_move_data() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, arguments) in [
        ("loopback", &[][..]),
        ("traffic", &["1", "600", "2"]),
        ("extended", &[]),
        ("windows", &[]),
    ] {
        let Some(output) = sanitized(name, arguments) else {
            return;
        };
        assert_eq!(succeeded(&output), "ok\n", "{name}");
    }
}

/// The sanitizer sees what the program does with memory that the library gave it.
#[test]
fn the_address_sanitizer_reports_a_faulty_program_on_the_library() {
    let Some(output) = sanitized("freed", &[]) else {
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("heap-use-after-free"), "{errors}");
}

/// Runs a program on a model, with these options of `ringside run`.
fn alone(options: &[&str], program: &[&str]) {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let output = run_with(folder.path(), options, program).wait_with_output();
    assert_eq!(succeeded(&output.expect("the program")), "ok\n");
}

#[test]
fn registered_memory_is_moved_into_files_if_its_user_asks_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("moved", folder.path()) else {
        return;
    };
    alone(&[], &[&program, "stays"]);
    alone(&["--share-memory"], &[&program, "moved"]);
}

#[test]
fn data_move_to_and_from_shared_memory_of_every_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("kinds", folder.path()) else {
        return;
    };
    let place = folder.path().to_str().expect("a path");
    alone(&["--share-memory"], &[&program, place]);
}
