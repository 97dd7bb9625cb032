use super::*;
use ringside_spec::rdma::commands::PageSize;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

#[test]
fn one_buffer_needs_no_page_list() {
    let pages = Pages::of_pieces(&[(0x1_0000_0040, 128)]).unwrap();
    assert_eq!(pages.address, 0x1_0000_0040);
    assert_eq!((pages.start, pages.list.len()), (0x1_0000_0000, 0));
}

#[test]
fn buffers_that_follow_each_other_need_no_page_list() {
    let pages = Pages::of_pieces(&[(0x10_0000, 4096), (0x10_1000, 64)]).unwrap();
    assert!(pages.list.is_empty());
    assert_eq!(pages.length, 4160);
}

#[test]
fn buffers_with_gaps_are_listed_page_by_page_from_where_the_first_begins() {
    let pages = Pages::of_pieces(&[(0x10_0800, 0x800 + 0x1000), (0x20_0000, 100)]).unwrap();
    assert_eq!(pages.size, PageSize::FourKib);
    assert_eq!(pages.list, [0x10_0000, 0x10_1000, 0x20_0000]);
}

#[test]
fn the_largest_page_that_all_seams_agree_with_is_taken() {
    let two = [(4 * GIB, 4 * MIB), (8 * GIB, 2 * MIB)];
    let pages = Pages::of_pieces(&two).unwrap();
    assert_eq!((pages.size, pages.list.len()), (PageSize::TwoMib, 3));
    let huge = [(4 * GIB, GIB), (8 * GIB, GIB)];
    let pages = Pages::of_pieces(&huge).unwrap();
    assert_eq!((pages.size, pages.list.len()), (PageSize::OneGib, 2));
}

#[test]
fn a_seam_within_a_page_is_refused_with_the_buffer_that_makes_it() {
    let error = Pages::of_pieces(&[(0x1000, 100), (0x3000, 4096)]).unwrap_err();
    assert!(
        matches!(error, RdmaError::Misaligned { index: 0, .. }),
        "{error}"
    );
    let error = Pages::of_pieces(&[(0x1000, 4096), (0x3040, 4096)]).unwrap_err();
    assert!(
        matches!(error, RdmaError::Misaligned { index: 1, .. }),
        "{error}"
    );
}

#[test]
fn no_memory_at_all_is_refused() {
    assert!(Pages::of_pieces(&[]).is_err());
}

#[test]
fn remote_write_includes_local_write() {
    let rights = Access::REMOTE_WRITE.rights();
    assert!(rights.local_write() && rights.remote_write() && rights.local_read());
    assert!(!rights.remote_read());
    assert!(!Access::LOCAL_WRITE.is_remote());
    assert!(Access::REMOTE_READ.is_remote());
}

#[test]
fn an_address_that_wraps_is_refused_as_that() {
    let plan = || Pages::of_pieces(&[(0x1000, 4096)]).unwrap();
    let last = u64::MAX - 4095;
    let error = plan().check_base(Base::Named(last)).unwrap_err();
    assert!(matches!(error, RdmaError::OutOfRange { .. }), "{error}");
    plan().check_base(Base::Named(last - 4096)).unwrap();
    let error = plan().check_base(Base::Named(8)).unwrap_err();
    assert!(
        matches!(error, RdmaError::Misnamed { offset: 0, .. }),
        "{error}"
    );
}

#[test]
fn a_region_of_a_failed_device_is_not_said_to_have_windows() {
    use crate::failure::FailureCause;
    let cause = FailureCause::FunctionReset;
    let said = super::error::in_use(&RdmaError::DeviceFailed { cause });
    assert!(!said.contains("window"), "{said}");
    assert!(said.contains("Device::recover"), "{said}");
}
