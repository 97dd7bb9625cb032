//! The access control list: tables and scenarios are handed out, and their entries may be made
//! empty, as drivers do at their start. An entry that would match packets is refused: the model
//! does not compare packets with these rules, and a rule that silently does nothing is worse than
//! an error.
//! DPDK then gives the rule to its next engine, the switch or the flow director. Scenarios and
//! profiles are kept as they were written: drivers read them before they change or free them.

use super::command::{Command, Outcome};
use crate::chip::Context;
use ringside_spec::lan::admin::access_control::{
    ACTION_MEMORIES, AccessEntry, AccessKey, AccessObject, AccessProfile, AccessTable,
    AllocateAccessTable, FIRST_TABLE, KEY_BYTES, NO_MEMORY, PROFILE_BYTES, RANGES_BYTES,
    SCENARIO_BYTES, SCENARIOS, SLICE_ENTRIES, SLICES,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use std::collections::BTreeMap;

/// The resources of the function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessControl {
    /// The one table.
    table: Option<Slices>,
    scenarios: BTreeMap<u16, [u8; SCENARIO_BYTES]>,
    /// The fields that profiles extract from packets; zero for one that was never programmed.
    profiles: BTreeMap<u8, [u8; PROFILE_BYTES]>,
    ranges: BTreeMap<u8, [u8; RANGES_BYTES]>,
}

/// Slices and memories of actions that a table has, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slices {
    slices: u16,
    memories: usize,
}

impl AccessControl {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Tables and scenarios that are held.
    pub(super) fn list(&self) -> Vec<u16> {
        let table = self.table.map(|_| FIRST_TABLE);
        table
            .into_iter()
            .chain(self.scenarios.keys().copied())
            .collect()
    }

    pub(super) fn execute(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        match opcode {
            Opcode::AllocateAccessTable => self.allocate_table(command),
            Opcode::FreeAccessTable => self.free_table(command, context),
            Opcode::AllocateAccessScenario => self.allocate_scenario(command),
            Opcode::FreeAccessScenario => self.free_scenario(command, context),
            Opcode::UpdateAccessScenario | Opcode::QueryAccessScenario => {
                self.access_scenario(opcode, command, context)
            }
            Opcode::ProgramAccessEntry => self.program_entry(command, context),
            Opcode::ProgramAccessActions => self.program_actions(command, context),
            Opcode::ProgramAccessProfile => keep(&mut self.profiles, command),
            Opcode::QueryAccessProfile => show(&self.profiles, command),
            Opcode::ProgramAccessRanges => keep(&mut self.ranges, command),
            Opcode::QueryAccessRanges => show(&self.ranges, command),
            Opcode::FreeAccessResources => {
                self.clear();
                command.done()
            }
            _ => Err(ReturnCode::NotImplemented),
        }
    }

    fn missing(what: &'static str, number: u16, context: &mut Context<'_>) -> Outcome {
        context
            .ledger
            .breach("access control command for what does not exist", || {
                format!("{what} {number}")
            });
        Err(ReturnCode::NoEntry)
    }

    fn describe(table: Option<Slices>) -> AccessTable {
        let mut memories = [NO_MEMORY; ACTION_MEMORIES];
        let count = table.map_or(0, |table| table.memories);
        for (index, memory) in memories.iter_mut().take(count).enumerate() {
            *memory = index as u8;
        }
        let slices = table.map_or(0, |table| table.slices);
        AccessTable {
            number: FIRST_TABLE.into(),
            first_slice: 0,
            last_slice: slices.saturating_sub(1) as u8,
            first_entry: 0.into(),
            last_entry: (SLICE_ENTRIES - 1).into(),
            action_memories: memories,
        }
    }

    fn allocate_table(&mut self, command: &mut Command) -> Outcome {
        let asked: AllocateAccessTable = command.parameters();
        let across = asked.key_bits.get().div_ceil(8 * KEY_BYTES);
        let down = asked.entries.get().div_ceil(SLICE_ENTRIES);
        let memories = usize::from(asked.action_pairs) * usize::from(down);
        let slices = across.saturating_mul(down);
        let fits = (1..=SLICES).contains(&slices) && (1..=ACTION_MEMORIES).contains(&memories);
        if !fits {
            return Err(ReturnCode::Invalid);
        }
        if self.table.is_some() {
            return Err(ReturnCode::NoSpace);
        }
        let table = Some(Slices { slices, memories });
        command.put(0, &Self::describe(table))?;
        self.table = table;
        command.done()
    }

    fn free_table(&mut self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        let asked: AccessObject = command.parameters();
        if self.table.is_none() || asked.number.get() != FIRST_TABLE {
            return Self::missing("table", asked.number.get(), context);
        }
        command.put(0, &Self::describe(self.table))?;
        self.table = None;
        command.done()
    }

    fn allocate_scenario(&mut self, command: &Command) -> Outcome {
        let asked: AccessObject = command.parameters();
        let free = (0..SCENARIOS).find(|number| !self.scenarios.contains_key(number));
        let number = free.ok_or(ReturnCode::NoSpace)?;
        self.scenarios.insert(number, whole(command)?);
        command.answer(&AccessObject {
            number: number.into(),
            ..asked
        })
    }

    fn free_scenario(&mut self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let asked: AccessObject = command.parameters();
        if self.scenarios.remove(&asked.number.get()).is_none() {
            return Self::missing("scenario", asked.number.get(), context);
        }
        command.done()
    }

    fn access_scenario(
        &mut self,
        opcode: Opcode,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: AccessObject = command.parameters();
        let Some(scenario) = self.scenarios.get_mut(&asked.number.get()) else {
            if opcode == Opcode::QueryAccessScenario {
                // Intel's ice 2.6.6 asks for all that it had, also those that a reset took
                // (`ice_acl_destroy_tbl`).
                return Err(ReturnCode::NoEntry);
            }
            return Self::missing("scenario", asked.number.get(), context);
        };
        if opcode == Opcode::QueryAccessScenario {
            command.put_bytes(0, scenario)?;
        } else {
            *scenario = whole(command)?;
        }
        command.done()
    }

    fn program_entry(&self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let asked: AccessEntry = command.parameters();
        let inside = |table: Slices| u16::from(asked.slice) < table.slices;
        if !self.table.is_some_and(inside) || asked.entry.get() >= SLICE_ENTRIES {
            return Self::missing("entry", asked.entry.get(), context);
        }
        let key: AccessKey = command.item(0)?;
        let empty = key.key == [0; 5] && key.inverse == [0; 5];
        if empty {
            command.done()
        } else {
            tracing::debug!(entry = asked.entry.get(), "access control rule refused");
            Err(ReturnCode::NotImplemented)
        }
    }

    fn program_actions(&self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let asked: AccessEntry = command.parameters();
        let inside = |table: Slices| usize::from(asked.slice) < table.memories;
        if !self.table.is_some_and(inside) || asked.entry.get() >= SLICE_ENTRIES {
            return Self::missing("actions", asked.entry.get(), context);
        }
        command.done()
    }
}

/// The whole buffer of a command, which has to have this length.
fn whole<const N: usize>(command: &Command) -> Result<[u8; N], ReturnCode> {
    <[u8; N]>::try_from(command.buffer.as_slice()).map_err(|_| ReturnCode::Invalid)
}

/// Stores the driver's definition of a profile.
fn keep<const N: usize>(kept: &mut BTreeMap<u8, [u8; N]>, command: &Command) -> Outcome {
    let asked: AccessProfile = command.parameters();
    kept.insert(asked.profile, whole(command)?);
    command.done()
}

/// Returns the stored definition.
fn show<const N: usize>(kept: &BTreeMap<u8, [u8; N]>, command: &mut Command) -> Outcome {
    let asked: AccessProfile = command.parameters();
    let found = kept.get(&asked.profile).copied().unwrap_or([0; N]);
    command.put_bytes(0, &found)?;
    command.done()
}

#[cfg(test)]
mod tests;
