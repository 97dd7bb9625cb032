//! Tests in namespaces of their own, where they may make network interfaces.

use std::process::Command;

/// Set in the copy of a test that runs in namespaces of its own.
const INSIDE: &str = "RINGSIDE_TEST_INSIDE_NAMESPACE";

/// Runs `ip` of iproute2 with the words of `line`, which must succeed.
pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.expect("iproute2 is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {line}: {told}");
}

/// Runs the test `name` of this program again in user and network namespaces of its own; true if
/// this is that copy, which does the work.
///
/// If no TAP interface can be made in a namespace, it prints the reason and returns false; with
/// `CI` set it panics.
#[must_use]
pub fn in_namespaces(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let probe = "ip tuntap add dev probe mode tap && unshare -n ip link";
    let allowed = Command::new("unshare")
        .args(["-Urn", "sh", "-c", probe])
        .output();
    let why = match allowed {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = why {
        // A machine that runs the required checks must support it.
        assert!(
            std::env::var_os("CI").is_none(),
            "no TAP interface can be made in a namespace here: {why}; install iproute2 and util-linux, \
             and allow user namespaces and /dev/net/tun"
        );
        eprintln!("SKIPPED: no TAP interface can be made in a namespace here: {why}");
        return false;
    }
    let this = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .arg("-Urn")
        .arg(this)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare ran before");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
