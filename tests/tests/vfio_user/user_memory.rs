//! Memory of the application, mapped for a device in another process.

use super::Served;
use super::driver::{devices, ends};
use ringside_pmd::Device;
use ringside_pmd::rdma::{Access, Flags, Memory};
use ringside_testkit::{ConnectedEnd, shut_down};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Bytes of each piece of memory: no whole page.
const LENGTH: usize = 10_001;

fn memfd(flags: MemfdFlags) -> OwnedFd {
    let file = memfd_create("test", flags).unwrap();
    ftruncate(&file, LENGTH as u64).unwrap();
    file
}

fn of_file(file: OwnedFd) -> Memory {
    Memory::from_descriptor(file, LENGTH).unwrap()
}

/// The peer writes to the memory and reads it again. Returns the memory.
fn use_it(
    what: &str,
    (device, own): (&Device, &ConnectedEnd),
    peer: &mut ConnectedEnd,
    memory: Memory,
) -> Memory {
    let buffer = device.map_memory(memory);
    let buffer = buffer.unwrap_or_else(|refused| panic!("{what}: {}", refused.error));
    let domain = own.target.protection_domain();
    let region = domain.register(buffer, Access::ALL).unwrap();
    let pattern: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + what.len()) as u8).collect();
    assert!(peer.source.write(0, &pattern));
    let (there, here) = (region.remote().at(0), LENGTH);
    let piece = [peer.source.slice(0..LENGTH).unwrap()];
    peer.queue_pair
        .write(1, &piece, there, Flags::SIGNALLED)
        .unwrap();
    let piece = [peer.source.slice(here..2 * LENGTH).unwrap()];
    peer.queue_pair
        .read(2, &piece, there, Flags::SIGNALLED)
        .unwrap();
    peer.queue_pair.ring();
    assert_eq!(peer.wait(2).len(), 2, "{what}");
    let mut seen = vec![0; LENGTH];
    assert!(region.read(0, &mut seen) && seen == pattern, "{what}");
    assert!(
        peer.source.read(here, &mut seen) && seen == pattern,
        "{what}"
    );
    let [buffer] = <[_; 1]>::try_from(region.deregister().unwrap()).unwrap();
    buffer.into_memory().unwrap()
}

#[test]
fn memory_of_any_kind_is_mapped_for_a_server_and_files_stay_as_they_are() {
    let served = Served::start(true);
    let devices = devices(&served);
    {
        let [mut peer, own] = ends(&devices, 1 << 16);
        let mut used = |what: &str, memory| use_it(what, (&devices[1], &own), &mut peer, memory);
        let back = used("a vector", vec![0_u8; LENGTH].into());
        assert_eq!(back.into_boxed().unwrap().len(), LENGTH);
        used("a box", vec![0_u8; LENGTH].into_boxed_slice().into());
        used("sparse memory", Memory::sparse(LENGTH).unwrap());
        let sealable = memfd(MemfdFlags::ALLOW_SEALING);
        let kept = sealable.try_clone().unwrap();
        used("a memfd", of_file(sealable));
        ftruncate(&kept, 1).expect("the server must not seal a file of the program");
        used("a memfd without seals", of_file(memfd(MemfdFlags::empty())));
        let on_disk = tempfile::tempfile().unwrap();
        on_disk.set_len(LENGTH as u64).unwrap();
        used("a file", of_file(on_disk.into()));
        let shared = tempfile::tempfile_in("/dev/shm").unwrap();
        File::set_len(&shared, LENGTH as u64).unwrap();
        used("shared memory", of_file(shared.into()));
    }
    let mapped = served.with(|world| world.snapshot(1).unwrap().mappings.len());
    shut_down(devices);
    assert!(mapped > 0);
    let breaches = served.with(|world| [world.breaches(0), world.breaches(1)]);
    assert_eq!(breaches, [vec![], vec![]], "the driver broke the interface");
}
