use super::Builder;
use crate::abi::{ibv_sge, request, send_flags};

fn entry(length: u32) -> ibv_sge {
    ibv_sge {
        addr: 4096,
        length,
        lkey: 7,
    }
}

#[test]
fn data_stays_with_its_request_while_the_lists_grow() {
    let mut builder = Builder::default();
    for number in 0..100_u32 {
        let flags = send_flags::SIGNALED | send_flags::INLINE;
        builder.add(number.into(), flags, request::SEND, 0, [0; 4]);
        if number % 2 == 0 {
            builder.set_entries(&[entry(number), entry(1)]);
        } else {
            builder.set_inline([[number as u8; 3].as_slice(), b"x"].into_iter());
        }
    }
    let all: Vec<_> = builder.finish().unwrap().collect();
    assert_eq!(all.len(), 100);
    for (number, request) in all.into_iter().enumerate() {
        assert_eq!({ request.wr_id }, number as u64);
        // SAFETY: the builder's lists are as they were.
        let first = unsafe { &*request.sg_list };
        let is_inline = request.send_flags & send_flags::INLINE != 0;
        assert_eq!(
            is_inline,
            number % 2 == 1,
            "the setter decides, not the flags"
        );
        if is_inline {
            assert_eq!((request.num_sge, first.length), (1, 4));
            // SAFETY: as above.
            let data = unsafe { std::slice::from_raw_parts(first.addr as *const u8, 4) };
            assert_eq!(data, [number as u8, number as u8, number as u8, b'x']);
        } else {
            assert_eq!((request.num_sge, first.length), (2, number as u32));
        }
    }
}

#[test]
fn the_first_error_of_a_batch_counts_and_ends_with_it() {
    let mut builder = Builder::default();
    builder.set_entries(&[entry(1)]);
    builder.refuse(libc::EOPNOTSUPP);
    assert_eq!(builder.finish().err(), Some(libc::EINVAL), "no request");
    builder.clear();
    builder.add(1, 0, request::SEND, 0, [0; 4]);
    builder.set_entries(&[entry(1); 14]);
    assert_eq!(builder.finish().err(), Some(libc::EINVAL), "14 fragments");
    builder.clear();
    builder.add(1, 0, request::SEND, 0, [0; 4]);
    builder.set_inline([[0; 1025].as_slice()].into_iter());
    assert_eq!(builder.finish().err(), Some(libc::EINVAL), "1025 bytes");
    builder.clear();
    assert_eq!(builder.finish().unwrap().count(), 0);
}
