//! Queue pairs of a test that are connected by the connection manager.

use super::agreement::Test;
use crate::bench::pair::{Half, Side};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use ringside_connect::{Bond, ConnectionManager, Listener, Settings};
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{Connected, Endpoint, QueuePair};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Port of the service. Source: perftest's default.
const PORT: u16 = 18515;

/// Reads under way on a queue pair; each side lets its peer have as many.
pub(crate) const READS: u8 = 16;

/// MAC addresses of peers, or of the routers to them.
type Neighbours = Arc<Mutex<HashMap<IpAddr, MacAddress>>>;

/// The connection manager of a test, and its connections.
pub(super) struct Managed {
    // Order of fields is order of dropping: the manager tells the peers what it still has to.
    bonds: Vec<Bond>,
    listener: Option<Listener>,
    manager: ConnectionManager,
    neighbours: Neighbours,
    settings: Settings,
}

impl Managed {
    /// Starts the connection manager. The server listens before the client learns of it.
    pub(super) fn start(
        device: &Device,
        half: &Half<'_>,
        listens: bool,
        timeout: u8,
        test: &Test,
    ) -> Result<Self, Failure> {
        let neighbours = Neighbours::default();
        let known = Arc::clone(&neighbours);
        let manager = ConnectionManager::start(device, move |peer| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&peer.address).copied().into()
        });
        let manager = manager.map_err(Failure::operation)?;
        let own = half.endpoints().first().map(|endpoint| endpoint.address);
        let listener = match own {
            Some(own) if listens => {
                let backlog = test.queue_pairs as usize;
                let listener = manager.listen(SocketAddr::new(own, PORT), backlog);
                Some(listener.map_err(Failure::operation)?)
            }
            _ => None,
        };
        Ok(Self {
            bonds: Vec::new(),
            listener,
            manager,
            neighbours,
            settings: Settings {
                inbound_reads: READS,
                outbound_reads: READS,
                path_mtu: Some(test.mtu),
                acknowledge_timeout: Some(timeout_code(timeout)),
                ..Settings::default()
            },
        })
    }

    /// Connects queue pair n to the peer's queue pair n.
    pub(super) fn connect<'d>(
        &mut self,
        half: Half<'d>,
        peers: &[Endpoint],
        limit: Duration,
    ) -> Result<Side<'d>, Failure> {
        let mut known = self
            .neighbours
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.extend(peers.iter().map(|peer| (peer.address, peer.mac)));
        drop(known);
        half.connect_by(|index, pair| match self.listener.take() {
            Some(listener) => {
                let made = self.accept(&listener, index, pair, limit);
                self.listener = Some(listener);
                made
            }
            None => self.ask(peers, index, pair, limit),
        })
    }

    fn ask(
        &mut self,
        peers: &[Endpoint],
        index: u32,
        pair: QueuePair,
        limit: Duration,
    ) -> Result<QueuePair<Connected>, Failure> {
        let peer = peers.get(index as usize).context("a greeting is missing")?;
        let to = SocketAddr::new(peer.address, PORT);
        let settings = Settings {
            private_data: index.to_be_bytes().to_vec(),
            ..self.settings.clone()
        };
        let made = self.manager.connect(pair, to, &settings, limit);
        let made = made.map_err(Failure::operation)?;
        self.bonds.push(made.bond);
        Ok(made.queue_pair)
    }

    fn accept(
        &mut self,
        listener: &Listener,
        index: u32,
        pair: QueuePair,
        limit: Duration,
    ) -> Result<QueuePair<Connected>, Failure> {
        let Some(request) = listener.next(limit) else {
            return Err(Failure::operation(anyhow!(
                "no request for connection {index} within {limit:?}: the peer has stopped"
            )));
        };
        let asked = request.private_data().first_chunk::<4>().copied();
        let asked = asked.map(u32::from_be_bytes);
        if asked != Some(index) {
            return Err(Failure::operation(anyhow!(
                "the peer asks for connection {asked:?}, expected {index}; use the same version of ringside on both sides"
            )));
        }
        let made = request.accept(pair, &self.settings, limit);
        let made = made.map_err(Failure::operation)?;
        self.bonds.push(made.bond);
        Ok(made.queue_pair)
    }
}

/// The connection manager's code of a timeout in the card's steps: the next longer one.
fn timeout_code(steps: u8) -> u8 {
    (1..=31)
        .find(|code| ringside_pmd::rdma::timer_steps(*code) >= steps)
        .unwrap_or(31)
}
