//! Datagrams: each arrives complete or not at all, and not more often than it was sent.

use super::flight::Flight;
use super::ledger::Ledger;
use super::requests::{Owner, Receive, Request, Seen};
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{Datagram, Operation, Status};

/// The most copies of a frame that a wire makes.
const MAX_COPIES: u64 = 1;

impl Ledger {
    /// Notes a sent datagram; `crowded` marks the sides that may have no receive for it.
    pub(crate) fn posted_datagram(
        &mut self,
        side: usize,
        request: Request,
        flight: Flight,
        crowded: [bool; 2],
    ) {
        for (side, _) in crowded.iter().enumerate().filter(|(_, crowded)| **crowded) {
            // It may take the receive of an earlier one from another sender.
            let coming = |flight: &&mut Flight| {
                flight.to.get(side) == Some(&true) && flight.arrived.get(side) == Some(&0)
            };
            let others = self.flights.iter_mut().filter(coming);
            others.for_each(|flight| flight.certain = false);
        }
        self.owners.insert(request.id, Owner::DatagramSend { side });
        if let Some(Some(end)) = self.datagrams.get_mut(side) {
            end.sends.push_back(request);
        }
        self.flights.push(flight);
    }

    pub(crate) fn posted_datagram_receive(&mut self, side: usize, receive: Receive) {
        self.owners
            .insert(receive.id, Owner::DatagramReceive { side });
        self.memory.expect_anything(receive.claim, receive.length);
        if let Some(Some(end)) = self.datagrams.get_mut(side) {
            end.receives.push_back(receive);
        }
    }

    pub(super) fn datagram_sent(&mut self, side: usize, seen: &Seen) -> Result<(), Problem> {
        let Some(Some(end)) = self.datagrams.get_mut(side) else {
            return Ok(());
        };
        let text = |why: &str| format!("datagram {} of side {side}: {why}; {seen:?}", seen.id);
        let place = end
            .sends
            .iter()
            .position(|request| request.id == seen.id)
            .unwrap_or(0);
        if end
            .sends
            .iter()
            .take(place)
            .any(|request| request.signalled)
        {
            return Err(Problem::new(
                Rule::InOrder,
                text("one before it has not completed"),
            ));
        }
        if (seen.operation, seen.queue_pair) != (Operation::Send, end.number) {
            return Err(Problem::new(
                Rule::MessageRight,
                text("that is another request"),
            ));
        }
        let done: Vec<Request> = end.sends.drain(..=place).collect();
        if seen.status != Status::Success && !self.weather.harm_at(side).explains(seen.status) {
            return Err(Problem::new(
                Rule::StatusAllowed,
                text("nothing stops a datagram from being sent"),
            ));
        }
        for request in done {
            self.over(request.id);
            for claim in request.claims {
                self.memory.done(claim, "a datagram's bytes")?;
            }
        }
        Ok(())
    }

    pub(super) fn datagram_received(&mut self, side: usize, seen: &Seen) -> Result<(), Problem> {
        let Some(Some(end)) = self.datagrams.get_mut(side) else {
            return Ok(());
        };
        let text = |why: &str| {
            format!(
                "datagram receive {} of side {side}: {why}; {seen:?}",
                seen.id
            )
        };
        let Some(receive) = end.receives.pop_front() else {
            return Ok(());
        };
        if receive.id != seen.id {
            return Err(Problem::new(
                Rule::InOrder,
                text("one before it has not completed"),
            ));
        }
        let number = end.number;
        self.over(receive.id);
        if seen.status != Status::Success {
            self.memory.adopt(receive.claim, receive.length);
            if self.weather.harm_at(side).explains(seen.status) {
                return Ok(());
            }
            return Err(Problem::new(
                Rule::StatusAllowed,
                text("nothing leads to this status"),
            ));
        }
        let Some(datagram) = seen.datagram.filter(|_| seen.queue_pair == number) else {
            return Err(Problem::new(
                Rule::MessageRight,
                text("that is no datagram of this queue pair"),
            ));
        };
        let length = datagram.payload_bytes as usize;
        let mut bytes = self
            .memory
            .look(receive.claim, Datagram::PAYLOAD_OFFSET + length);
        let payload = bytes.split_off(Datagram::PAYLOAD_OFFSET.min(bytes.len()));
        self.count_arrival(side, seen.immediate, datagram.source_queue_pair, &payload)
            .map_err(|(rule, why)| Problem::new(rule, text(why)))?;
        // The device writes the route headers before the payload.
        self.memory
            .adopt(receive.claim, Datagram::PAYLOAD_OFFSET + length);
        Ok(())
    }

    /// Counts a datagram that arrived. An error if no equal one was sent, or not so often.
    fn count_arrival(
        &mut self,
        side: usize,
        immediate: Option<u32>,
        source: u32,
        payload: &[u8],
    ) -> Result<(), (Rule, &'static str)> {
        let same = |flight: &Flight| {
            flight.bytes == payload
                && flight.immediate == immediate
                && flight.from.1 == source
                && flight.to.get(side) == Some(&true)
        };
        let alike = || self.flights.iter().filter(|flight| same(flight));
        let sent = alike().count() as u64;
        let came = alike().map(|flight| flight.arrived.get(side).copied());
        let came: u64 = came.flatten().map(u64::from).sum();
        let copies = self.weather.copies.min(sent * MAX_COPIES);
        // Among several equal ones, one that has not arrived yet.
        let fresh = |flight: &Flight| same(flight) && flight.arrived.get(side) == Some(&0);
        let place = self.flights.iter().position(fresh);
        let place = place.or_else(|| self.flights.iter().position(same));
        let flight = place.and_then(|place| self.flights.get_mut(place));
        let Some(flight) = flight else {
            return Err((Rule::BytesIntact, "no such datagram was sent here"));
        };
        if let Some(arrived) = flight.arrived.get_mut(side) {
            *arrived += 1;
            if came + 1 > sent + copies {
                return Err((Rule::CompletesOnce, "it has come before"));
            }
        }
        Ok(())
    }

    /// Returns a datagram that must have arrived and did not.
    pub(crate) fn missing_datagram(&self) -> Option<String> {
        let missing = self.flights.iter().find(|flight| {
            let mut sides = flight.to.iter().enumerate().filter(|(_, to)| **to);
            flight.certain && sides.any(|(side, _)| self.is_short_of(flight, side))
        })?;
        Some(format!(
            "datagram {} of side {} did not come, and nothing can have stopped it",
            missing.id, missing.from.0
        ))
    }

    /// True if fewer datagrams equal to this one came to a side than must have come. Equal ones
    /// cannot be distinguished.
    fn is_short_of(&self, flight: &Flight, side: usize) -> bool {
        let like = |other: &&Flight| {
            (other.from, &other.bytes, other.immediate)
                == (flight.from, &flight.bytes, flight.immediate)
                && other.to.get(side) == Some(&true)
        };
        let likes = || self.flights.iter().filter(like);
        let came = likes().filter_map(|other| other.arrived.get(side));
        let came: u64 = came.copied().map(u64::from).sum();
        let certain = likes().filter(|other| other.certain).count() as u64;
        came < certain
    }

    /// A datagram queue pair was destroyed, with or without the device's confirmation.
    pub(crate) fn datagram_end_destroyed(
        &mut self,
        side: usize,
        confirmed: bool,
    ) -> Result<(), Problem> {
        let Some(end) = self.datagrams.get_mut(side).and_then(Option::take) else {
            return Ok(());
        };
        if let Some(dropped) = self.dropped.get_mut(side) {
            *dropped += (end.sends.len() + end.receives.len()) as u64;
        }
        for request in end.sends {
            self.over(request.id);
            for claim in request.claims {
                self.memory
                    .unknown(claim, "a datagram queue pair is gone")?;
            }
        }
        for receive in end.receives {
            self.over(receive.id);
            if !confirmed {
                self.keep(receive.claim)?;
                continue;
            }
            self.memory
                .unknown(receive.claim, "a datagram queue pair is gone")?;
        }
        Ok(())
    }
}
