//! Stations of a run: each port, and each further VSI of a port. A station has queues, counters and
//! a line of the reports of its own.

use crate::mac::Mac;
use crate::vsi::{VsiAt, VsiText};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Station {
    pub(super) port: usize,
    /// 0 for the port itself; its further VSIs count from 1
    pub(super) place: usize,
    /// further VSI that it is
    pub(super) vsi: Option<VsiText>,
    /// receive queues, and transmit queues
    pub(super) queues: usize,
    /// station that its packets leave by
    pub(super) pair: usize,
}

impl Station {
    /// Its name in commands: that of the port, or of its further VSI.
    pub(super) fn name(&self) -> String {
        match self.place {
            0 => self.port.to_string(),
            place => format!("{}.{place}", self.port),
        }
    }
}

/// The place of a receive and a transmit queue of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) station: usize,
    /// number among those of the station
    pub(super) queue: usize,
    /// port of the station, whose mode it has
    pub(super) port: usize,
}

/// All stations: the ports by number, then the further VSIs as the command line names them.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// devices of the ports
    devices: Vec<String>,
    stations: Vec<Station>,
    threads: usize,
}

impl Layout {
    /// Ports with that many queues each, and their VSIs. Errors: a VSI that cannot be, with the
    /// remedy.
    pub(super) fn new(devices: &[String], queues: usize, vsis: &[VsiAt]) -> Result<Self, String> {
        let ports = devices.len();
        let of_port = |port| Station {
            port,
            place: 0,
            vsi: None,
            queues,
            pair: peer_of(port, ports),
        };
        let mut stations: Vec<Station> = (0..ports).map(of_port).collect();
        for one in vsis {
            check(one, &stations, ports)?;
            let place = stations.iter().filter(|of| of.port == one.port).count();
            stations.push(Station {
                port: one.port,
                place,
                vsi: Some(one.vsi),
                queues: one.vsi.queues(),
                pair: stations.len(),
            });
        }
        let mut layout = Self {
            devices: devices.to_vec(),
            stations,
            threads: queues,
        };
        layout.pair_vsis()?;
        Ok(layout)
    }

    /// Pairs the VSIs at the same place of paired ports; another one is its own pair.
    fn pair_vsis(&mut self) -> Result<(), String> {
        let ports = self.devices.len();
        for index in ports..self.stations.len() {
            let one = self.stations[index];
            let there = (peer_of(one.port, ports), one.place);
            let mut all = self.stations.iter();
            let Some(pair) = all.position(|of| (of.port, of.place) == there) else {
                continue;
            };
            let (Some(vsi), Some(other)) = (one.vsi, self.stations[pair].vsi) else {
                continue;
            };
            if vsi.queues() != other.queues() {
                return Err(format!(
                    "--vsi {vsi}@{} and {other}@{} are paired, as their ports are, and have {} and {} \
                     queues: give both the same number, or change their order",
                    one.port,
                    there.0,
                    vsi.queues(),
                    other.queues()
                ));
            }
            self.stations[index].pair = pair;
        }
        Ok(())
    }

    pub(super) fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// Threads, of which each serves one queue of every port.
    pub(super) const fn threads(&self) -> usize {
        self.threads
    }

    /// The thread of a queue: queues of a VSI are given to the threads in turn.
    pub(super) const fn thread_of(&self, queue: usize) -> usize {
        queue % self.threads
    }

    /// Stations of a port with their numbers: its own first, then its VSIs by place.
    pub(super) fn of_port(&self, port: usize) -> impl Iterator<Item = (usize, &Station)> {
        let all = self.stations.iter().enumerate();
        all.filter(move |(_, station)| station.port == port)
    }

    /// The device of a station's port.
    pub(super) fn device(&self, station: usize) -> &str {
        let port = self.stations.get(station).map(|station| station.port);
        let device = port.and_then(|port| self.devices.get(port));
        device.map_or("", String::as_str)
    }

    /// The name of a station: the device, or a VSI as commands name it, such as `VSI 0.1`.
    pub(super) fn label(&self, station: usize) -> String {
        match self.stations.get(station) {
            Some(one) if one.place > 0 => format!("VSI {}", one.name()),
            _ => self.device(station).to_owned(),
        }
    }
}

/// Refuses a VSI that its port cannot have.
fn check(one: &VsiAt, before: &[Station], ports: usize) -> Result<(), String> {
    if one.port >= ports {
        let known = match ports - 1 {
            0 => "port 0".to_owned(),
            last => format!("one of 0 to {last}"),
        };
        return Err(format!(
            "--vsi {one}: there is no port {}: name {known} after the @, or give --device once more",
            one.port
        ));
    }
    let of_port = before.iter().filter(|of| of.port == one.port);
    let mut macs = of_port.filter_map(|of| Some(of.vsi?.mac()));
    if macs.any(|mac| mac == one.vsi.mac()) {
        return Err(format!(
            "--vsi {one}: another VSI of port {} has the address {}; choose a different one for each",
            one.port,
            Mac(one.vsi.mac())
        ));
    }
    Ok(())
}

/// The port that packets of port `index` leave by.
const fn peer_of(index: usize, count: usize) -> usize {
    let pair = index ^ 1;
    if pair < count { pair } else { index }
}
