use super::*;
use crate::PageSize;

fn word(page: &Memory, offset: usize) -> u32 {
    let mut bytes = [0; 4];
    assert!(page.read(offset, &mut bytes));
    u32::from_le_bytes(bytes)
}

#[test]
fn a_ring_is_visible_to_all_mappings_of_the_page_until_the_doorbell_is_retired() {
    let page = Memory::window(16384, 4096, 8192).unwrap();
    let doorbell = Doorbell::mapped(&page, 4096 + 8).unwrap();
    let clone = doorbell.clone();
    clone.ring(5);
    assert_eq!(word(&page, 4096 + 8), 5);
    doorbell.retire().unwrap();
    clone.ring(7);
    doorbell.ring(8);
    assert_eq!(word(&page, 4096 + 8), 5);
    doorbell.retire().unwrap();
    // A new doorbell at the same place works.
    Doorbell::mapped(&page, 4096 + 8).unwrap().ring(9);
    assert_eq!(word(&page, 4096 + 8), 9);
}

#[test]
fn a_thread_that_rings_while_its_doorbell_is_retired_goes_on() {
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    for _ in 0..50 {
        let doorbell = Doorbell::mapped(&page, 0).unwrap();
        let clone = doorbell.clone();
        std::thread::scope(|scope| {
            let ringing = scope.spawn(move || (1..5000).for_each(|value| clone.ring(value)));
            doorbell.retire().unwrap();
            assert!(page.write(0, &[0; 4]));
            ringing.join().unwrap();
        });
        assert_eq!(word(&page, 0), 0);
    }
}

/// A thread that is held up between its look at the doorbell and its message would ring after the
/// recovery.
#[test]
fn a_message_under_way_is_sent_before_its_doorbell_is_retired() {
    let (begun, wait) = std::sync::mpsc::channel();
    let sent = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&sent);
    let doorbell = Doorbell::message(move |value| {
        begun.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        seen.store(value, Ordering::Release);
    });
    let clone = doorbell.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || clone.ring(5));
        wait.recv().unwrap();
        doorbell.retire().unwrap();
        assert_eq!(sent.load(Ordering::Acquire), 5);
        doorbell.ring(6);
        assert_eq!(sent.load(Ordering::Acquire), 5);
    });
}

#[test]
fn places_outside_or_unaligned_are_refused() {
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    for offset in [4096, 4094, 2, usize::MAX - 1] {
        assert!(Doorbell::mapped(&page, offset).is_none(), "{offset}");
    }
}
