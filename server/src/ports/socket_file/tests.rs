use super::*;
use crate::ports::{DatagramError, DatagramWire};
use crate::vfio_user::{Server, ServerError, ServerSettings};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::mpsc;
use std::time::Duration;

fn made(path: &Path) -> Result<SocketFile, SocketPathError> {
    SocketFile::make(path, |_| Ok(())).map(|((), file)| file)
}

fn bound(kind: SocketType, path: &Path) -> rustix::fd::OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, kind, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

#[test]
fn a_live_socket_of_another_type_is_in_use_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (path, far) = (folder.path().join("live"), folder.path().join("far"));
    let live = UnixListener::bind(&path).unwrap();
    let refused = DatagramWire::bind(&path, &far).unwrap_err();
    assert!(
        matches!(&refused, DatagramError::Path(SocketPathError::InUse { .. })),
        "{refused}"
    );
    UnixStream::connect(&path).expect("it is still there");
    live.set_nonblocking(true).unwrap();
    live.accept().expect("that client");
    assert!(live.accept().is_err(), "no client but that one");
    drop(live);
    drop(DatagramWire::bind(&path, &far).expect("its process has ended"));

    let wire = UnixDatagram::bind(&path).unwrap();
    let refused = Server::bind(&ServerSettings::new(vec![path.clone()]));
    assert!(matches!(
        refused.map(|_| ()),
        Err(ServerError::Path(SocketPathError::InUse { .. }))
    ));
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"frame", &path).expect("it is still there");
    drop(wire);
}

#[test]
fn a_full_backlog_is_in_use_and_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let listener = bound(SocketType::STREAM, &path);
    rustix::net::listen(&listener, 0).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    // Clients until the next one would have to wait.
    let mut clients = Vec::new();
    let full = loop {
        let flags = SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let client = rustix::net::socket_with(family, kind, flags, None).unwrap();
        match rustix::net::connect(&client, &address) {
            Ok(()) if clients.len() < 100 => clients.push(client),
            outcome => break outcome,
        }
    };
    assert_eq!(full, Err(Errno::AGAIN));
    let (sender, receiver) = mpsc::channel();
    let settings = ServerSettings::new(vec![path]);
    std::thread::spawn(move || sender.send(Server::bind(&settings).map(|_| ())));
    let refused = receiver.recv_timeout(Duration::from_secs(60));
    assert!(matches!(
        refused.expect("it did not wait"),
        Err(ServerError::Path(SocketPathError::InUse { .. }))
    ));
}

#[test]
fn a_socket_that_does_not_listen_yet_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        let path = folder.path().join("bound");
        let socket = bound(kind, &path);
        let refused = made(&path).unwrap_err();
        assert!(
            matches!(refused, SocketPathError::InUse { .. }),
            "{refused}"
        );
        drop(socket);
        made(&path).expect("closed");
    }
}

#[test]
fn only_the_kernels_word_that_it_is_closed_lets_a_socket_be_removed() {
    assert_eq!(use_of(Err(Errno::CONNREFUSED)), Use::Ended);
    assert_eq!(use_of(Err(Errno::NOENT)), Use::Ended);
    for outcome in [Ok(()), Err(Errno::AGAIN), Err(Errno::PROTOTYPE)] {
        assert_eq!(use_of(outcome), Use::Held);
    }
    for error in [
        Errno::ACCESS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::PERM,
        Errno::NOMEM,
    ] {
        assert_eq!(use_of(Err(error)), Use::Unknown(error));
    }
}
