//! `bench --count-writes`: the bus accesses of the data path.

use super::report::RegisterAccesses;
use ringside_bus::{CountedFunction, Function};
use std::io::{self, Write};
use std::sync::Arc;

/// The functions of both ends, counted.
pub(crate) struct Counters([Arc<CountedFunction>; 2]);

impl Counters {
    /// Puts a counter before each function.
    pub(crate) fn before(functions: &mut [Arc<dyn Function>; 2]) -> Self {
        let counted = functions
            .each_ref()
            .map(|function| CountedFunction::new(Arc::clone(function)));
        *functions = counted
            .each_ref()
            .map(|function| Arc::clone(function) as Arc<dyn Function>);
        Self(counted)
    }

    /// Discards the counts so far.
    pub(crate) fn restart(&self) {
        for function in &self.0 {
            let _ = function.take();
        }
    }

    /// The accesses since [`Counters::restart`], for `messages` messages.
    pub(crate) fn take(&self, test: String, messages: u64) -> RegisterAccesses {
        let [sender, receiver] = self.0.each_ref().map(|function| function.take());
        RegisterAccesses {
            test,
            messages,
            sender_writes: sender.all_writes(),
            sender_reads: sender.all_reads(),
            receiver_writes: receiver.all_writes(),
            receiver_reads: receiver.all_reads(),
        }
    }
}

/// Prints one test's counts below its row.
pub(crate) fn print(out: &mut dyn Write, counted: &RegisterAccesses) -> io::Result<()> {
    let a_message = |count: u64| count as f64 / counted.messages.max(1) as f64;
    writeln!(
        out,
        " register writes a message: {:.4} by the function that sends, {:.4} by its peer; reads: {:.4}, {:.4}",
        a_message(counted.sender_writes),
        a_message(counted.receiver_writes),
        a_message(counted.sender_reads),
        a_message(counted.receiver_reads)
    )
}
