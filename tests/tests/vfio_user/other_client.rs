//! The crate `vfio_user` as the client of our server.
//!
//! It treats every reply as a success, so refusals are checked in the model instead.

use super::Served;
use ringside_bus::Iova;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use vfio_user::Client;

fn sealed_memory(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create("peer", flags).unwrap();
    rustix::fs::ftruncate(&memory, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
    memory
}

#[test]
fn another_client_finds_regions_areas_and_interrupts() {
    let served = Served::start(true);
    let mut client = Client::new(&served.sockets[0]).unwrap();
    let bar = client.region(0).unwrap();
    assert_eq!(bar.size, 32 << 20);
    assert!(
        bar.file_offset.is_some(),
        "a descriptor for the doorbell page"
    );
    let areas: Vec<_> = bar
        .sparse_areas
        .iter()
        .map(|area| (area.offset, area.size))
        .collect();
    assert_eq!(areas, [(0x7F_0000, 4096)]);
    assert_eq!(client.region(7).unwrap().size, 4096);
    assert_eq!(client.region(6).unwrap().size, 0);
    let mut vendor = [0; 4];
    client.region_read(7, 0, &mut vendor).unwrap();
    assert_eq!(vendor, [0x86, 0x80, 0x92, 0x15]);
    let msix = client.get_irq_info(2).unwrap();
    assert_eq!((msix.index, msix.count), (2, 1024));
    assert_eq!(client.get_irq_info(0).unwrap().count, 0);
}

#[test]
fn another_client_maps_memory_raises_interrupts_and_resets() {
    let served = Served::start(false);
    let mut client = Client::new(&served.sockets[0]).unwrap();
    let memory = sealed_memory(16384);
    client
        .dma_map(4096, 0x10_0000, 8192, memory.as_raw_fd())
        .unwrap();
    client.region_write(7, 4, &[6, 0]).unwrap();
    rustix::io::pwrite(&memory, b"from the client", 4096).unwrap();
    let read = served.with(|world| {
        let space = world.space(0).unwrap();
        let mut bytes = [0; 15];
        space.read(Iova(0x10_0000), &mut bytes).unwrap();
        space.write(Iova(0x10_1000), b"from the device").unwrap();
        bytes
    });
    assert_eq!(&read, b"from the client");
    let mut bytes = [0; 15];
    rustix::io::pread(&memory, &mut bytes, 8192).unwrap();
    assert_eq!(&bytes, b"from the device");

    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    // event descriptors, to be raised when the device triggers; then triggered by the client
    client
        .set_irqs(2, 0x24, 3, 1, &[event.as_raw_fd()])
        .unwrap();
    assert_eq!(served.with(|world| world.snapshot(0).unwrap().vectors), [3]);
    client.set_irqs(2, 0x21, 3, 1, &[]).unwrap();
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);

    client.reset().unwrap();
    let after = served.with(|world| world.snapshot(0).unwrap());
    assert_eq!((after.vectors, after.mappings.len()), (vec![], 1));
    client.dma_unmap(0x10_0000, 8192).unwrap();
    assert_eq!(
        served.with(|world| world.snapshot(0).unwrap().mappings.len()),
        0
    );
    client.shutdown().unwrap();
}
