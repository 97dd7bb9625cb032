use super::*;

fn all_spans() -> Vec<(&'static str, u64)> {
    let mut spans: Vec<(&str, u64)> = Vec::new();
    for list in [
        reset::SINGLE,
        control_queues::SINGLE,
        interrupts::SINGLE,
        queues::SINGLE,
        filters::SINGLE,
        statistics::SINGLE,
        clock::SINGLE,
    ] {
        spans.extend(list.iter().copied());
    }
    for ring in control_queues::RINGS {
        for register in control_queues::RingRegister::ALL {
            spans.push((ring.c_name, ring.offset_of(register)));
        }
    }
    for list in [
        interrupts::ARRAYS,
        queues::ARRAYS,
        filters::ARRAYS,
        statistics::ARRAYS,
        clock::ARRAYS,
    ] {
        for array in list {
            spans.extend((0..array.count).map(|index| (array.c_name, array.at(index))));
        }
    }
    for list in [
        interrupts::GRIDS,
        queues::GRIDS,
        filters::GRIDS,
        statistics::GRIDS,
    ] {
        for grid in list {
            for row in 0..grid.rows {
                spans.extend((0..grid.count).map(|index| (grid.c_name, grid.at(row, index))));
            }
        }
    }
    spans
}

#[test]
fn no_two_registers_share_an_offset() {
    let mut spans = all_spans();
    spans.sort_by_key(|(_, offset)| *offset);
    for pair in spans.windows(2) {
        assert!(
            pair[0].1 != pair[1].1,
            "{} and {} at {:#x}",
            pair[0].0,
            pair[1].0,
            pair[0].1
        );
    }
    assert!(spans.iter().all(|(_, offset)| offset % 4 == 0));
    assert!(
        spans
            .iter()
            .all(|(_, offset)| *offset < crate::lan::identity::REGISTER_BAR_SIZE_MIN)
    );
}

#[test]
fn registers_are_named_as_the_data_sheet_does() {
    assert_eq!(name_of(0x09_1000), Some("PFGEN_CTRL"));
    assert_eq!(name_of(0x08_0300), Some("PF_FW_ATQH"));
    assert_eq!(name_of(0x29_0000 + 4 * 7), Some("QRX_TAIL"));
    assert_eq!(name_of(0x15_4000 + 0x2000 + 4 * 9), Some("GLINT_ITR"));
    assert_eq!(name_of(0x38_0008), Some("GLPRT_GORC"));
    assert_eq!(name_of(0x08_88D0 + 4), Some("GLTSYN_TIME_L"));
    assert_eq!(name_of(0x7F_FFFC), None);
}

#[test]
fn a_ring_finds_its_registers() {
    use control_queues::{ADMIN_SEND, RingRegister};
    assert_eq!(ADMIN_SEND.register_at(0x08_0400), Some(RingRegister::Tail));
    assert_eq!(ADMIN_SEND.register_at(0x08_0480), None);
}
