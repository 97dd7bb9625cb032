use super::text::{ReadError, hex, line, read, unhex};
use super::*;
use crate::firmware::tests::client::Client;
use ringside_spec::lan::admin::generic::NoParameters;
use ringside_spec::lan::admin::{Descriptor, Opcode};
use std::sync::mpsc;

fn one_of_each() -> Vec<Entry> {
    let events = [
        Event::Admin(AdminCommand {
            before: [1; 32],
            sent: vec![2, 0xFE],
            after: Some([3; 32]),
            answered: vec![],
        }),
        Event::Admin(AdminCommand {
            before: [1; 32],
            sent: vec![],
            after: None,
            answered: vec![9; 4096],
        }),
        Event::AdminEvent(AdminEvent {
            descriptor: [4; 32],
            body: vec![5],
        }),
        Event::ControlQueue(ControlQueueCreated {
            address: u64::MAX,
            context: vec![6; 64],
            created: true,
        }),
        Event::Control(ControlCommand {
            index: 2047,
            element: [u64::MAX, 1, 2, 3, 4, 5, 6, 7],
            buffers: vec![Buffer {
                name: "page list".into(),
                address: 12,
                before: vec![7, 8],
                after: Some(vec![8, 7]),
            }],
            completion: Some([9, 10, 11, 12]),
        }),
        Event::Control(ControlCommand {
            index: 0,
            element: [0; 8],
            buffers: vec![],
            completion: None,
        }),
        Event::Register(RegisterWrite {
            offset: 0x50_A080,
            value: u32::MAX,
        }),
        Event::Reset(ResetSeen {
            kind: "Function".into(),
        }),
    ];
    let numbered = (0..).zip(events);
    let entry = |(sequence, event)| Entry {
        sequence,
        function: 1,
        time_ns: 1000 * sequence,
        event,
    };
    numbered.map(entry).collect()
}

#[test]
fn what_is_written_reads_back_the_same() {
    let entries = one_of_each();
    let lines: String = entries.iter().map(line).collect();
    assert_eq!(lines.lines().count(), entries.len());
    assert_eq!(read(&format!("{}{lines}", text::HEADER)), Ok(entries));
}

#[test]
fn damaged_recordings_are_refused_with_the_line() {
    assert_eq!(read(""), Err(ReadError::Header));
    assert_eq!(read("{}\n"), Err(ReadError::Header));
    let json = read(&format!("{}{{\"sequence\":", text::HEADER));
    assert!(
        matches!(json, Err(ReadError::Json { line: 2, .. })),
        "{json:?}"
    );
    // Each field of each kind of line, taken away or replaced by what it cannot be.
    let optional = ["name", "created"];
    for entry in one_of_each() {
        let good: serde_json::Value = serde_json::from_str(&line(&entry)).unwrap();
        for field in good.as_object().unwrap().keys() {
            for bad in [None, Some(serde_json::json!([1.5]))] {
                let mut object = good.as_object().unwrap().clone();
                match bad {
                    None => object.remove(field),
                    Some(bad) => object.insert(field.clone(), bad),
                };
                let text = format!("{}{}", text::HEADER, serde_json::Value::Object(object));
                let refused = matches!(read(&text), Err(ReadError::Field { line: 2, .. }));
                let is_reset = matches!(entry.event, Event::Reset(_));
                let may_miss = optional.contains(&field.as_str()) && !is_reset;
                assert_eq!(refused, !may_miss, "{field} of {text}");
            }
        }
    }
}

#[test]
fn hexadecimal_digits_come_in_pairs() {
    assert_eq!(hex(&[0, 0xA5, 0xFF]), "00a5ff");
    assert_eq!(unhex("00a5FF"), Some(vec![0, 0xA5, 0xFF]));
    for bad in ["0", "0g", "é0", " 00"] {
        assert_eq!(unhex(bad), None, "{bad}");
    }
}

#[test]
fn commands_resets_and_register_writes_are_recorded_once_somebody_asks() {
    let mut client = Client::ready();
    let recorder = Recorder::in_memory(1000);
    client.world.with(|world| world.record(&recorder));
    assert_eq!(recorder.count(), 0, "nothing before it was asked for");
    let reserved = [0; 16];
    client
        .direct(Opcode::GetVersion, &NoParameters { reserved })
        .ok();
    client.function.reset().unwrap();
    let entries = recorder.take();
    let Some(Event::Admin(command)) = entries.first().map(|entry| &entry.event) else {
        panic!("{entries:?}");
    };
    assert_eq!(text::admin_opcode(&command.before), Opcode::GetVersion);
    let answer = Descriptor::read(&command.after.unwrap()).unwrap();
    assert!(answer.flags().done() && !answer.flags().error());
    let last = entries.last().map(|entry| &entry.event);
    let kind = "FunctionLevel".to_owned();
    assert_eq!(last, Some(&Event::Reset(ResetSeen { kind })));
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!((recorder.take(), recorder.count()), (vec![], 2));
}

struct Channel(mpsc::Sender<Vec<u8>>, usize);

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let full = std::io::ErrorKind::StorageFull;
        self.1 = self.1.checked_sub(1).ok_or(full)?;
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_line_is_written_whole_and_a_failing_file_ends_the_recording_alone() {
    let (sender, lines) = mpsc::channel();
    let recorder = Recorder::to_writer(Box::new(Channel(sender, 3)));
    let event = Event::Register(RegisterWrite {
        offset: 4,
        value: 5,
    });
    for _ in 0..3 {
        recorder.note(0, 7, event.clone());
    }
    let written: Vec<_> = lines.try_iter().collect();
    assert_eq!(written.len(), 3, "header and two entries, one write each");
    let text = String::from_utf8(written.concat()).unwrap();
    assert_eq!(read(&text).unwrap().len(), 2);
    assert!(recorder.failure().is_some());
    assert_eq!(recorder.count(), 3);
}
