//! The steps: calls of the control path, some of which the firmware refuses at first, and resets.

use super::oracle::Station;
use super::{ALL, FURTHER, Further, GROUPS, PORTS, Run, STATIONS, VLANS};
use crate::rig::close;
use rand::Rng;
use ringside_model::Fault;
use ringside_model::faults::ANY_ADMIN_COMMAND;
use ringside_pmd::admin::{AdminError, Loopback};
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind, Spreading};
use ringside_pmd::lan::{PortError, PortSettings, VlanStripping, Vsi, VsiSettings};
use ringside_spec::lan::admin::Opcode;

/// Percent of the calls during which the firmware refuses commands.
const REFUSED: u32 = 15;

pub(super) fn settings(receive_queues: usize) -> PortSettings {
    PortSettings {
        receive_queues,
        ..crate::rig::settings()
    }
}

impl Run {
    pub(super) fn take_step(&mut self) {
        let station = self.random.random_range(0..=self.further.len());
        match self.random.random_range(0..100) {
            0..8 => self.add_vsi(),
            8..12 => self.remove_some_vsi(),
            12..24 => self.add_address(station),
            24..32 => self.remove_address(station),
            32..38 => self.hold_group(station),
            38..44 => self.release_group(station),
            44..52 => self.add_vlan(station),
            52..60 => self.remove_vlan(station),
            60..68 => self.set_all(station),
            68..73 => self.spread(station),
            73..77 => self.set_hash_fields(station),
            77..89 => self.add_rule(station),
            89..94 => self.remove_rule(station),
            94..96 => self.set_address(),
            96..98 => self.strip_vlan(station),
            _ => self.reset(),
        }
    }

    fn note(&mut self, text: String) {
        self.log.push(format!("{}: {text}", self.step));
    }

    /// Makes a call. Now and then the firmware refuses commands first: if the call failed then, it
    /// is made again.
    fn call<T: std::fmt::Debug>(
        &mut self,
        station: usize,
        text: &str,
        call: impl Fn(&Vsi) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        let refused = self.chance(REFUSED);
        self.note(format!("station {station}: {text}"));
        if refused {
            let opcode = self.one_of(&[
                ANY_ADMIN_COMMAND,
                Opcode::AddSwitchRules.code(),
                Opcode::RemoveSwitchRules.code(),
                Opcode::UpdateVsi.code(),
                Opcode::UpdateSwitchRules.code(),
                Opcode::AllocateResource.code(),
            ]);
            let fault = Fault::AdminCommandFails { opcode, code: 12 };
            self.rig.world.with(|world| world.inject(1, fault));
            let first = call(self.vsi(station));
            self.rig.world.with(|world| world.clear_faults(1));
            if first.is_ok() {
                return first;
            }
            self.note(format!("{opcode:#06x} was refused: {first:?}"));
        }
        call(self.vsi(station))
    }

    /// The same for calls that are to succeed.
    fn done<T: std::fmt::Debug>(
        &mut self,
        station: usize,
        text: &str,
        call: impl Fn(&Vsi) -> Result<T, PortError>,
    ) -> T {
        let found = self.call(station, text, call);
        found.unwrap_or_else(|error| panic!("{error}: {}", self.context()))
    }

    /// True if another station than this one has the address of a single station.
    fn is_taken(&self, mac: [u8; 6], but: Option<usize>) -> bool {
        let all = self.stations().into_iter().enumerate();
        let mut others = all.filter(|(station, _)| Some(*station) != but);
        mac[0] & 1 == 0 && others.any(|(_, one)| one.has(mac))
    }

    fn add_vsi(&mut self) {
        if self.further.len() == FURTHER {
            return;
        }
        let count = self.random.random_range(1..=4);
        let number = self.random.random_range(0..6);
        let mac = match self.chance(80) {
            true => [0x02, 0xAA, 0, 0, 0, number],
            false => self.one_of(&STATIONS),
        };
        let strips = self.chance(30);
        let settings = VsiSettings {
            mac,
            loopback: self.one_of(&[Loopback::Allowed, Loopback::Refused]),
            queues: PortSettings {
                vlan_stripping: match strips {
                    true => VlanStripping::On,
                    false => VlanStripping::Off,
                },
                promiscuous: self.chance(10),
                ..settings(count)
            },
        };
        let text = format!(
            "add_vsi {mac:02x?}, {count} queues, promiscuous {}",
            settings.queues.promiscuous
        );
        let port = self.rig.b.open.port.clone();
        let added = self.call(0, &text, |_| port.add_vsi(&settings));
        if self.is_taken(mac, None) {
            let taken = matches!(
                added,
                Err(PortError::Admin(AdminError::AddressTaken { .. }))
            );
            assert!(taken, "{added:?}: {}", self.context());
            return;
        }
        let open = added.unwrap_or_else(|error| panic!("{error}: {}", self.context()));
        let mut expected = Station::new(mac, count, open.vsi.hash_table_entries());
        expected.strips = strips;
        expected.all_unicast = settings.queues.promiscuous;
        self.further.push(Further {
            open,
            settings,
            expected,
        });
    }

    fn remove_some_vsi(&mut self) {
        if !self.further.is_empty() {
            let index = self.random.random_range(0..self.further.len());
            self.remove_vsi(index);
        }
    }

    pub(super) fn remove_vsi(&mut self, index: usize) {
        self.note(format!("remove station {}", index + 1));
        close(self.further.remove(index).open);
    }

    fn add_address(&mut self, station: usize) {
        let mac = self.one_of(&[&STATIONS[..], &GROUPS, &[ALL]].concat());
        let added = self.call(station, &format!("add_address {mac:02x?}"), |vsi| {
            vsi.add_address(mac)
        });
        if self.is_taken(mac, Some(station)) {
            let taken = matches!(
                added,
                Err(PortError::Admin(AdminError::AddressTaken { .. }))
            );
            assert!(taken, "{added:?}: {}", self.context());
            return;
        }
        assert_eq!(added, Ok(()), "{}", self.context());
        let expected = self.expected(station);
        if mac != ALL && mac != expected.first {
            expected.addresses.insert(mac);
        }
    }

    fn remove_address(&mut self, station: usize) {
        let mac = self.one_of(&[&STATIONS[..], &GROUPS].concat());
        let removed = self.done(station, &format!("remove_address {mac:02x?}"), |vsi| {
            vsi.remove_address(mac)
        });
        let was_there = self.expected(station).addresses.remove(&mac);
        assert_eq!(removed, was_there, "{}", self.context());
    }

    fn hold_group(&mut self, station: usize) {
        let mac = self.one_of(&GROUPS);
        self.done(station, &format!("hold_group {mac:02x?}"), |vsi| {
            vsi.hold_group(mac)
        });
        *self.expected(station).held.entry(mac).or_default() += 1;
    }

    fn release_group(&mut self, station: usize) {
        let mac = self.one_of(&GROUPS);
        let users = self.expected(station).held.get(&mac).copied().unwrap_or(0);
        let released = self.done(
            station,
            &format!("release_group {mac:02x?} of {users}"),
            |vsi| vsi.release_group(mac),
        );
        assert_eq!(released, users > 0, "{}", self.context());
        let held = &mut self.expected(station).held;
        match users {
            0 | 1 => drop(held.remove(&mac)),
            _ => drop(held.insert(mac, users - 1)),
        }
    }

    fn add_vlan(&mut self, station: usize) {
        let vlan = self.one_of(&VLANS);
        self.done(station, &format!("add_vlan {vlan}"), |vsi| {
            vsi.add_vlan(vlan)
        });
        self.expected(station).vlans.insert(vlan);
    }

    fn remove_vlan(&mut self, station: usize) {
        let vlan = self.one_of(&VLANS);
        let removed = self.done(station, &format!("remove_vlan {vlan}"), |vsi| {
            vsi.remove_vlan(vlan)
        });
        let was_there = self.expected(station).vlans.remove(&vlan);
        assert_eq!(removed, was_there, "{}", self.context());
    }

    fn set_all(&mut self, station: usize) {
        let (wanted, groups_only) = (self.chance(40), self.chance(40));
        let text = format!("promiscuous {wanted}, groups only {groups_only}");
        self.done(station, &text, |vsi| match groups_only {
            true => vsi.set_all_multicast(wanted),
            false => vsi.set_promiscuous(wanted),
        });
        let expected = self.expected(station);
        match groups_only {
            true => expected.all_groups = wanted,
            false => expected.all_unicast = wanted,
        }
    }

    fn spread(&mut self, station: usize) {
        let queues = self.expected(station).queues;
        let length = self.random.random_range(1..=8);
        let mut key = [0; 52];
        self.random.fill(&mut key);
        let table = (0..length).map(|_| self.random.random_range(0..queues) as u8);
        let spreading = Spreading {
            key,
            table: table.collect(),
        };
        self.done(station, &format!("spread {:?}", spreading.table), |vsi| {
            vsi.spread(&spreading)
        });
        self.expected(station).spreading = Some(spreading);
    }

    fn set_hash_fields(&mut self, station: usize) {
        let kind = self.one_of(&[FlowKind::UdpV4, FlowKind::TcpV4, FlowKind::UdpV6]);
        let all = kind.fields();
        let chosen: Vec<_> = all.iter().copied().filter(|_| self.chance(60)).collect();
        self.done(
            station,
            &format!("set_hash_fields {kind:?} {chosen:?}"),
            |vsi| vsi.set_hash_fields(kind, &chosen),
        );
        let fields = &mut self.expected(station).fields;
        match chosen == all {
            true => drop(fields.remove(&kind)),
            false => drop(fields.insert(kind, chosen)),
        }
    }

    fn random_match(&mut self) -> FlowMatch {
        let (port, other) = (self.one_of(&PORTS), self.one_of(&PORTS));
        match self.random.random_range(0..6) {
            0 | 1 => FlowMatch {
                destination_port: Some(port),
                ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
            },
            2 => FlowMatch {
                source_port: Some(port),
                ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
            },
            3 => FlowMatch {
                source_port: Some(other),
                destination_port: Some(port),
                ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV6))
            },
            4 => FlowMatch {
                ether_type: Some(0x88B5),
                ..FlowMatch::of(RuleKind::Ethernet)
            },
            _ => FlowMatch {
                vlan: Some(self.one_of(&[0, 5, 6])),
                ..FlowMatch::of(RuleKind::All)
            },
        }
    }

    fn add_rule(&mut self, station: usize) {
        let queues = self.expected(station).queues as u16;
        let packets = self.random_match();
        let pair = FlowTarget::Group { first: 0, count: 2 };
        let target = match self.random.random_range(0..8) {
            0 => FlowTarget::Drop,
            1 => FlowTarget::Spread,
            2 if queues >= 2 => pair,
            _ => FlowTarget::Queue(self.random.random_range(0..queues)),
        };
        let marks = target == FlowTarget::Spread || self.chance(40);
        let mark = marks.then(|| self.random.random_range(1..1000));
        let rule = FlowRule {
            packets,
            target,
            mark,
            count: self.chance(30),
        };
        let added = self.call(station, &format!("add_rule {rule:?}"), |vsi| {
            vsi.add_rule(&rule)
        });
        if self.is_refused(station, &rule.packets) {
            assert!(
                matches!(added, Err(PortError::Rule { .. })),
                "{added:?}: {}",
                self.context()
            );
            return;
        }
        let number = added.unwrap_or_else(|error| panic!("{error}: {}", self.context()));
        self.expected(station).rules.insert(number, rule);
    }

    /// True for a rule that other rules do not permit.
    fn is_refused(&self, station: usize, wanted: &FlowMatch) -> bool {
        let mut all = self
            .stations()
            .into_iter()
            .enumerate()
            .flat_map(|(at, one)| one.rules.values().map(move |rule| (at, &rule.packets)));
        let shape = |packets: &FlowMatch| {
            [
                packets.vlan.is_some(),
                packets.ether_type.is_some(),
                packets.source_port.is_some(),
                packets.destination_port.is_some(),
            ]
        };
        all.any(|(at, other)| {
            let shares =
                other.kind == wanted.kind || [other.kind, wanted.kind].contains(&RuleKind::All);
            shares && shape(other) != shape(wanted) || at == station && other == wanted
        })
    }

    fn remove_rule(&mut self, station: usize) {
        let numbers: Vec<_> = self.expected(station).rules.keys().copied().collect();
        if numbers.is_empty() {
            return;
        }
        let number = self.one_of(&numbers);
        let removed = self.done(station, &format!("remove_rule {number:?}"), |vsi| {
            vsi.remove_rule(number)
        });
        assert!(removed, "{}", self.context());
        self.expected(station).rules.remove(&number);
        let again = self.vsi(station).remove_rule(number);
        assert_eq!(again, Ok(false), "{}", self.context());
    }

    fn set_address(&mut self) {
        let mac = match self.chance(30) {
            true => self.own,
            false => self.one_of(&STATIONS),
        };
        // Without refusals: a former address that the firmware does not take back stays, with a
        // warning.
        self.note(format!("set_address {mac:02x?}"));
        let set = self.rig.b.open.port.set_address(mac);
        if self.is_taken(mac, Some(0)) {
            assert!(set.is_err(), "{}", self.context());
            return;
        }
        assert_eq!(set, Ok(()), "{}", self.context());
        self.port.mac = mac;
    }

    fn strip_vlan(&mut self, station: usize) {
        let strips = self.chance(50);
        let wanted = match strips {
            true => VlanStripping::On,
            false => VlanStripping::Off,
        };
        self.done(station, &format!("strip_vlan {strips}"), |vsi| {
            vsi.strip_vlan(wanted)
        });
        self.expected(station).strips = strips;
    }

    /// The device fails and is recovered; port and VSIs are made again with the settings that they
    /// had.
    fn reset(&mut self) {
        self.note("reset".to_owned());
        let port_setup = self.rig.b.open.port.setup();
        let setups: Vec<_> = self
            .further
            .iter()
            .map(|one| one.open.vsi.setup())
            .collect();
        self.rig.b.device.give_up().expect("in service");
        self.rig.b.device.recover().expect("back in service");
        let mut former = std::mem::take(&mut self.further);
        let queues = self.port.queues;
        let new = self
            .rig
            .b
            .device
            .open_port(&settings(queues))
            .expect("in service");
        drop(std::mem::replace(&mut self.rig.b.open, new));
        let context = self.context();
        let restored = self.rig.b.open.port.restore(&port_setup);
        restored.unwrap_or_else(|error| panic!("{error}: {context}"));
        renew(&self.rig.b.open.port.rules(), &mut self.port);
        for (one, setup) in former.iter_mut().zip(&setups) {
            let new = self
                .rig
                .b
                .open
                .port
                .add_vsi(&one.settings)
                .expect("added again");
            close(std::mem::replace(&mut one.open, new));
            let restored = one.open.vsi.restore(setup);
            restored.unwrap_or_else(|error| panic!("{error}: {context}"));
            renew(&one.open.vsi.rules(), &mut one.expected);
        }
        self.further = former;
    }
}

/// Rules have new numbers, in the order that they had; groups are to be held again.
fn renew(rules: &[(ringside_pmd::lan::port::RuleNumber, FlowRule)], expected: &mut Station) {
    expected.held.clear();
    let numbers = rules.iter().map(|(number, _)| *number);
    let old = std::mem::take(&mut expected.rules);
    expected.rules = numbers.zip(old.into_values()).collect();
}
