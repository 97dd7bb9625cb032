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
fn claiming_what_is_no_card_of_this_machine_says_so() {
    let clock: Arc<dyn Clock> = Arc::new(crate::TscClock::new());
    let claim = |text: &str| {
        let address = text.parse().unwrap();
        VfioFunction::claim(&address, Arc::clone(&clock)).unwrap_err()
    };
    let address = "fffe:fe:1f.7".to_owned();
    assert_eq!(claim(&address), ClaimError::NoSuchFunction { address });
    assert!(matches!(claim("model:0"), ClaimError::NotPci { .. }));
}
