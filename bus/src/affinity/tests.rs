use super::*;

/// Lines as Linux prints them: on a card, on a shared line, of another function, and an
/// architecture's own.
const LINES: &str = "\
           CPU0       CPU1
  1:          9          0  IR-IO-APIC    1-edge      i8042
 45:          0        120  IR-PCI-MSIX-0000:3b:00.0    0-edge      vfio-msix[0](0000:3b:00.0)
 46:          7          0  IR-PCI-MSIX-0000:3b:00.0    1-edge      vfio-msix[1](0000:3b:00.0)
 47:          7          0  IR-PCI-MSIX-0000:3b:00.1    1-edge      vfio-msix[1](0000:3b:00.1)
128:          0          0  IR-PCI-MSIX-0000:3b:00.0   10-edge      other, vfio-msix[10](0000:3b:00.0)
NMI:          0          0   Non-maskable interrupts
";

#[test]
fn a_vector_is_found_by_its_name_and_its_function() {
    let number = |address, vector| number_of(LINES, address, vector);
    assert_eq!(number("0000:3b:00.0", 0), Some(45));
    assert_eq!(number("0000:3b:00.0", 1), Some(46));
    assert_eq!(number("0000:3b:00.1", 1), Some(47));
    assert_eq!(number("0000:3b:00.0", 10), Some(128));
    assert_eq!(number("0000:3b:00.0", 2), None);
    assert_eq!(number("0000:3b:00", 1), None);
    assert_eq!(
        number_of("vfio-msix[0](0000:3b:00.0)", "0000:3b:00.0", 0),
        None
    );
}

/// A table with interrupt 46, whose affinity file has the text `before`.
fn table(before: Option<&str>) -> (tempfile::TempDir, InterruptTable) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("interrupts"), LINES).unwrap();
    let interrupt = folder.path().join("irq/46");
    std::fs::create_dir_all(&interrupt).unwrap();
    if let Some(before) = before {
        std::fs::write(interrupt.join("smp_affinity_list"), before).unwrap();
    }
    let table = InterruptTable::below(folder.path());
    (folder, table)
}

#[test]
fn binding_writes_the_core_to_the_interrupt_of_the_vector() {
    let (folder, table) = table(Some(""));
    assert_eq!(table.bind("0000:3b:00.0", 1, 17).unwrap(), 46);
    let file = folder.path().join("irq/46/smp_affinity_list");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "17");
}

#[test]
fn refusals_name_the_file_and_the_remedy() {
    let (folder, found) = table(None);
    let missing = found.bind("0000:3b:00.0", 5, 3).unwrap_err().to_string();
    assert!(missing.contains("vector 5 of 0000:3b:00.0"), "{missing}");
    assert!(missing.contains("connect it first"), "{missing}");
    let refused = found.bind("0000:3b:00.0", 1, 3).unwrap_err();
    assert!(matches!(refused, AffinityError::Refused { core: 3, .. }));
    assert!(refused.to_string().contains("irq/46/smp_affinity_list"));
    let gone = InterruptTable::below(&folder.path().join("none"));
    let gone = gone.bind("0000:3b:00.0", 1, 3).unwrap_err();
    assert!(matches!(gone, AffinityError::Refused { .. }), "{gone}");
}

#[test]
fn a_file_that_may_not_be_written_is_told_from_one_that_is_not_there() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
        assert!(is_forbidden(&Error::from(kind)));
    }
    assert!(!is_forbidden(&Error::from(ErrorKind::NotFound)));
    assert!(!is_forbidden(&Error::from(ErrorKind::InvalidInput)));
}
