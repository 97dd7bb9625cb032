//! Transmit queues of packets, and the tables that spread received ones.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::queues::{
    AddTransmitQueues, DISABLE_TIMEOUT_100US, DisableFlags, DisableGroup, DisableScope,
    DisableTransmitQueues, DisabledQueue, TransmitQueue, TransmitQueueGroup,
};
use ringside_spec::lan::admin::rss::{
    RssKey, RssKeyCommand, RssTableCommand, RssTableFlags, RssVsi, table,
};
use ringside_spec::lan::admin::scheduler::{Element, NO_NODE};
use ringside_spec::lan::transmit::TransmitContext;
use zerocopy::IntoBytes;

impl AdminQueue {
    /// Adds a transmit queue under node `parent` (0x0C30); returns the id of its node.
    pub fn add_transmit_queue(
        &self,
        parent: u32,
        queue: u16,
        context: &TransmitContext,
    ) -> Result<u32, AdminError> {
        let opcode = Opcode::AddTransmitQueues;
        let group = TransmitQueueGroup {
            parent: parent.into(),
            count: 1,
            ..TransmitQueueGroup::zeroed()
        };
        let entry = TransmitQueue {
            queue: queue.into(),
            context: context.encode(),
            element: Element::unlimited(),
            ..TransmitQueue::zeroed()
        };
        let buffer = [group.as_bytes(), entry.as_bytes()].concat();
        let parameters = AddTransmitQueues {
            group_count: 1,
            ..AddTransmitQueues::zeroed()
        };
        let answer = self.execute(opcode, &parameters, Data::Send(&buffer))?;
        let added: TransmitQueue = read_at(opcode, &answer.data, TransmitQueueGroup::SIZE)?;
        match added.node.get() {
            0 | NO_NODE => Err(AdminError::malformed(opcode, "the queue got no node")),
            node => Ok(node),
        }
    }

    /// Takes a transmit queue from under node `parent` (0x0C31). Once this returns, the device
    /// reads neither its ring nor its packets.
    pub fn remove_transmit_queue(&self, parent: u32, queue: u16) -> Result<(), AdminError> {
        let group = DisableGroup {
            parent: parent.into(),
            count: 1,
            ..DisableGroup::zeroed()
        };
        let number = DisabledQueue::ZERO.with_number(queue);
        let mut buffer = group.as_bytes().to_vec();
        buffer.extend_from_slice(&number.0.to_le_bytes());
        buffer.resize(DisableGroup::size_with(1), 0);
        let parameters = DisableTransmitQueues {
            flags: DisableFlags::ZERO.with_flush(true).0,
            group_count: 1,
            scope: DisableScope::ZERO
                .with_timeout_100us(DISABLE_TIMEOUT_100US)
                .0
                .into(),
            ..DisableTransmitQueues::zeroed()
        };
        self.execute(
            Opcode::DisableTransmitQueues,
            &parameters,
            Data::Send(&buffer),
        )?;
        Ok(())
    }

    /// Sets the hash key of a VSI (0x0B02).
    pub fn set_hash_key(&self, vsi: u16, key: &[u8; 52]) -> Result<(), AdminError> {
        let mut value = RssKey::zeroed();
        let (standard, extended) = key.split_at(value.standard.len());
        value.standard.copy_from_slice(standard);
        value.extended.copy_from_slice(extended);
        let parameters = RssKeyCommand {
            vsi: of_vsi(vsi).into(),
            ..RssKeyCommand::zeroed()
        };
        self.execute(Opcode::SetRssKey, &parameters, Data::Send(value.as_bytes()))?;
        Ok(())
    }

    /// Sets the table of queues of this [`kind`](table) (0x0B03), each a queue counted from the
    /// VSI's first: the function's of 128, 512 or 2048 entries, or the VSI's own of 64.
    pub fn set_hash_table(&self, vsi: u16, kind: u16, queues: &[u8]) -> Result<(), AdminError> {
        let size = match queues.len() {
            table::FUNCTION_ENTRIES => table::SIZE_2048,
            table::GLOBAL_ENTRIES => table::SIZE_512,
            _ => table::SIZE_128,
        };
        let flags = RssTableFlags::ZERO.with_kind(kind).with_size(size);
        let parameters = RssTableCommand {
            vsi: of_vsi(vsi).into(),
            flags: flags.0.into(),
            ..RssTableCommand::zeroed()
        };
        self.execute(Opcode::SetRssTable, &parameters, Data::Send(queues))?;
        Ok(())
    }
}

fn of_vsi(vsi: u16) -> u16 {
    RssVsi::ZERO.with_number(vsi).with_valid(true).0
}
