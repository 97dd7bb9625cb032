use super::dma::memlock_reason;
use super::*;
use crate::vfio::memlock::Memlock;

#[test]
fn a_memlock_limit_that_is_too_low_is_named_with_the_value_that_is_needed() {
    let limit = |soft| Some(Memlock { soft, hard: soft });
    let text = memlock_reason(limit(Some(8 << 20)), 6 << 20, 4 << 20);
    for wanted in [
        "10485760 bytes",
        "8388608",
        "10240 KiB",
        "limits.conf",
        "LimitMEMLOCK",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    for unlimited in [limit(None), limit(Some(1 << 30)), None] {
        let text = memlock_reason(unlimited, 6 << 20, 4 << 20);
        assert!(text.contains("no memory to pin"), "{text}");
    }
}

#[test]
fn the_interrupt_table_is_found_in_configuration_space() {
    let mut bytes = [0; SNAPSHOT_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0x00, &[0x86, 0x80, 0x92, 0x15, 0x06, 0x04, 0x10, 0x00]);
    put(0x34, &[0x70]);
    put(0x70, &[0x11, 0x00, 0xFF, 0x01, 0x03, 0x80, 0x00, 0x00]);
    let table = msix_table(&bytes).unwrap();
    assert_eq!((table.bar, table.offset, table.bytes), (3, 0x8000, 8192));
    assert_eq!(msix_table(&[0; SNAPSHOT_BYTES]), None);
}

#[test]
fn claiming_an_address_that_is_not_a_card_is_an_error() {
    let clock: Arc<dyn Clock> = Arc::new(crate::TscClock::new());
    let claim = |text: &str| {
        let address = text.parse().unwrap();
        VfioFunction::claim(&address, Arc::clone(&clock)).unwrap_err()
    };
    let address = "fffe:fe:1f.7".to_owned();
    assert_eq!(claim(&address), ClaimError::NoSuchFunction { address });
    assert!(matches!(claim("model:0"), ClaimError::NotPci { .. }));
}

#[test]
fn a_dma_buf_is_refused_by_name_and_other_memory_is_not() {
    let file = |bytes: u64| {
        let made = rustix::fs::memfd_create("dma-buf", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&made, bytes).unwrap();
        made
    };
    let memory = Memory::from_dma_buf(file(8192)).unwrap();
    assert!(memory.is_dma_buf() && memory.length() == 8192);
    let text = super::dma::refuse_dma_buf(&memory).unwrap_err().to_string();
    for wanted in ["VFIO", "dma-buf", "type 1", "memory behind"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(Memory::from_dma_buf(file(0)).is_err(), "nothing to map");
    let memory = Memory::from_descriptor(file(8192), 8192).unwrap();
    assert_eq!(super::dma::refuse_dma_buf(&memory), Ok(()));
}

#[test]
fn kernels_that_copy_pinned_pages_at_a_fork_are_told_from_older_ones() {
    for (release, copies) in [
        ("6.1.0-18-amd64\n", true),
        ("5.12.0", true),
        ("5.11.22", false),
        ("4.19.0-26-amd64", false),
        ("10.0-rc1", true),
        ("", false),
    ] {
        assert_eq!(
            super::dma::copies_pinned_pages(release),
            copies,
            "{release}"
        );
    }
}
