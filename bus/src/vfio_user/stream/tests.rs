use super::*;
use crate::vfio_user::Command;
use rustix::event::{EventfdFlags, eventfd};
use std::io::Write;

fn pair() -> (UnixStream, Stream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ours, Stream::new(theirs).unwrap())
}

fn message(stream: &mut Stream) -> Message {
    match stream.receive().unwrap() {
        Received::Message(message) => message,
        other => panic!("{other:?}"),
    }
}

fn nothing(stream: &mut Stream) -> bool {
    matches!(stream.receive().unwrap(), Received::Nothing)
}

#[test]
fn a_message_that_comes_byte_by_byte_is_one_message() {
    let (mut ours, mut stream) = pair();
    let bytes = Header::command(7, Command::RegionWrite, false, b"payload");
    for byte in &bytes {
        assert!(nothing(&mut stream));
        ours.write_all(&[*byte]).unwrap();
    }
    let message = message(&mut stream);
    assert_eq!((message.header.id, &message.body[..]), (7, &b"payload"[..]));
    assert!(nothing(&mut stream));
}

#[test]
fn messages_that_come_together_keep_their_own_descriptors() {
    let (ours, mut stream) = pair();
    let mut ours = Stream::new(ours).unwrap();
    let event = || eventfd(0, EventfdFlags::empty()).unwrap();
    for id in 0..4u16 {
        let events: Vec<_> = (0..id).map(|_| event()).collect();
        let events: Vec<_> = events.iter().map(AsFd::as_fd).collect();
        let bytes = Header::command(id, Command::DmaMap, false, &[0; 32]);
        ours.send(bytes, &events).unwrap();
    }
    for id in 0..4 {
        let message = message(&mut stream);
        assert_eq!(message.header.id, id);
        assert_eq!(message.descriptors.len(), usize::from(id));
    }
}

#[test]
fn a_size_below_the_header_is_a_fault_and_the_stream_goes_on() {
    let (mut ours, mut stream) = pair();
    for size in [0u32, 15] {
        let mut bytes = Header::command(1, Command::Reset, false, &[]);
        bytes[4..8].copy_from_slice(&size.to_ne_bytes());
        ours.write_all(&bytes).unwrap();
        assert_eq!(message(&mut stream).fault, Some(Fault::TooShort(size)));
    }
    ours.write_all(&Header::command(2, Command::Reset, false, &[]))
        .unwrap();
    assert_eq!(message(&mut stream).header.id, 2);
}

#[test]
fn an_oversized_message_is_a_fault_at_once_and_is_thrown_away_as_it_comes() {
    let (mut ours, mut stream) = pair();
    let size = MAX_MESSAGE_BYTES + 100_000;
    let mut bytes = Header::command(1, Command::RegionWrite, false, &[]);
    bytes[4..8].copy_from_slice(&(size as u32).to_ne_bytes());
    ours.write_all(&bytes).unwrap();
    let refused = message(&mut stream);
    assert_eq!(refused.fault, Some(Fault::TooLong(size as u32)));
    let writer = std::thread::spawn(move || {
        ours.write_all(&vec![0xAA; size - HEADER_BYTES]).unwrap();
        ours.write_all(&Header::command(2, Command::Reset, false, &[]))
            .unwrap();
        ours
    });
    let next = loop {
        match stream.receive().unwrap() {
            Received::Message(message) => break message,
            Received::Nothing => stream.wait(false, Duration::from_millis(10)).unwrap(),
            Received::Closed => panic!("closed"),
        }
    };
    assert_eq!((next.header.id, next.fault), (2, None));
    writer.join().unwrap();
}

#[test]
fn more_descriptors_than_were_offered_room_for_are_a_fault_and_are_closed() {
    let (ours, mut stream) = pair();
    let event = eventfd(0, EventfdFlags::empty()).unwrap();
    let many = vec![event.as_fd(); MAX_MESSAGE_DESCRIPTORS as usize + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    let bytes = Header::command(1, Command::SetInterrupts, false, &[]);
    rustix::net::sendmsg(
        &ours,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::empty(),
    )
    .unwrap();
    assert_eq!(message(&mut stream).fault, Some(Fault::TooManyDescriptors));
}

#[test]
fn bytes_that_do_not_fit_are_kept_and_sent_later_in_order() {
    let (ours, mut stream) = pair();
    let mut ours = Stream::new(ours).unwrap();
    let large = Header::command(9, Command::RegionRead, false, &vec![0x5A; 1 << 20]);
    ours.send(large.clone(), &[]).unwrap();
    assert!(ours.is_clogged(), "a megabyte does not fit into a socket");
    let mut received = None;
    for _ in 0..10_000 {
        if let Received::Message(message) = stream.receive().unwrap() {
            received = Some(message);
            break;
        }
        ours.flush().unwrap();
    }
    let received = received.unwrap();
    assert_eq!(received.body, large[HEADER_BYTES..]);
    assert!(ours.flush().unwrap());
}

#[test]
fn the_end_of_the_other_side_is_seen_even_in_the_middle_of_a_message() {
    for bytes in [0, 5, 16, 18] {
        let (mut ours, mut stream) = pair();
        let whole = Header::command(1, Command::DeviceInfo, false, &[0; 16]);
        ours.write_all(&whole[..bytes]).unwrap();
        drop(ours);
        assert!(matches!(stream.receive().unwrap(), Received::Closed));
        let sent = stream.send(whole, &[]);
        assert!(sent.is_err(), "the other side is closed");
    }
}
