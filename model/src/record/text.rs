//! The file: a line that names the format, then one JSON object a line. See `docs/recording.md`.

use super::entry::{
    AdminCommand, AdminEvent, Buffer, ControlCommand, ControlQueueCreated, Entry, Event,
    RegisterWrite, ResetSeen,
};
use ringside_spec::lan::admin::{DESCRIPTOR_SIZE, Opcode as AdminOpcode};
use ringside_spec::lan::registers::name_of;
use ringside_spec::rdma::commands::CommandHeader;
use ringside_spec::rdma::layout::to_bytes;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The first line of a file.
pub const HEADER: &str = "{\"format\":\"ringside-recording\",\"version\":1}\n";

/// The reason why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The first line is another one.
    #[error(
        "line 1 is not {HEADER:?}: this is no recording, or one of another version; record it again"
    )]
    Header,
    /// A line is no JSON object.
    #[error("line {line}: {error}; the recording is damaged or cut: record it again")]
    Json {
        /// Number of the line, from 1.
        line: usize,
        /// The parser's words.
        error: String,
    },
    /// A field is missing or has a value that it cannot have.
    #[error("line {line}: field '{field}' is missing or malformed; record it again")]
    Field {
        /// Number of the line, from 1.
        line: usize,
        /// The field.
        field: &'static str,
    },
}

/// Hexadecimal digits, two a byte, in the order of memory.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // writing to a string does not fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of hexadecimal digits; `None` if it is not an even number of them.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).map(|value| value as u8))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    rest.is_empty().then_some(bytes)
}

/// The name of an operation of the admin queue, from its descriptor.
#[must_use]
pub fn admin_opcode(descriptor: &[u8; DESCRIPTOR_SIZE]) -> AdminOpcode {
    let [_, _, low, high, ..] = *descriptor;
    AdminOpcode::from_code(u16::from_le_bytes([low, high]))
}

/// The line of an entry, end of line included.
#[must_use]
pub fn line(entry: &Entry) -> String {
    let mut object = Map::new();
    object.insert("sequence".into(), entry.sequence.into());
    object.insert("function".into(), entry.function.into());
    object.insert("time_ns".into(), entry.time_ns.into());
    let fields = match &entry.event {
        Event::Admin(command) => admin(command),
        Event::AdminEvent(event) => json!({
            "kind": "admin-event",
            "name": format!("{:?}", admin_opcode(&event.descriptor)),
            "descriptor": hex(&event.descriptor),
            "body": hex(&event.body),
        }),
        Event::ControlQueue(created) => json!({
            "kind": "control-queue",
            "address": format!("{:#x}", created.address),
            "context": hex(&created.context),
            "created": created.created,
        }),
        Event::Control(command) => control(command),
        Event::Register(write) => json!({
            "kind": "register",
            "name": name_of(write.offset),
            "offset": format!("{:#x}", write.offset),
            "value": format!("{:#x}", write.value),
        }),
        Event::Reset(reset) => json!({ "kind": "reset", "name": reset.kind }),
    };
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    format!("{}\n", Value::Object(object))
}

fn admin(command: &AdminCommand) -> Value {
    json!({
        "kind": "admin",
        "name": format!("{:?}", admin_opcode(&command.before)),
        "before": hex(&command.before),
        "sent": hex(&command.sent),
        "after": command.after.map(|after| hex(&after)),
        "answered": hex(&command.answered),
    })
}

fn control(command: &ControlCommand) -> Value {
    let buffers = command.buffers.iter().map(|buffer| {
        json!({
            "name": buffer.name,
            "address": format!("{:#x}", buffer.address),
            "before": hex(&buffer.before),
            "after": buffer.after.as_deref().map(hex),
        })
    });
    json!({
        "kind": "control",
        "name": format!("{:?}", CommandHeader::of(&command.element).operation()),
        "index": command.index,
        "element": hex(&to_bytes(&command.element)),
        "buffers": buffers.collect::<Vec<_>>(),
        "completion": command.completion.map(|words| hex(&to_bytes(&words))),
    })
}

/// Reads a whole recording.
///
/// # Errors
/// [`ReadError`], with the line.
pub fn read(text: &str) -> Result<Vec<Entry>, ReadError> {
    let mut lines = (1..).zip(text.lines());
    let first = lines.next().map(|(_, line)| line);
    if first != Some(HEADER.trim_end()) {
        return Err(ReadError::Header);
    }
    let filled = lines.filter(|(_, line)| !line.trim().is_empty());
    filled.map(|(number, line)| entry(number, line)).collect()
}

fn entry(line: usize, text: &str) -> Result<Entry, ReadError> {
    let value: Value = serde_json::from_str(text).map_err(|error| ReadError::Json {
        line,
        error: error.to_string(),
    })?;
    let fields = Fields {
        value: &value,
        line,
    };
    Ok(Entry {
        sequence: fields.number("sequence")?,
        function: usize::try_from(fields.number("function")?)
            .map_err(|_| fields.wrong("function"))?,
        time_ns: fields.number("time_ns")?,
        event: fields.event()?,
    })
}

/// The fields of one object.
struct Fields<'a> {
    value: &'a Value,
    line: usize,
}

impl Fields<'_> {
    fn wrong(&self, field: &'static str) -> ReadError {
        ReadError::Field {
            line: self.line,
            field,
        }
    }

    fn text(&self, field: &'static str) -> Result<&str, ReadError> {
        let value = self.value.get(field).and_then(Value::as_str);
        value.ok_or_else(|| self.wrong(field))
    }

    fn number(&self, field: &'static str) -> Result<u64, ReadError> {
        let value = self.value.get(field).and_then(Value::as_u64);
        value.ok_or_else(|| self.wrong(field))
    }

    /// A number written as `0x...`.
    fn address(&self, field: &'static str) -> Result<u64, ReadError> {
        let digits = self.text(field)?.strip_prefix("0x");
        let value = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        value.ok_or_else(|| self.wrong(field))
    }

    fn bytes(&self, field: &'static str) -> Result<Vec<u8>, ReadError> {
        unhex(self.text(field)?).ok_or_else(|| self.wrong(field))
    }

    fn array<const N: usize>(&self, field: &'static str) -> Result<[u8; N], ReadError> {
        self.bytes(field)?.try_into().map_err(|_| self.wrong(field))
    }

    fn words<const N: usize>(&self, field: &'static str) -> Result<[u64; N], ReadError> {
        let words = ringside_spec::rdma::layout::from_bytes(&self.bytes(field)?);
        words.ok_or_else(|| self.wrong(field))
    }

    /// `None` for `null` in the file.
    fn optional<T>(
        &self,
        field: &'static str,
        read: impl FnOnce(&Self, &'static str) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        match self.value.get(field) {
            Some(Value::Null) => Ok(None),
            _ => read(self, field).map(Some),
        }
    }

    fn event(&self) -> Result<Event, ReadError> {
        Ok(match self.text("kind")? {
            "admin" => Event::Admin(AdminCommand {
                before: self.array("before")?,
                sent: self.bytes("sent")?,
                after: self.optional("after", Self::array)?,
                answered: self.bytes("answered")?,
            }),
            "admin-event" => Event::AdminEvent(AdminEvent {
                descriptor: self.array("descriptor")?,
                body: self.bytes("body")?,
            }),
            "control-queue" => Event::ControlQueue(ControlQueueCreated {
                address: self.address("address")?,
                context: self.bytes("context")?,
                created: self.value.get("created") == Some(&Value::Bool(true)),
            }),
            "control" => Event::Control(ControlCommand {
                index: u32::try_from(self.number("index")?).map_err(|_| self.wrong("index"))?,
                element: self.words("element")?,
                buffers: self.buffers()?,
                completion: self.optional("completion", Self::words)?,
            }),
            "register" => Event::Register(RegisterWrite {
                offset: self.address("offset")?,
                value: u32::try_from(self.address("value")?).map_err(|_| self.wrong("value"))?,
            }),
            "reset" => Event::Reset(ResetSeen {
                kind: self.text("name")?.to_owned(),
            }),
            _ => return Err(self.wrong("kind")),
        })
    }

    fn buffers(&self) -> Result<Vec<Buffer>, ReadError> {
        let listed = self.value.get("buffers").and_then(Value::as_array);
        let listed = listed.ok_or_else(|| self.wrong("buffers"))?;
        let read = |value| {
            let fields = Fields {
                value,
                line: self.line,
            };
            Ok(Buffer {
                name: fields.text("name")?.to_owned(),
                address: fields.address("address")?,
                before: fields.bytes("before")?,
                after: fields.optional("after", Self::bytes)?,
            })
        };
        listed.iter().map(read).collect()
    }
}
