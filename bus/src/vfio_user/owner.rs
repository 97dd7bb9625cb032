//! The process that has a function, as its server names it to the clients that it refuses.
//!
//! A refusal of vfio-user is an errno. This server adds one line to it, `owner PID NAME`, which
//! other clients ignore: a refused client can then say which process to end.
#![allow(unsafe_code)] // one question to the kernel about a socket

use crate::sysfs::Holder;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The first word of the line.
const WORD: &str = "owner ";

/// The longest line that is read; the kernel's names of processes have 15 bytes.
const MAX_BYTES: usize = 64;

/// Returns the process that connected the other end of a Unix socket. None if the kernel does not
/// show it here, such as in another namespace of process ids.
#[must_use]
pub fn peer(socket: BorrowedFd<'_>) -> Option<Holder> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: 1. the descriptor is open: it is borrowed.
    //         2. in bounds: the kernel writes at most `length` bytes, which is the size of `found`.
    //         3. any bytes are a `ucred`: it has three integers.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    let pid = u32::try_from(found.pid).ok();
    let pid = pid.filter(|pid| asked == 0 && *pid > 0)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = printable(name.trim());
    Some(Holder { pid, name })
}

/// Returns the line for a refusal.
#[must_use]
pub fn encode(owner: &Holder) -> Vec<u8> {
    let mut line = format!("{WORD}{} {}", owner.pid, printable(&owner.name)).into_bytes();
    line.truncate(MAX_BYTES);
    line
}

/// Reads the line of a refusal. None if the server sent none, or something else.
#[must_use]
pub fn decode(line: &[u8]) -> Option<Holder> {
    let line = std::str::from_utf8(line.get(..line.len().min(MAX_BYTES))?).ok()?;
    let (pid, name) = line.strip_prefix(WORD)?.split_once(' ')?;
    let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
    let name = printable(name);
    Some(Holder { pid, name })
}

/// The text without what a terminal could take for a command.
fn printable(name: &str) -> String {
    let plain = |one: char| {
        if one.is_ascii_graphic() || one == ' ' {
            one
        } else {
            '?'
        }
    };
    let name: String = name.chars().map(plain).collect();
    if name.is_empty() { "?".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_process_at_the_other_end_of_a_socket_is_named_in_a_refusal() {
        let (one, _other) = UnixStream::pair().expect("sockets");
        let owner = peer(one.as_fd()).expect("this process");
        assert_eq!(owner.pid, std::process::id());
        assert_ne!(owner.name, "?");
        assert_eq!(decode(&encode(&owner)), Some(owner));
    }

    #[test]
    fn a_name_cannot_command_a_terminal_and_a_line_has_a_limit() {
        let name = "\u{1b}[2J\nowner".to_owned() + &"x".repeat(100);
        let line = encode(&Holder { pid: 7, name });
        assert_eq!(line.len(), MAX_BYTES);
        let read = decode(b"owner 7 \x1b[2J\n").expect("an owner");
        assert_eq!(read.to_string(), "?[2J? (pid 7)");
    }

    #[test]
    fn lines_of_other_servers_name_no_owner() {
        let long = [b'9'; 1000];
        for line in [
            b"".as_slice(),
            b"owner",
            b"owner 7",
            b"owner 0 x",
            b"owner -1 x",
            b"owner \xff x",
            b"{\"owner\":1}",
            &long,
        ] {
            assert_eq!(decode(line), None, "{line:?}");
        }
    }
}
