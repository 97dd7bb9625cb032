//! Our client on a server of the crate `vfio_user`.

use super::{Directory, connect};
use ringside_bus::function::DmaAccess;
use ringside_bus::{Function, FunctionError, Iova, Memory, PageSize};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use vfio_bindings::bindings::vfio::{vfio_region_info, vfio_region_sparse_mmap_area};
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

const READ_WRITE: u32 = 3;
const MMAP: u32 = 4;

/// The server's requests, and a few registers.
struct Seen {
    registers: [u8; 256],
    maps: Vec<(u32, u64, u64, u64)>,
    map_file: Option<File>,
    unmaps: Vec<(u64, u64)>,
    interrupts: Vec<(u32, u32, u32, u32, usize)>,
    resets: u32,
}

struct Backend(Arc<Mutex<Seen>>);

fn outside() -> Error {
    Error::new(ErrorKind::InvalidInput, "outside")
}

impl ServerBackend for Backend {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let seen = self.0.lock().unwrap();
        let at = offset as usize;
        let from = seen
            .registers
            .get(at..at + data.len())
            .ok_or_else(outside)?;
        data.copy_from_slice(from);
        Ok(())
    }

    fn region_write(&mut self, _region: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut seen = self.0.lock().unwrap();
        let at = offset as usize;
        let to = seen
            .registers
            .get_mut(at..at + data.len())
            .ok_or_else(outside)?;
        to.copy_from_slice(data);
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), Error> {
        let mut seen = self.0.lock().unwrap();
        seen.maps.push((flags.bits(), offset, address, size));
        seen.map_file = fd;
        Ok(())
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, address: u64, size: u64) -> Result<(), Error> {
        self.0.lock().unwrap().unmaps.push((address, size));
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.0.lock().unwrap().resets += 1;
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> Result<(), Error> {
        let mut seen = self.0.lock().unwrap();
        seen.interrupts
            .push((index, flags, start, count, fds.len()));
        Ok(())
    }
}

/// A server of one function: BAR 0 with a page that can be mapped, and configuration space.
struct Other {
    seen: Arc<Mutex<Seen>>,
    page: Memory,
    directory: Directory,
    thread: Option<JoinHandle<()>>,
}

impl Other {
    fn start() -> Self {
        let directory = Directory::new();
        let page = Memory::window(8192, 4096, 4096).unwrap();
        let region = |index: u32| ServerRegion {
            region_info: vfio_region_info {
                argsz: 32,
                flags: match index {
                    0 => READ_WRITE | MMAP,
                    7 => READ_WRITE,
                    _ => 0,
                },
                index,
                size: if matches!(index, 0 | 7) { 8192 } else { 0 },
                ..Default::default()
            },
            sparse_areas: match index {
                0 => vec![SparseArea {
                    area: vfio_region_sparse_mmap_area {
                        offset: 4096,
                        size: 4096,
                    },
                }],
                _ => Vec::new(),
            },
            mmap_fd: (index == 0).then(|| page.descriptor().expect("a file").as_raw_fd()),
        };
        let irqs = (0..5).map(|index| IrqInfo {
            index,
            flags: 1,
            count: if index == 2 { 32 } else { 0 },
        });
        let path = directory.socket("other.sock");
        let regions = (0..9).map(region).collect();
        let server = Server::new(&path, true, irqs.collect(), regions).unwrap();
        let seen = Arc::new(Mutex::new(Seen {
            registers: [0; 256],
            maps: Vec::new(),
            map_file: None,
            unmaps: Vec::new(),
            interrupts: Vec::new(),
            resets: 0,
        }));
        let mut backend = Backend(Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            // ends when the client disconnects; a connection reset is one way to detect it
            let _ = server.run(&mut backend);
        });
        Self {
            seen,
            page,
            directory,
            thread: Some(thread),
        }
    }

    fn client(&self) -> Arc<ringside_bus::vfio_user::VfioUserFunction> {
        connect(&self.directory.socket("other.sock"))
    }

    fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn our_client_reads_writes_and_rings_on_another_server() {
    let mut other = Other::start();
    let function = other.client();
    let page = 4096..8192;
    assert_eq!(function.bar(0).unwrap().mappable, [page]);
    assert_eq!(function.interrupt_vectors().unwrap(), 32);
    function.write32(0, 16, 0x1234_5678).unwrap();
    assert_eq!(function.read32(0, 16).unwrap(), 0x1234_5678);
    function.config_write(32, &[1, 2, 3]).unwrap();
    let mut bytes = [0; 3];
    function.config_read(32, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3]);
    let doorbell = Arc::clone(&function).doorbell(0, 4096 + 64).unwrap();
    assert!(doorbell.is_mapped());
    doorbell.ring(77);
    let mut rung = [0; 4];
    assert!(other.page.read(64, &mut rung));
    assert_eq!(u32::from_le_bytes(rung), 77);
    function.reset().unwrap();
    assert_eq!(other.seen.lock().unwrap().resets, 1);
    drop((function, doorbell));
    other.join();
}

#[test]
fn refusals_of_another_server_are_errors_and_later_requests_succeed() {
    let mut other = Other::start();
    let function = other.client();
    // in the region, but not in the backend, which refuses without an errno
    let refused = function.read32(0, 1024).unwrap_err();
    assert!(matches!(refused, FunctionError::System { .. }), "{refused}");
    // it even answers, with an error, a message that requests no reply
    function.write32(0, 1024, 1).unwrap();
    function.write32(0, 4, 9).unwrap();
    assert_eq!(function.read32(0, 4).unwrap(), 9);
    drop(function);
    other.join();
}

#[test]
fn our_client_hands_memory_and_interrupts_to_another_server() {
    let mut other = Other::start();
    let function = other.client();
    let memory = Memory::allocate(16384, PageSize::FourKiB, None).unwrap();
    function
        .map_dma(Iova(0x5000), &memory, 4096..12288, DmaAccess::ReadWrite)
        .unwrap();
    assert!(memory.write(4096, b"shared"));
    {
        let seen = other.seen.lock().unwrap();
        assert_eq!(seen.maps, [(3, 4096, 0x5000, 8192)]);
        let mut bytes = [0; 6];
        let file = seen.map_file.as_ref().unwrap();
        file.read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"shared");
    }
    function.unmap_dma(Iova(0x5000), 8192).unwrap();
    assert_eq!(other.seen.lock().unwrap().unmaps, [(0x5000, 8192)]);
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let one = Some(event.as_fd());
    function.set_interrupts(4, &[one, one, None, one]).unwrap();
    let seen = other.seen.lock().unwrap().interrupts.clone();
    // it reports that it accepts one descriptor in a message
    assert_eq!(
        seen,
        [
            (2, 0x24, 4, 1, 1),
            (2, 0x24, 5, 1, 1),
            (2, 0x24, 6, 1, 0),
            (2, 0x24, 7, 1, 1)
        ]
    );
    drop(function);
    other.join();
}
