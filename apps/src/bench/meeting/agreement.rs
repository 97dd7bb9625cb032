//! The agreement of two processes before a test. `docs/exchange.md` specifies the bytes.

use crate::bench::plan::{Amount, DEEPEST_QUEUE, MAX_INLINE, MAX_MESSAGE, MAX_QUEUE_PAIRS};
use crate::cli::{Bench, Measure, Operation};
use ringside_rendezvous::{MAX_REASON, printable};
use std::time::Duration;

/// First bytes of a test.
pub(super) const TEST_MAGIC: [u8; 8] = *b"ringtest";
/// First bytes of an answer.
const ANSWER_MAGIC: [u8; 8] = *b"ringback";
/// Version of both.
const VERSION: u16 = 1;
/// Bytes of a test.
pub(crate) const TEST_BYTES: usize = 64;
/// Bytes of an answer before its text.
pub(crate) const ANSWER_BYTES: usize = 16;

/// The operation of a test between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// RDMA write
    Write,
    /// RDMA read
    Read,
    /// Send and receive
    Send,
    /// RDMA write that completes a receive, verified only
    WriteImmediate,
    /// Send with a number in its completion, verified only
    SendImmediate,
}

impl Task {
    pub(crate) const ALL: [Self; 5] = [
        Self::Write,
        Self::Read,
        Self::Send,
        Self::WriteImmediate,
        Self::SendImmediate,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Write => 1,
            Self::Read => 2,
            Self::Send => 3,
            Self::WriteImmediate => 4,
            Self::SendImmediate => 5,
        }
    }

    /// The operation that is measured under this name.
    pub(crate) const fn operation(self) -> Operation {
        match self {
            Self::Write | Self::WriteImmediate => Operation::Write,
            Self::Read => Operation::Read,
            Self::Send | Self::SendImmediate => Operation::Send,
        }
    }

    pub(crate) const fn has_immediate(self) -> bool {
        matches!(self, Self::WriteImmediate | Self::SendImmediate)
    }

    /// True if messages use receives of the peer.
    pub(crate) const fn takes_receives(self) -> bool {
        matches!(
            self,
            Self::Send | Self::WriteImmediate | Self::SendImmediate
        )
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Write => "RDMA_Write",
            Self::Read => "RDMA_Read",
            Self::Send => "Send",
            Self::WriteImmediate => "RDMA_Write with immediate",
            Self::SendImmediate => "Send with immediate",
        }
    }
}

impl From<Operation> for Task {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Write => Self::Write,
            Operation::Read => Self::Read,
            Operation::Send => Self::Send,
        }
    }
}

/// One test, as both sides do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) task: Task,
    /// `None`: verified only
    pub(crate) measure: Option<Measure>,
    pub(crate) mtu: u32,
    pub(crate) size: u64,
    pub(crate) amount: Amount,
    pub(crate) queue_pairs: u32,
    pub(crate) rounds: u32,
    pub(crate) send_depth: u32,
    pub(crate) receive_depth: u32,
    pub(crate) inline: u32,
    /// the queue pairs are connected by the connection manager, not by the greetings
    pub(crate) by_manager: bool,
}

/// The test that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A test.
    Test(Test),
    /// The end of the session.
    End,
}

/// The peer's message is malformed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgreementError {
    #[error(
        "the peer uses another protocol: it began with {found:02x?}, expected {what}; run ringside bench on both sides"
    )]
    NotRingside { what: &'static str, found: [u8; 8] },
    #[error(
        "the peer uses version {found} of the bench's exchange, this side {VERSION}; use the same version of ringside on both sides"
    )]
    Version { found: u16 },
    #[error(
        "the peer requests {what} {given}, {least} to {most} is possible; use the same version of ringside on both sides"
    )]
    OutOfRange {
        what: &'static str,
        given: u64,
        least: u64,
        most: u64,
    },
}

impl Request {
    pub(crate) fn encode(&self) -> [u8; TEST_BYTES] {
        let mut bytes = Writer::begin(TEST_MAGIC);
        if let Self::Test(test) = self {
            bytes.put([test.task.code()]);
            bytes.put([match test.measure {
                None => 0,
                Some(Measure::Lat) => 1,
                Some(Measure::Bw) => 2,
            }]);
            let (messages, milliseconds) = match test.amount {
                Amount::Messages(messages) => (messages, 0),
                Amount::Time(time) => (0, u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            };
            bytes.put(test.mtu.to_be_bytes());
            for number in [test.size, messages, milliseconds] {
                bytes.put(number.to_be_bytes());
            }
            for number in [test.queue_pairs, test.rounds] {
                bytes.put(u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
            }
            for number in [test.send_depth, test.receive_depth, test.inline] {
                bytes.put(number.to_be_bytes());
            }
            bytes.put([u8::from(test.by_manager)]);
        }
        bytes.0
    }

    pub(crate) fn decode(bytes: &[u8; TEST_BYTES]) -> Result<Self, AgreementError> {
        let mut bytes = Reader(bytes);
        bytes.head(TEST_MAGIC, "a test")?;
        let [code] = bytes.take();
        let [measure] = bytes.take();
        if code == 0 {
            return Ok(Self::End);
        }
        let found = Task::ALL.into_iter().find(|task| task.code() == code);
        let task = found.ok_or_else(|| outside("operation", code.into(), 0, 5))?;
        let most = if task.has_immediate() { 0 } else { 2 };
        let measure = match within("measure", measure, 0, most)? {
            0 => None,
            1 => Some(Measure::Lat),
            _ => Some(Measure::Bw),
        };
        let mtu = u32::from_be_bytes(bytes.take());
        if ![256, 512, 1024, 2048, 4096].contains(&mtu) {
            return Err(outside("path MTU", mtu.into(), 256, 4096));
        }
        let size = u64::from_be_bytes(bytes.take());
        let size = within("message bytes", size, 0, MAX_MESSAGE)?;
        let messages = u64::from_be_bytes(bytes.take());
        let milliseconds = u64::from_be_bytes(bytes.take());
        let amount = match (messages, milliseconds) {
            (0, 0) if measure.is_some() => {
                return Err(outside("messages", 0, 1, u64::MAX));
            }
            (0, milliseconds) => {
                let most = 86_400_000;
                Amount::Time(Duration::from_millis(within(
                    "milliseconds",
                    milliseconds,
                    0,
                    most,
                )?))
            }
            (messages, _) => Amount::Messages(messages),
        };
        let least_size = u64::from(task == Task::Write && measure == Some(Measure::Lat));
        within(
            "message bytes of a write latency test",
            size,
            least_size,
            u64::MAX,
        )?;
        let [queue_pairs, rounds] = [(); 2].map(|()| u32::from(u16::from_be_bytes(bytes.take())));
        let [send_depth, receive_depth, inline] =
            [(); 3].map(|()| u32::from_be_bytes(bytes.take()));
        let [by_manager] = bytes.take();
        Ok(Self::Test(Test {
            task,
            measure,
            mtu,
            size,
            amount,
            queue_pairs: within("queue pairs", queue_pairs, 1, MAX_QUEUE_PAIRS)?,
            rounds: within("rounds of verification", rounds, 0, 255)?,
            send_depth: within("sends in flight", send_depth, 1, DEEPEST_QUEUE)?,
            receive_depth: within("receives posted", receive_depth, 1, DEEPEST_QUEUE)?,
            inline: within("inline bytes", inline, 0, MAX_INLINE)?,
            by_manager: within("way of connecting", by_manager, 0, 1)? == 1,
        }))
    }
}

/// The head of an answer: whether it agrees, and how long its text is.
pub(crate) fn decode_answer(bytes: &[u8; ANSWER_BYTES]) -> Result<(bool, usize), AgreementError> {
    let mut bytes = Reader(bytes);
    bytes.head(ANSWER_MAGIC, "an answer")?;
    let verdict = u16::from_be_bytes(bytes.take());
    let length = u32::from_be_bytes(bytes.take());
    let length = within("bytes of a reason", length, 0, MAX_REASON as u32)?;
    Ok((within("verdict", verdict, 0, 1)? == 0, length as usize))
}

/// A text of the peer's, as it may be shown.
pub(crate) fn text(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes))
}

/// An answer: agreed, or refused for a reason.
pub(crate) fn encode_answer(refused: Option<&str>) -> Vec<u8> {
    let reason = refused.unwrap_or("");
    let end = (0..=reason.len().min(MAX_REASON))
        .rev()
        .find(|&end| reason.is_char_boundary(end));
    let reason = reason.get(..end.unwrap_or(0)).unwrap_or("");
    let mut bytes = ANSWER_MAGIC.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(u16::from(refused.is_some()).to_be_bytes());
    bytes.extend(u32::try_from(reason.len()).unwrap_or(0).to_be_bytes());
    bytes.extend(reason.as_bytes());
    bytes
}

/// The way in which queue pairs are connected.
fn way(by_manager: bool) -> String {
    match by_manager {
        true => "the connection manager".to_owned(),
        false => "the exchange over TCP".to_owned(),
    }
}

/// The reason why the listening side cannot do the client's test: a difference to its own flags or
/// its configuration, with both values.
pub(crate) fn disagreement(options: &Bench, test: &Test) -> Option<String> {
    if test.mtu > options.largest_mtu {
        return Some(format!(
            "-m: link.mtu of the listening side has room for {} bytes, the connecting side asks for {}; \
             choose as many where is connected, or raise link.mtu where is listened",
            options.largest_mtu, test.mtu
        ));
    }
    difference(options, test)
}

/// A difference between the flags of the listening side and the client's test: both values.
fn difference(options: &Bench, test: &Test) -> Option<String> {
    let operation = options.operation.map(|operation| operation.title());
    let measure = options.measure.map(Measure::title);
    let asked_messages = match test.amount {
        Amount::Messages(messages) => messages.to_string(),
        Amount::Time(time) => format!("as many as fit {} ms", time.as_millis()),
    };
    let asked_time = match test.amount {
        Amount::Messages(messages) => format!("as long as {messages} messages take"),
        Amount::Time(time) => (time.as_millis() as f64 / 1e3).to_string(),
    };
    let measured = test.measure.is_some();
    let bandwidth = test.measure == Some(Measure::Bw);
    let text = |value: Option<u64>| value.map(|value| value.to_string());
    let number = |value: Option<u32>| text(value.map(u64::from));
    let insisted = [
        (
            "the operation",
            operation.map(str::to_owned),
            test.task.operation().title().to_owned(),
        ),
        (
            "what is measured",
            measure.map(str::to_owned),
            test.measure
                .map_or("nothing, only verification".to_owned(), |measure| {
                    measure.title().to_owned()
                }),
        ),
        ("-s", text(options.size), test.size.to_string()),
        (
            "-n",
            text(options.iterations).filter(|_| measured),
            asked_messages,
        ),
        (
            "-D",
            text(options.duration).filter(|_| measured),
            asked_time,
        ),
        (
            "-q",
            number(options.queue_pairs).filter(|_| bandwidth),
            test.queue_pairs.to_string(),
        ),
        (
            "-t",
            number(options.send_depth),
            test.send_depth.to_string(),
        ),
        (
            "-r",
            number(options.receive_depth),
            test.receive_depth.to_string(),
        ),
        ("-I", number(options.inline), test.inline.to_string()),
        ("-m", number(options.mtu), test.mtu.to_string()),
        (
            "-R",
            options.manager.then(|| way(true)),
            way(test.by_manager),
        ),
    ];
    insisted.into_iter().find_map(|(flag, own, asked)| {
        let own = own.filter(|own| *own != asked)?;
        Some(format!(
            "{flag}: the listening side insists on {own}, the connecting side asks for {asked}; give both the same, or leave it out where is listened"
        ))
    })
}

fn outside(what: &'static str, given: u64, least: u64, most: u64) -> AgreementError {
    AgreementError::OutOfRange {
        what,
        given,
        least,
        most,
    }
}

fn within<N: Into<u64> + Copy>(
    what: &'static str,
    given: N,
    least: N,
    most: N,
) -> Result<N, AgreementError> {
    let (least, most) = (least.into(), most.into());
    if (least..=most).contains(&given.into()) {
        return Ok(given);
    }
    Err(outside(what, given.into(), least, most))
}

/// Fills a test from the front; the rest stays 0.
struct Writer([u8; TEST_BYTES], usize);

impl Writer {
    fn begin(magic: [u8; 8]) -> Self {
        let mut writer = Self([0; TEST_BYTES], 0);
        writer.put(magic);
        writer.put(VERSION.to_be_bytes());
        writer
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        for (place, byte) in self.0.iter_mut().skip(self.1).zip(bytes) {
            *place = byte;
        }
        self.1 += N;
    }
}

/// Takes bytes from the front of a message whose length is right.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => [0; N],
        }
    }

    fn head(&mut self, magic: [u8; 8], what: &'static str) -> Result<(), AgreementError> {
        let found = self.take();
        if found != magic {
            return Err(AgreementError::NotRingside { what, found });
        }
        let found = u16::from_be_bytes(self.take());
        if found != VERSION {
            return Err(AgreementError::Version { found });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
