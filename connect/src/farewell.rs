//! Messages that tell the peers of a killed process that its connections are over.
//!
//! A process that ends sends them itself. One that is killed cannot, so that its peers would wait
//! for messages until their programs give up; Linux, which outlives its processes, sends DREQ for
//! them. A process here keeps the messages ready in a file, [`FarewellFile`]. `ringside run` or the
//! model takes them out ([`take`]) and sends them ([`say`]), as a connection manager that is
//! dropped sends its own. If neither is there, the next user of the device sends each once.

mod rounds;

use crate::service::{Neighbour, Service};
use ringside_cm::mad::{MAD_BYTES, Message};
use ringside_cm::{Action, ConnectionId, Gid, Identity, Manager, OutgoingMad};
use ringside_config::LocalAddress;
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{Gid as RdmaGid, RdmaError};
use rounds::Rounds;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of an entry of the file.
const ENTRY_BYTES: usize = HEAD_BYTES + MAD_BYTES;
const HEAD_BYTES: usize = 64;
/// First byte of an entry with a message.
const USED: u8 = 1;
/// In place of the VLAN of an address without one.
const NO_VLAN: u16 = 0xFFFF;
/// Name of the file, in the folder that `ringside run` names in `RINGSIDE_FILES`.
pub const FILE_NAME: &str = "farewells";

/// Entries of a file: as many as a manager has connections.
const MAX_ENTRIES: usize = ringside_cm::MAX_CONNECTIONS;

/// Between two looks for answers.
const PAUSE: Duration = Duration::from_micros(200);

/// A message to a peer, with its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// the message
    pub message: OutgoingMad,
    /// MAC address of the peer, or of the router on the way to it
    pub mac: MacAddress,
}

impl Farewell {
    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        let mut rest = entry.as_mut_slice();
        let mut put = |bytes: &[u8]| {
            if let Some((place, after)) =
                std::mem::take(&mut rest).split_at_mut_checked(bytes.len())
            {
                place.copy_from_slice(bytes);
                rest = after;
            }
        };
        put(&[USED, self.message.traffic_class]);
        put(&self.message.vlan.unwrap_or(NO_VLAN).to_le_bytes());
        put(&self.mac);
        put(&[0; 22]);
        put(&self.message.source.0);
        put(&self.message.destination.0);
        put(self.message.payload.as_slice());
        entry
    }

    /// The message of an entry; nothing if the entry is free.
    fn decode(entry: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let part = |begin: usize| entry.get(begin..);
        let (source, rest) = part(32)?.split_first_chunk()?;
        let (destination, payload) = rest.split_first_chunk()?;
        let vlan = u16::from_le_bytes(*part(2)?.first_chunk()?);
        (entry.first() == Some(&USED)).then_some(Self {
            message: OutgoingMad {
                source: Gid(*source),
                vlan: Some(vlan).filter(|vlan| *vlan != NO_VLAN),
                destination: Gid(*destination),
                traffic_class: *entry.get(1)?,
                payload: Box::new(*payload.first_chunk()?),
            },
            mac: *part(4)?.first_chunk()?,
        })
    }
}

/// The messages of this process, in a file that is locked as long as the process lives.
#[derive(Debug)]
pub struct FarewellFile {
    file: File,
    path: PathBuf,
    /// the entry of each connection
    entries: HashMap<ConnectionId, usize>,
    free: Vec<usize>,
}

impl FarewellFile {
    /// Makes the file, without messages. Errors: another process uses it, or a file system error.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.try_lock()?;
        file.set_len(0)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            entries: HashMap::new(),
            free: Vec::new(),
        })
    }

    /// Keeps the message of a connection, in place of the one before; `None` if there is none.
    ///
    /// Errors: the file cannot be written; the peer may not be told.
    pub fn set(&mut self, id: ConnectionId, farewell: Option<&Farewell>) -> io::Result<()> {
        let Some(farewell) = farewell else {
            return self.clear(id);
        };
        let entry = match self.entries.get(&id) {
            Some(entry) => *entry,
            None => self.new_entry(id)?,
        };
        self.write(entry, &farewell.encode())
    }

    fn clear(&mut self, id: ConnectionId) -> io::Result<()> {
        let Some(entry) = self.entries.remove(&id) else {
            return Ok(());
        };
        self.free.push(entry);
        self.write(entry, &[0; ENTRY_BYTES])
    }

    fn new_entry(&mut self, id: ConnectionId) -> io::Result<usize> {
        let next = self.entries.len();
        let entry = match self.free.pop() {
            Some(entry) => entry,
            None if next < MAX_ENTRIES => next,
            None => return Err(io::ErrorKind::StorageFull.into()),
        };
        self.entries.insert(id, entry);
        Ok(entry)
    }

    fn write(&self, entry: usize, bytes: &[u8; ENTRY_BYTES]) -> io::Result<()> {
        self.file.write_all_at(bytes, (entry * ENTRY_BYTES) as u64)
    }

    /// Removes the file: the peers were told.
    ///
    /// Errors: as of removing a file.
    pub fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

/// Takes the messages of a process that was killed, and removes their file. None if there is no
/// such file, or if its process still lives.
///
/// Errors: the file cannot be read.
pub fn take(path: &Path) -> io::Result<Vec<Farewell>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if file.try_lock().is_err() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    file.by_ref()
        .take((MAX_ENTRIES * ENTRY_BYTES) as u64)
        .read_to_end(&mut bytes)?;
    std::fs::remove_file(path)?;
    let (entries, _) = bytes.as_chunks();
    Ok(entries.iter().filter_map(Farewell::decode).collect())
}

/// Sends messages by a device that has no other user, at most 128 at a time, and repeats those that
/// are not answered. Returns how many peers have not confirmed: their programs may do so later, or
/// never. If some of a few do not, it takes 350 ms; 5 s at most.
///
/// Errors: queue pair 1 cannot be made.
pub fn say(device: &Device, farewells: &[Farewell]) -> Result<usize, RdmaError> {
    let own = device.gids()?;
    for farewell in farewells {
        let (address, vlan) = (farewell.message.source.address(), farewell.message.vlan);
        let is_here = |gid: &RdmaGid| gid.address.address == address && gid.address.vlan == vlan;
        if !own.iter().any(is_here) {
            // An address that the process had added. The second connection from it finds it there.
            let added = LocalAddress {
                vlan,
                ..LocalAddress::new(address, if address.is_ipv4() { 32 } else { 128 })
            };
            let _ = device.add_address(added);
        }
    }
    let mut service = Service::open(device)?;
    let way = |one: &Farewell| (one.message.destination.address(), one.message.vlan);
    let macs: HashMap<_, _> = farewells.iter().map(|one| (way(one), one.mac)).collect();
    let messages = farewells.iter().map(|one| one.message.clone());
    Ok(tell(&mut service, messages, &|address, vlan| {
        macs.get(&(address, vlan)).copied().into()
    }))
}

/// Sends the messages that tell peers of the end of connections, at most 128 at a time, and repeats
/// DREQs without an answer, after 50 and 100 ms; the last wait for one takes 200 ms. Returns how
/// many peers have not confirmed.
///
/// It ends 1 s after the last answer or the last message that left for the first time, and after 5
/// s in all; at once if the device fails or is shut down, or if queue pair 1 is lost. If no peer
/// confirms, 12,800 messages leave in that time.
///
/// It also confirms DREQs of peers, each of which counts as an answer for its connection. Other
/// messages of peers are dropped. Of several MAC addresses for one address the last one counts.
pub(crate) fn tell(
    service: &mut Service,
    messages: impl IntoIterator<Item = OutgoingMad>,
    neighbour: &Neighbour<'_>,
) -> usize {
    let mut rounds = Rounds::new(Instant::now(), messages);
    let mut node = node_without_connections(service);
    loop {
        let now = Instant::now();
        for message in rounds.due(now, service.room()) {
            service.send(message, neighbour);
        }
        let has_arrived = collect(service, &mut node, |id| rounds.confirm(now, id));
        while let Some(action) = node.next_action() {
            if let Action::Send(answer) = action {
                service.send(answer, neighbour);
            }
        }
        // Those for which there was no room leave as others have left.
        let waits = service.retry(neighbour) || service.is_sending();
        let is_over = rounds.is_over() && !waits;
        if service.is_lost() {
            service.give_up();
            return rounds.left();
        }
        if is_over || rounds.is_late(now) || service.is_out() {
            return rounds.left();
        }
        if !has_arrived {
            std::thread::sleep(PAUSE);
        }
    }
}

/// A connection manager for the addresses of a device that confirms the end of any connection.
fn node_without_connections(service: &Service) -> Manager {
    // It makes no connection, so that no peer learns of the identity.
    let mut node = Manager::new(Identity::of(1, 1));
    for gid in service.domain().gids() {
        node.add_address(gid.address.address, gid.address.vlan);
    }
    node
}

/// Reads which connections the peers have confirmed to be over, and which ones they end themselves.
/// True if a message has arrived.
fn collect(service: &mut Service, node: &mut Manager, mut confirmed: impl FnMut(u32)) -> bool {
    let mut has_arrived = false;
    service.poll(|arrived| {
        has_arrived = true;
        match arrived.mad().map(|mad| mad.message) {
            Ok(Message::DisconnectReply(reply)) => confirmed(reply.remote_comm_id),
            Ok(Message::Disconnect(request)) => {
                // It ends the connection as well, and may be gone before it answers.
                confirmed(request.remote_comm_id);
                if let Err(reason) = node.receive(Duration::ZERO, arrived) {
                    tracing::debug!(%reason, "a datagram for queue pair 1 was dropped");
                }
            }
            _ => {}
        }
    });
    has_arrived
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_cm::{Connect, PortSpace, ServiceId};

    fn farewell(last: u8) -> Farewell {
        Farewell {
            message: OutgoingMad {
                source: Gid([1; 16]),
                vlan: (last > 5).then_some(100),
                destination: Gid([last; 16]),
                traffic_class: 0xA5,
                payload: Box::new([last; MAD_BYTES]),
            },
            mac: [2, 0, 0, 0, 0, last],
        }
    }

    /// Numbers of connections, which only a manager gives out.
    fn ids() -> Vec<ConnectionId> {
        let mut manager = Manager::new(Identity::of(1, 2));
        let own = "10.0.0.1".parse().expect("an address");
        manager.add_address(own, None);
        let connect = Connect {
            local: own,
            vlan: None,
            remote: "10.0.0.2".parse().expect("an address"),
            service: ServiceId::of(PortSpace::Tcp, 7),
            source_port: 1,
            queue_pair: 2,
            shared_receive_queue: false,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            path_mtu: 3,
            traffic_class: 0,
            ack_timeout: None,
            private_data: Vec::new(),
        };
        let mut make = |_| manager.connect(Duration::ZERO, &connect).expect("a number");
        (0..4).map(&mut make).collect()
    }

    #[test]
    fn messages_of_live_connections_are_found_once_the_process_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        assert_eq!(take(&path).expect("no file"), []);
        let mut file = FarewellFile::create(&path).expect("a file");
        let ids = ids();
        for (last, id) in ids.iter().enumerate() {
            file.set(*id, Some(&farewell(last as u8))).expect("written");
        }
        file.set(ids[1], None).expect("cleared");
        file.set(ids[1], None).expect("nothing to clear");
        file.set(ids[2], None).expect("cleared");
        // The first free entry, and another message in place of the one before.
        file.set(ids[1], Some(&farewell(7))).expect("written");
        file.set(ids[3], Some(&farewell(8))).expect("written");
        assert_eq!(take(&path).expect("its process lives"), []);
        assert!(FarewellFile::create(&path).is_err(), "it has an owner");
        assert!(path.exists());
        drop(file);
        let mut left = take(&path).expect("a file");
        left.sort_by_key(|one| one.mac);
        assert_eq!(left, [farewell(0), farewell(7), farewell(8)]);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_ends_by_itself_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        let mut file = FarewellFile::create(&path).expect("a file");
        file.set(ids()[0], Some(&farewell(1))).expect("written");
        file.remove().expect("removed");
        drop(file);
        assert_eq!(take(&path).expect("no file"), []);
    }

    #[test]
    fn a_file_of_nonsense_gives_no_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        for length in [0, 1, ENTRY_BYTES - 1, ENTRY_BYTES, 3 * ENTRY_BYTES - 1] {
            std::fs::write(&path, vec![0xEE; length]).expect("written");
            assert_eq!(take(&path).expect("a file"), [], "{length}");
        }
    }
}
