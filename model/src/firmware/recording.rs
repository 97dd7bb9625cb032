//! Records commands of the admin queue.

use super::Firmware;
use super::command::Command;
use crate::chip::Context;
use crate::record::{AdminCommand, AdminEvent, Event};
use ringside_spec::lan::admin::Descriptor;

impl Firmware {
    /// The record before the command is executed; `None` without a recorder.
    pub(super) fn begin_record(&self, command: &Command) -> Option<AdminCommand> {
        self.tap.as_ref()?;
        let told = command.descriptor.flags().read_buffer();
        Some(AdminCommand {
            before: command.descriptor.to_bytes(),
            sent: if told {
                command.buffer.clone()
            } else {
                Vec::new()
            },
            after: None,
            answered: Vec::new(),
        })
    }

    /// Adds the answer, and writes it down.
    pub(super) fn end_record(
        &self,
        begun: Option<AdminCommand>,
        answer: Option<&Descriptor>,
        written: &[u8],
        context: &Context<'_>,
    ) {
        let (Some(tap), Some(mut command)) = (&self.tap, begun) else {
            return;
        };
        command.after = answer.map(Descriptor::to_bytes);
        command.answered = written.to_vec();
        tap.note(context.now, Event::Admin(command));
    }

    /// An event went to the receive ring.
    pub(super) fn record_event(&self, event: &Descriptor, body: &[u8], context: &Context<'_>) {
        if let Some(tap) = &self.tap {
            let event = AdminEvent {
                descriptor: event.to_bytes(),
                body: body.to_vec(),
            };
            tap.note(context.now, Event::AdminEvent(event));
        }
    }
}
