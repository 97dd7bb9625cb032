//! Opens the packet queues of a device in service.

use super::Device;
use crate::bring_up::{Missing, SchedulerTree};
use crate::lan::port::{self, OpenPort, PortError, PortParts, PortSettings, TreePlace};
use crate::rdma::event_vectors::{packet_vector, possible, receive_vectors};
use std::sync::Arc;
use std::time::Duration;

impl Device {
    /// Opens the function's port; all queues are in service when this returns.
    ///
    /// Control path. Errors: [`PortError`]; the configuration has been undone.
    pub fn open_port(&self, settings: &PortSettings) -> Result<OpenPort, PortError> {
        port::check(settings)?;
        if self.failure().is_some() {
            return Err(PortError::OutOfService);
        }
        OpenPort::open(self.port_parts()?, settings)
    }

    fn port_parts(&self) -> Result<PortParts, Missing> {
        let context = self.context();
        let facts = &context.facts;
        let capabilities = facts.capabilities()?;
        // A function that does not answer has none.
        let vectors = context.granted_vectors().unwrap_or(0);
        let asked = context.config().event_queues();
        let event_queues = possible(asked, facts.rdma.event_queues, vectors);
        Ok(PortParts {
            registers: context.registers().clone(),
            admin: context.admin()?,
            pool: Arc::clone(context.pool()?),
            registry: Arc::clone(&context.ports),
            capabilities: capabilities.clone(),
            vector: packet_vector(vectors, event_queues),
            receive_vectors: receive_vectors(vectors, event_queues),
            function: facts.function_number()?,
            port: facts.switch()?.port,
            switch_id: facts.switch()?.switch_id,
            vlan_mode: facts.vlan_mode,
            vsi: facts.vsi()?,
            mac: facts.mac()?,
            tree: place(facts.scheduler()?),
            hash_groups: facts
                .package
                .as_ref()
                .map(|package| package.hash_groups.clone())
                .unwrap_or_default(),
            filter_groups: facts
                .package
                .as_ref()
                .map(|package| package.filter_groups.clone())
                .unwrap_or_default(),
            quiesce: Duration::from_millis(context.config().deadlines.quiesce_ms),
        })
    }
}

fn place(tree: &SchedulerTree) -> TreePlace {
    TreePlace {
        limits: tree.limits.clone(),
        class_node: tree.class_node,
        entry_layer: tree.entry_layer,
        rdma_group: tree.rdma_group_node,
    }
}

impl From<Missing> for PortError {
    fn from(Missing { what, stage }: Missing) -> Self {
        Self::NotBroughtUp { what, stage }
    }
}
