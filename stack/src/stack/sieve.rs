//! The frames that smoltcp gets.

use super::Stack;
use super::learning::is_by_another;
use crate::header::{Header, header};
use crate::martian::{is_martian, is_unwanted};
use crate::wire;
use ringside_clock::Instant;

impl Stack {
    /// Notes the information of a frame, which has come to the link at `place`. True if smoltcp
    /// gets the frame.
    pub(super) fn admits(&mut self, place: usize, frame: &[u8], now: Instant) -> bool {
        let Some(vlan) = self.links.get(place).map(|link| link.vlan) else {
            return false;
        };
        let said = wire::said(frame);
        if let Some(said) = &said {
            self.learn(place, said, now);
        }
        self.groups.hear(frame, vlan, now);
        if let Some(header) = header(frame)
            && !self.admits_packet((place, frame), &header, said.as_ref(), now)
        {
            return false;
        }
        !self.is_unasked(place, frame, now) && !self.tcp.drops(frame, vlan, &mut self.links)
    }

    fn admits_packet(
        &mut self,
        (place, frame): (usize, &[u8]),
        header: &Header,
        said: Option<&wire::Said>,
        now: Instant,
    ) -> bool {
        let vlan = self.links.get(place).and_then(|link| link.vlan);
        let of_vlan = self.networks.iter().filter(|own| own.vlan == vlan);
        if is_martian(header.source, of_vlan.clone()) {
            self.counters.martians += 1;
            return false;
        }
        if is_unwanted(header, of_vlan) || self.is_of_another(place, header) {
            return false;
        }
        self.learn_from_ping((place, frame), header, now);
        let of_another = said.filter(|said| is_by_another(said, header));
        if let Some(said) = of_another {
            // smoltcp takes the sender for the one that it tells of.
            self.learn_of_another(place, said);
        }
        of_another.is_none()
    }
}
