//! A server in a process with few descriptors; a test program of its own, since the limit is that
//! of the process.

use ringside_bus::function::DmaAccess;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{Function, FunctionError, Iova, Memory, PageSize, TscClock};
use ringside_server::vfio_user::{Server, ServerSettings};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptors of this process, which is both the server and its clients.
const DESCRIPTORS: u64 = 256;

fn client(path: &Path) -> Result<VfioUserFunction, FunctionError> {
    VfioUserFunction::connect(path, Arc::new(TscClock::new()), ClientLimits::default())
}

/// A file of the program that cannot shrink.
fn sealed_file() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("test", flags).unwrap();
    ftruncate(&file, 4096).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

#[test]
fn a_client_that_maps_all_that_it_may_leaves_descriptors_for_the_others() {
    let limit = getrlimit(Resource::Nofile);
    let low = Rlimit {
        current: Some(DESCRIPTORS),
        ..limit
    };
    setrlimit(Resource::Nofile, low).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let paths = ["0", "1"].map(|name| folder.path().join(name));
    let mut server = Server::bind(&ServerSettings::new(paths.to_vec())).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let thread = std::thread::spawn(move || server.run(&told, |_| ()));

    let greedy = client(&paths[0]).unwrap();
    for number in 1..=2 * DESCRIPTORS {
        let memory = Memory::from_descriptor(sealed_file(), 4096).expect("a descriptor is left");
        // Beyond its share of files the client lends its address space, by one descriptor for all.
        greedy
            .map_dma(Iova(4096 * number), &memory, 0..4096, DmaAccess::ReadWrite)
            .unwrap_or_else(|error| panic!("file {number}: {error}"));
    }
    // Rings are in memory that the server maps, or nowhere.
    let rings = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let refused = greedy.map_dma(Iova(1 << 32), &rings, 0..4096, DmaAccess::ReadWrite);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("and of open files"), "{text}");
    let other = client(&paths[1]).expect("the other function");
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    other
        .map_dma(Iova(4096), &memory, 0..4096, DmaAccess::ReadWrite)
        .expect("its own share");
    greedy.read32(0, 0).expect("still served");
    drop((greedy, other));
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}
