//! A wire of UDP datagrams, one datagram a frame, to a model on another host or in another
//! container: unprivileged. QEMU's `-netdev dgram` with addresses of type inet speaks it too.
//!
//! The socket is connected: the kernel drops what comes from any other address or port than the
//! peer's. Datagrams longer than the MTU of the path are cut: over IPv4 by the kernel or a router,
//! over IPv6 by the kernel, once a router has told it the MTU by ICMPv6. A datagram that is lost is
//! a frame that is lost.

use super::{Received, Sent, Wire};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;

/// The port of both ends, unless one is named.
pub const UDP_WIRE_PORT: u16 = 4795;
/// Wanted room for datagrams that were not read, bytes. The kernel may give less.
const RECEIVE_BYTES: usize = 4 << 20;

/// Reasons why a UDP wire is not available.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The peer's name has no address.
    #[error("{peer}: {error}; name the peer by its IP address")]
    NoAddress {
        /// The peer, as it was given.
        peer: String,
        /// The operating system's message.
        error: String,
    },
    /// The peer's address belongs to no single host.
    #[error("{peer}: no host has this address; name the one of the peer")]
    NotUnicast {
        /// The peer, as it was given.
        peer: IpAddr,
    },
    /// Both ends are the same.
    #[error("{address}: both ends of the wire; give this side another port, as in udp:PEER@:4796")]
    ToItself {
        /// The address and port.
        address: SocketAddr,
    },
    /// The own address cannot be used.
    #[error("{local}: {error}; {remedy}")]
    Bind {
        /// The address and port.
        local: SocketAddr,
        /// The operating system's message.
        error: String,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// The peer cannot be reached from this host.
    #[error("{peer}: {error}; {remedy}")]
    Unreachable {
        /// The address and port.
        peer: SocketAddr,
        /// The operating system's message.
        error: String,
        /// Advice for the user.
        remedy: &'static str,
    },
}

/// Both ends of a UDP wire, as text: `PEER[:PORT][@[LOCAL][:PORT]]`. A side without a port has
/// [`UDP_WIRE_PORT`]; without a local address, any.
///
/// ```
/// use ringside_server::ports::UdpEnds;
///
/// let ends: UdpEnds = "192.0.2.7".parse()?;
/// assert_eq!(ends.to_string(), "192.0.2.7:4795@:4795");
/// let ends: UdpEnds = "[2001:db8::7]:6000@:6001".parse()?;
/// assert_eq!(ends.to_string(), "[2001:db8::7]:6000@:6001");
/// # Ok::<(), ringside_server::ports::UdpEndsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpEnds {
    peer: String,
    peer_port: u16,
    local: Option<IpAddr>,
    local_port: u16,
}

/// A text that names no ends of a UDP wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no udp wire: PEER[:PORT][@[LOCAL][:PORT]] is wanted, such as 192.0.2.7 or [fd00::7]:4795@:4796"
)]
pub struct UdpEndsError(String);

/// Splits `ADDRESS[:PORT]`; an IPv6 address with a port is in brackets.
fn split(text: &str) -> Option<(&str, u16)> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(number) => Some((address, port(number)?)),
            None => rest.is_empty().then_some((address, UDP_WIRE_PORT)),
        };
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Some((text, UDP_WIRE_PORT)),
        Some((address, number)) => Some((address, port(number)?)),
        None => Some((text, UDP_WIRE_PORT)),
    }
}

impl FromStr for UdpEnds {
    type Err = UdpEndsError;

    fn from_str(text: &str) -> Result<Self, UdpEndsError> {
        let wrong = || UdpEndsError(text.to_owned());
        let (peer, own) = text.split_once('@').unwrap_or((text, ""));
        let (peer, peer_port) = split(peer).ok_or_else(wrong)?;
        let (local, local_port) = split(own).ok_or_else(wrong)?;
        let local = match local {
            "" => None,
            local => Some(local.parse().map_err(|_| wrong())?),
        };
        if peer.is_empty() || peer.contains('/') {
            return Err(wrong());
        }
        Ok(Self {
            peer: peer.to_owned(),
            peer_port,
            local,
            local_port,
        })
    }
}

impl std::fmt::Display for UdpEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.peer.contains(':') {
            true => write!(f, "[{}]:{}@", self.peer, self.peer_port)?,
            false => write!(f, "{}:{}@", self.peer, self.peer_port)?,
        }
        match self.local {
            Some(local) => write!(f, "{}", SocketAddr::new(local, self.local_port)),
            None => write!(f, ":{}", self.local_port),
        }
    }
}

/// True for an address that a single host can have.
fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast)
}

/// True for an address that is known on one link only, without the interface of that link.
const fn is_of_a_link(peer: SocketAddrV6) -> bool {
    peer.ip().is_unicast_link_local() && peer.scope_id() == 0
}

/// A wire of UDP datagrams; see the module.
#[derive(Debug)]
pub struct UdpWire {
    socket: UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
}

impl UdpWire {
    /// Binds the own end and connects it to the peer's, which need not exist yet.
    ///
    /// # Errors
    /// The peer has no address or no route, or the own end is in use.
    pub fn open(ends: &UdpEnds) -> Result<Self, UdpError> {
        let no_address = |error: &dyn std::fmt::Display| UdpError::NoAddress {
            peer: ends.peer.clone(),
            error: error.to_string(),
        };
        let fits = |peer: &SocketAddr| ends.local.is_none_or(|own| own.is_ipv4() == peer.is_ipv4());
        let found = (ends.peer.as_str(), ends.peer_port).to_socket_addrs();
        let peer = found.map_err(|error| no_address(&error))?.find(fits);
        let peer = peer.ok_or_else(|| no_address(&"it has no address of this family"))?;
        if !is_unicast(peer.ip()) {
            return Err(UdpError::NotUnicast { peer: peer.ip() });
        }
        let any = match peer {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = SocketAddr::new(ends.local.unwrap_or(any), ends.local_port);
        let bound = UdpSocket::bind(local).and_then(|socket| {
            socket.set_nonblocking(true)?;
            // A smaller buffer than wanted loses more frames in bursts, and works.
            let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES);
            if local.is_ipv4() {
                // Without the mark "don't fragment", routers cut what is longer than their next
                // link carries. With it they only say so, by ICMP that firewalls drop. A kernel
                // that does not have the option sends all that fits.
                let _ = sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT);
            }
            Ok(socket)
        });
        let socket = bound.map_err(|error| UdpError::Bind {
            local,
            error: error.to_string(),
            remedy: remedy(error.kind()),
        })?;
        let unreachable = |error: std::io::Error| UdpError::Unreachable {
            peer,
            error: error.to_string(),
            remedy: match peer {
                SocketAddr::V6(peer) if is_of_a_link(peer) => {
                    "name the interface behind it, as in fe80::7%eth0"
                }
                _ => "check the route to it",
            },
        };
        socket.connect(peer).map_err(unreachable)?;
        let local = socket.local_addr().map_err(unreachable)?;
        if local == peer {
            return Err(UdpError::ToItself { address: local });
        }
        Ok(Self {
            socket,
            local,
            peer,
        })
    }
}

impl Wire for UdpWire {
    fn name(&self) -> String {
        format!("udp {} to {}", self.local, self.peer)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        match self.socket.recv(buffer) {
            Ok(length) => Received::Frame(length),
            Err(error) => failed_read(&error),
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        let Err(error) = self.socket.send(frame) else {
            return Sent::Gone;
        };
        failed_write(&error)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Advice where the own end cannot be opened.
fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AddrInUse => "another process uses the port: choose one, as in udp:PEER@:4796",
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has the address behind @: name one that it has, or none"
        }
        ErrorKind::PermissionDenied => "choose a port from 1024 on, as in udp:PEER@:4796",
        _ => "choose another address or port, as in udp:PEER@:4796",
    }
}

/// The meaning of a failed read. A socket that is connected also returns what the network said of a
/// frame that was sent, such as a firewall's refusal: networks and firewalls come and go, and the
/// wire stays. Only a descriptor that is no socket any more never returns a frame.
fn failed_read(error: &std::io::Error) -> Received {
    match Errno::from_io_error(error) {
        Some(Errno::BADF | Errno::NOTSOCK | Errno::FAULT) => Received::Failed,
        _ => Received::Nothing,
    }
}

/// The meaning of a failed write: its own, or what the network said of an earlier frame.
fn failed_write(error: &std::io::Error) -> Sent {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN | Errno::INTR) => Sent::NoRoom,
        Some(
            Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::NONET
            // A firewall refuses, here or at the peer.
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NOPROTOOPT,
        ) => Sent::NoPeer,
        _ => Sent::Refused,
    }
}

#[cfg(test)]
mod tests;
