use super::*;

fn ordinary(length: usize) -> Memory {
    Memory::allocate(length, PageSize::FourKiB, None).unwrap()
}

#[test]
fn memory_starts_zeroed_and_keeps_what_is_written_at_any_length_and_offset() {
    let memory = ordinary(8192);
    let mut all = vec![1; 8192];
    assert!(memory.read(0, &mut all));
    assert!(all.iter().all(|&byte| byte == 0));
    for length in [0usize, 1, 7, 8, 9, 63, 64, 65, 127, 1000] {
        for offset in [0usize, 1, 3, 4091] {
            let data: Vec<u8> = (0..length)
                .map(|i| (i * 7 + offset + length) as u8)
                .collect();
            assert!(memory.write(offset, &data));
            let mut back = vec![0; length];
            assert!(memory.read(offset, &mut back));
            assert_eq!(back, data, "{length} at {offset}");
        }
    }
}

#[test]
fn ranges_outside_are_refused_and_touch_nothing() {
    let memory = ordinary(4096);
    assert!(!memory.write(4090, &[1; 7]));
    assert!(!memory.read(usize::MAX, &mut [0; 2]));
    assert!(!memory.fill(0, 4097, 1));
    assert!(!Memory::copy(&memory, 0, &memory, 4000, 97));
    assert!(memory.words(8, 4096).is_none());
    assert!(memory.words(4, 8).is_none());
    let mut all = vec![1; 4096];
    assert!(memory.read(0, &mut all));
    assert!(all.iter().all(|&byte| byte == 0));
}

#[test]
fn words_and_bytes_see_the_same_memory_little_endian() {
    let memory = ordinary(4096);
    let words = memory.words(64, 64).unwrap();
    words.store_release(1, 0x0102_0304_0506_0708);
    let mut bytes = [0; 8];
    assert!(memory.read(72, &mut bytes));
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
    let part = words.part(1..3).unwrap();
    assert_eq!(
        (part.load_acquire(0), part.count()),
        (0x0102_0304_0506_0708, 2)
    );
    assert!(words.part(7..9).is_none());
}

#[test]
fn a_view_outlives_the_value_it_was_taken_from() {
    let words = ordinary(4096).words(0, 4096).unwrap();
    words.store(511, 5);
    assert_eq!(words.load(511), 5);
}

#[test]
fn copies_of_every_length_and_alignment_move_their_bytes_and_no_others() {
    let (from, to) = (ordinary(4096), ordinary(4096));
    let pattern: Vec<u8> = (0..256).map(|index| index as u8 ^ 0x5A).collect();
    assert!(from.write(0, &pattern));
    for (length, at, onto) in
        (0..=140).flat_map(|length| (0..64).map(move |both| (length, both / 8, 32 + both % 8)))
    {
        let context = format!("{length} bytes from {at} to {onto}");
        let expected = pattern.get(at..at + length).unwrap();
        // From one memory to the other, and through bytes of the program.
        let mut bytes = vec![0; length + 1];
        assert!(from.read(at, &mut bytes[..length]), "{context}");
        assert_eq!(
            (&bytes[..length], bytes[length]),
            (expected, 0),
            "{context}"
        );
        for direct in [true, false] {
            assert!(to.write(0, &[0xEE; 256]));
            let copied = match direct {
                true => Memory::copy(&from, at, &to, onto, length),
                false => to.write(onto, expected),
            };
            let mut all = [0; 256];
            assert!(copied && to.read(0, &mut all), "{context}");
            let (before, rest) = all.split_at(onto);
            let (middle, after) = rest.split_at(length);
            assert_eq!(middle, expected, "{context}");
            let mut others = before.iter().chain(after);
            assert!(others.all(|byte| *byte == 0xEE), "{context}");
        }
    }
}

#[test]
fn a_second_mapping_of_the_descriptor_is_the_same_memory() {
    let memory = ordinary(4096);
    let descriptor = memory.descriptor().unwrap().try_clone_to_owned().unwrap();
    let other = Memory::from_descriptor(descriptor, 4096).unwrap();
    assert!(memory.write(100, b"shared"));
    let mut bytes = [0; 6];
    assert!(other.read(100, &mut bytes));
    assert_eq!(&bytes, b"shared");
    let longer = memory.descriptor().unwrap().try_clone_to_owned().unwrap();
    assert!(
        Memory::from_descriptor(longer, 8192).is_err(),
        "longer than the descriptor"
    );
}

#[test]
fn the_descriptor_cannot_shrink_under_its_users() {
    let memory = ordinary(8192);
    assert!(rustix::fs::ftruncate(memory.descriptor().unwrap(), 4096).is_err());
}

#[test]
fn huge_pages_that_are_not_there_are_an_error_with_the_command_that_reserves_them() {
    // More than any test machine reserves.
    let error = Memory::allocate(64 << 40, PageSize::OneGiB, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("nr_hugepages"), "{error}");
}

#[test]
fn more_than_the_machine_has_is_refused_before_anything_is_touched() {
    let error = Memory::allocate(1 << 44, PageSize::FourKiB, None).unwrap_err();
    assert!(
        matches!(error, MemoryError::NotEnough { length, .. } if length == 1 << 44),
        "{error}"
    );
    assert!(Memory::allocate(usize::MAX, PageSize::FourKiB, None).is_err());
}

#[test]
#[allow(unsafe_code)] // vouches for a range of its own
fn memory_of_the_application_is_reached_at_its_own_bytes_alone() {
    let mut bytes = vec![0x11u8; 5000];
    let first = NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: the range is inside the vector, which outlives `memory` and is not used meanwhile.
    let memory = unsafe { Memory::from_raw(first.add(3), 4090) };
    assert_eq!(memory.length(), 4090);
    assert!(memory.descriptor().is_none());
    assert!(memory.fill(0, 4090, 0x22));
    assert!(!memory.write(4089, &[1, 2]));
    let views = (0..8).filter(|offset| memory.words(*offset, 64).is_some());
    assert_eq!(views.count(), 1, "one offset of eight is aligned");
    drop(memory);
    assert!(
        bytes[..3]
            .iter()
            .chain(&bytes[4093..])
            .all(|byte| *byte == 0x11)
    );
    assert!(bytes[3..4093].iter().all(|byte| *byte == 0x22));
}

#[test]
fn owned_bytes_come_back_once_nothing_else_holds_them() {
    let memory = Memory::from(vec![7u8; 100]);
    let shared = memory.clone();
    let memory = memory.into_boxed().unwrap_err();
    assert!(shared.write(99, &[9]));
    drop(shared);
    let bytes = memory.into_boxed().unwrap();
    assert_eq!((bytes.len(), bytes[98], bytes[99]), (100, 7, 9));
    let file = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    assert!(file.into_boxed().is_err());
}

#[test]
fn a_descriptor_that_does_not_fit_is_refused_with_the_remedy() {
    let refused = |file: OwnedFd, length| {
        let error = Memory::from_descriptor(file, length).unwrap_err();
        error.to_string()
    };
    let file = || {
        let file = rustix::fs::memfd_create("test", MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        file
    };
    let short = refused(file(), 8192);
    assert!(
        short.contains("4096 bytes, and 8192") && short.contains("ftruncate"),
        "{short}"
    );
    assert!(refused(file(), 0).contains("at least one byte"));
    let read_only = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert!(refused(read_only.into(), 4096).contains("O_RDWR"));
}

/// A udmabuf of the pages of a memfd, and the memfd, if the kernel has the driver.
fn dma_buf(length: usize) -> Option<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::{AsRawFd, FromRawFd};
    let driver = rustix::fs::open("/dev/udmabuf", OFlags::RDWR, Mode::empty()).ok()?;
    let file = create_descriptor(length, PageSize::FourKiB).unwrap();
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    // UDMABUF_CREATE. Source: linux/udmabuf.h
    const CREATE: libc::Ioctl = 0x4018_7542;
    let mut create = Create {
        memfd: file.as_raw_fd() as u32,
        flags: 1,
        offset: 0,
        size: length as u64,
    };
    // SAFETY: the request reads the struct.
    let made = unsafe { libc::ioctl(driver.as_raw_fd(), CREATE, &raw mut create) };
    assert!(made >= 0, "udmabuf: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor.
    Some((unsafe { OwnedFd::from_raw_fd(made) }, file))
}

#[test]
fn a_dma_buf_is_mapped_whole() {
    let Some((descriptor, file)) = dma_buf(16384) else {
        eprintln!("no /dev/udmabuf: not run");
        return;
    };
    let memory = Memory::from_dma_buf(descriptor).unwrap();
    assert!(memory.is_dma_buf() && memory.length() == 16384);
    assert!(memory.write(12288, &[0x6D]));
    let mut byte = [0];
    rustix::io::pread(&file, &mut byte, 12288).unwrap();
    assert_eq!(byte, [0x6D]);
}
