//! Copies of packets of running ports, for a capture in another process.
//!
//! Threads that move packets copy them into buffers that were made at the start, and only while a
//! capture is attached. When no buffer is free, copies are lost and counted; packets never wait.

use crate::failure::Failure;
use anyhow::anyhow;
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use ringside_lan::{MAX_BURST, Packet};
use ringside_server::ports::SocketFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::Permissions;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest frame that is copied, bytes: the longest of the device.
pub(crate) const MAX_FRAME_BYTES: usize = ringside_spec::lan::limits::MAX_FRAME_BYTES as usize;
/// Copies that wait at once.
const COPIES: usize = 1024;
/// The first bytes that an attached capture reads.
pub(crate) const GREETING: &str = "ringside-mirror 2";
/// Bytes before each frame.
const HEAD_BYTES: usize = 32;
/// Longest time for which a capture may take nothing.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// Bytes of the addresses of a frame: tags follow.
const ADDRESS_BYTES: usize = 12;
/// Types of tags. Source: IEEE 802.1Q, table 9-1.
const TAG_TYPE: [u8; 2] = [0x81, 0x00];
const OUTER_TAG_TYPE: [u8; 2] = [0x88, 0xA8];
/// The time between two checks while no packets arrive.
const IDLE: Duration = Duration::from_millis(1);
/// The longest time between two looks for the end of a capture, while packets arrive.
const LOOK_FOR_END: Duration = Duration::from_millis(50);

/// The direction of a packet, seen from the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    #[default]
    Received,
    Sent,
}

/// The message that a mirror sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Copy,
    /// The last losses of a direction: the mirror ends, or knows that the capture does.
    Losses,
    /// The end of the stream. A mirror that has sent no losses gave the capture up, or was killed.
    End,
}

/// A packet of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// nanoseconds since 1970
    pub(crate) time_ns: u64,
    pub(crate) port: u16,
    pub(crate) direction: Direction,
    /// bytes of the packet
    pub(crate) original: u32,
    /// copies of its direction that were lost before it, since the capture attached
    pub(crate) lost: u64,
    length: u32,
    buffer: Box<[u8]>,
}

impl Copied {
    pub(crate) fn empty() -> Self {
        Self {
            time_ns: 0,
            port: 0,
            direction: Direction::Received,
            original: 0,
            lost: 0,
            length: 0,
            buffer: vec![0; MAX_FRAME_BYTES].into(),
        }
    }

    /// The bytes that were copied.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.length as usize).unwrap_or_default()
    }

    /// Takes a packet over as it is on the wire, with the tags that the device has removed or is to
    /// insert: all of its bytes, or as many as there is room for.
    pub(crate) fn fill(&mut self, packet: &Packet) {
        let mut tags = ArrayVec::<u8, 8>::new();
        for (kind, tag) in [
            (OUTER_TAG_TYPE, packet.outer_vlan()),
            (TAG_TYPE, packet.vlan()),
        ] {
            tags.extend(
                tag.into_iter()
                    .flat_map(|tag| kind.into_iter().chain(tag.to_be_bytes())),
            );
        }
        let whole = packet.length() + tags.len();
        self.original = whole as u32;
        let length = whole.min(self.buffer.len());
        let at = ADDRESS_BYTES.min(packet.length());
        let place = self.buffer.get_mut(..length);
        let parts = place.and_then(|place| {
            let (addresses, rest) = place.split_at_mut_checked(at)?;
            let (between, rest) = rest.split_at_mut_checked(tags.len())?;
            between.copy_from_slice(&tags);
            Some((addresses, rest))
        });
        let is_read = parts
            .is_some_and(|(addresses, rest)| packet.read(0, addresses) && packet.read(at, rest));
        self.length = if is_read { length as u32 } else { 0 };
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        self.write_head(false, to)?;
        to.write_all(self.bytes())
    }

    fn write_head(&self, is_last: bool, to: &mut impl Write) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        head[8..16].copy_from_slice(&self.lost.to_le_bytes());
        head[16..20].copy_from_slice(&self.length.to_le_bytes());
        head[20..24].copy_from_slice(&self.original.to_le_bytes());
        head[24..26].copy_from_slice(&self.port.to_le_bytes());
        head[26] = u8::from(self.direction == Direction::Sent);
        head[27] = u8::from(is_last);
        to.write_all(&head)
    }

    /// Reads what a mirror sends next: a copy, or its losses, which have no bytes.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> io::Result<Next> {
        let mut head = [0; HEAD_BYTES];
        if from.read(&mut head[..1])? == 0 {
            return Ok(Next::End);
        }
        from.read_exact(&mut head[1..])?;
        let number = |at: usize| -> u64 {
            let bytes = head.get(at..at + 8).and_then(|all| all.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        self.time_ns = number(0);
        self.lost = number(8);
        self.length = number(16) as u32;
        self.original = (number(16) >> 32) as u32;
        self.port = number(24) as u16;
        self.direction = match head[26] {
            0 => Direction::Received,
            _ => Direction::Sent,
        };
        let place = self.buffer.get_mut(..self.length as usize);
        let place = place.ok_or_else(|| {
            let text = format!(
                "a frame of {} bytes: that is no mirror of ringside",
                self.length
            );
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        from.read_exact(place)?;
        Ok(match head[27] {
            0 => Next::Copy,
            _ => Next::Losses,
        })
    }
}

/// Copies of the first packets of a burst.
#[derive(Default)]
pub(crate) struct Copies {
    copies: ArrayVec<Box<Copied>, MAX_BURST>,
    /// packets behind those for which no buffer was free
    missing: usize,
    direction: Direction,
}

/// Copies that were lost, of each direction.
#[derive(Default)]
struct Lost {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Lost {
    const fn of(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Received => &self.received,
            Direction::Sent => &self.sent,
        }
    }
}

/// See the module.
pub(crate) struct Mirror {
    attached: AtomicBool,
    free: ArrayQueue<Box<Copied>>,
    full: ArrayQueue<Box<Copied>>,
    lost: Lost,
}

/// Now, nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

impl Mirror {
    pub(crate) fn new(copies: usize) -> Self {
        let mirror = Self {
            attached: AtomicBool::new(false),
            free: ArrayQueue::new(copies),
            full: ArrayQueue::new(copies),
            lost: Lost::default(),
        };
        for _ in 0..copies {
            let _ = mirror.free.push(Box::new(Copied::empty()));
        }
        mirror
    }

    /// Copies packets, if a capture is attached.
    pub(crate) fn copy(&self, port: usize, direction: Direction, packets: &[Packet]) {
        let copies = self.take(port, direction, packets);
        self.give(copies, packets.len(), 0);
    }

    /// The same, of packets of which only the first few will count: [`Mirror::give`] says how many.
    pub(crate) fn take(&self, port: usize, direction: Direction, packets: &[Packet]) -> Copies {
        let mut taken = Copies {
            direction,
            ..Copies::default()
        };
        if !self.attached.load(Ordering::Relaxed) || packets.is_empty() {
            return taken;
        }
        let time_ns = now_ns();
        for (place, packet) in packets.iter().enumerate() {
            let Some(mut copy) = self.free.pop() else {
                taken.missing = packets.len() - place;
                break;
            };
            copy.time_ns = time_ns;
            copy.port = port as u16;
            copy.direction = direction;
            copy.lost = self.lost.of(direction).load(Ordering::Relaxed);
            copy.fill(packet);
            taken.copies.push(copy);
        }
        taken
    }

    /// Passes the copies of the first `count` packets to the capture, but for those with a bit in
    /// `dropped`, and discards the others. Of the packets that count, the ones without a copy are
    /// lost.
    pub(crate) fn give(&self, taken: Copies, count: usize, dropped: u64) {
        let counts = |place: usize| place < count && dropped.wrapping_shr(place as u32) & 1 == 0;
        let of_burst = taken.copies.len()..taken.copies.len() + taken.missing;
        let lost = of_burst.filter(|place| counts(*place)).count() as u64;
        if lost > 0 {
            let of = self.lost.of(taken.direction);
            of.fetch_add(lost, Ordering::Relaxed);
        }
        for (place, copy) in taken.copies.into_iter().enumerate() {
            // Both have room for all copies that there are.
            let _ = match counts(place) {
                true => self.full.push(copy),
                false => self.free.push(copy),
            };
        }
    }

    /// Begins or ends the copies of a capture; losses count from its start.
    pub(crate) fn attach(&self, attached: bool) {
        for direction in [Direction::Received, Direction::Sent] {
            self.lost.of(direction).store(0, Ordering::Relaxed);
        }
        self.attached.store(attached, Ordering::Relaxed);
        while let Some(copy) = self.full.pop() {
            let _ = self.free.push(copy);
        }
    }

    /// Tells a capture its losses until now, the last that it hears.
    fn write_losses(&self, to: &mut impl Write) -> io::Result<()> {
        let mut last = Copied::empty();
        for direction in [Direction::Received, Direction::Sent] {
            last.direction = direction;
            last.lost = self.lost.of(direction).load(Ordering::Relaxed);
            last.write_head(true, to)?;
        }
        to.flush()
    }
}

#[cfg(test)]
impl Mirror {
    /// Copies that wait for the capture, and those that are lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let lost = |direction| self.lost.of(direction).load(Ordering::Relaxed);
        let lost = lost(Direction::Received) + lost(Direction::Sent);
        (self.full.len() as u64, lost)
    }
}

/// Lets captures attach to a mirror, one at a time, by a Unix socket.
pub(crate) struct MirrorServer {
    mirror: Arc<Mirror>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// removed before the listener is closed, see [`SocketFile`]
    _file: SocketFile,
    _listener: Arc<UnixListener>,
}

impl MirrorServer {
    /// Serves at `path`; `names` are those of the ports, by number.
    pub(crate) fn start(path: &Path, names: &[String]) -> Result<Self, Failure> {
        let made = SocketFile::make(path, |path| UnixListener::bind(path));
        let (listener, file) = made.map_err(|error| Failure::usage(anyhow!("--mirror {error}")))?;
        // Packets are for the user who runs this.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let mirror = Arc::new(Mirror::new(COPIES));
        let stop = Arc::new(AtomicBool::new(false));
        let names = serde_json::to_string(names).map_err(io::Error::from)?;
        let greeting = format!("{GREETING}\n{names}\n");
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        let (given, told) = (Arc::clone(&mirror), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("mirror".into());
        let thread = thread.spawn(move || serve(&accepting, &greeting, &given, &told))?;
        Ok(Self {
            mirror,
            stop,
            thread: Some(thread),
            _file: file,
            _listener: listener,
        })
    }

    pub(crate) fn mirror(&self) -> Arc<Mirror> {
        Arc::clone(&self.mirror)
    }
}

impl Drop for MirrorServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, greeting: &str, mirror: &Mirror, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) => {
                mirror.attach(true);
                if let Err(error) = feed(stream, greeting, mirror, stop) {
                    tracing_error(&error);
                }
                mirror.attach(false);
            }
            Err(_) => std::thread::sleep(10 * IDLE),
        }
    }
}

/// A capture that ends first is no failure of this side.
fn tracing_error(error: &io::Error) {
    if !matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ) {
        let text = format!("ringside: the attached capture is given up: {error}");
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Writes copies until the capture goes or this side stops.
fn feed(stream: UnixStream, greeting: &str, mirror: &Mirror, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_LIMIT))?;
    stream.set_read_timeout(Some(IDLE))?;
    let closed = stream.try_clone()?;
    let mut out = BufWriter::with_capacity(1 << 16, stream);
    let written = out.write_all(greeting.as_bytes());
    let ended = written.and_then(|()| pour(&mut out, closed, mirror, stop));
    if ended.is_err() {
        // The capture takes nothing more: its end is not to wait for that.
        drop(out.into_parts());
    }
    ended
}

/// Writes copies until either side ends, then the losses.
fn pour(
    out: &mut BufWriter<UnixStream>,
    mut closed: UnixStream,
    mirror: &Mirror,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut looked = Instant::now();
    loop {
        // Before the copies: none is added after the stop, so that a round takes the last ones.
        let is_last = stop.load(Ordering::Acquire);
        let mut found = false;
        // Not more than there are at once: packets that never pause hold no end up.
        for _ in 0..COPIES {
            let Some(copy) = mirror.full.pop() else {
                break;
            };
            let written = copy.write(out);
            let _ = mirror.free.push(copy);
            written?;
            found = true;
        }
        out.flush()?;
        if is_last {
            return mirror.write_losses(out);
        }
        if found && looked.elapsed() < LOOK_FOR_END {
            continue;
        }
        looked = Instant::now();
        // The capture never sends data: a readable socket means its end. Waits a little, if nothing
        // came: packets that come meanwhile take buffers.
        if (!found || is_readable(&closed)) && matches!(closed.read(&mut [0]), Ok(0)) {
            return mirror.write_losses(out);
        }
    }
}

/// Does not wait.
fn is_readable(stream: &UnixStream) -> bool {
    let now = Timespec::default();
    let ready = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&now));
    ready.is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_pmd::lan::PortSettings;
    use ringside_testkit::{bring_up_all, config_without_package, shut_down, threaded};

    fn filled(mirror: &Mirror) -> usize {
        mirror.full.len()
    }

    /// Copies of a burst of `copied + missing` packets.
    fn taken(mirror: &Mirror, copied: usize, missing: usize) -> Copies {
        let copies = (0..copied).map(|_| mirror.free.pop().unwrap()).collect();
        Copies {
            copies,
            missing,
            direction: Direction::Sent,
        }
    }

    #[test]
    fn a_copy_is_read_as_it_was_written() {
        let mut copy = Copied::empty();
        copy.time_ns = 1_700_000_000_123_456_789;
        copy.port = 3;
        copy.direction = Direction::Sent;
        copy.original = 9000;
        copy.lost = 5;
        copy.length = 100;
        copy.buffer[..100].fill(0xA5);
        let mut bytes = Vec::new();
        copy.write(&mut bytes).unwrap();
        let mut back = Copied::empty();
        let mut from = bytes.as_slice();
        assert_eq!(back.read(&mut from).unwrap(), Next::Copy);
        assert_eq!(back, copy);
        assert_eq!(back.read(&mut from).unwrap(), Next::End);
        let cut = back.read(&mut &bytes[..50]).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
        bytes[16..20].fill(0xFF);
        let error = back.read(&mut bytes.as_slice()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn copies_of_packets_that_were_not_sent_are_forgotten_and_their_buffers_stay() {
        let mirror = Mirror::new(4);
        mirror.give(taken(&mirror, 3, 0), 2, 0);
        assert_eq!((filled(&mirror), mirror.free.len()), (2, 2));
        mirror.lost.sent.store(7, Ordering::Relaxed);
        mirror.attach(true);
        assert_eq!(mirror.counts().1, 0, "of an earlier capture");
        assert_eq!(
            (filled(&mirror), mirror.free.len()),
            (0, 4),
            "of an earlier capture"
        );
    }

    #[test]
    fn copies_of_packets_that_the_queue_dropped_in_the_middle_are_forgotten() {
        let mirror = Mirror::new(8);
        let mut copies = taken(&mirror, 4, 4);
        for (number, copy) in (0..).zip(&mut copies.copies) {
            copy.port = number;
        }
        // Six of eight packets were taken: the second and the last of them were dropped.
        mirror.give(copies, 6, 0b10_0010);
        let ports: Vec<u16> = std::iter::from_fn(|| mirror.full.pop())
            .map(|copy| copy.port)
            .collect();
        assert_eq!(ports, [0, 2, 3]);
        assert_eq!(mirror.counts().1, 1, "the fifth was sent, and has no copy");
    }

    /// As the frame is on the wire: the packet has its tags beside it.
    #[test]
    fn a_copy_has_the_tags_of_its_packet() {
        let model = threaded();
        let [one, other] = bring_up_all(|index| model.function(index), &config_without_package());
        let open = one.open_port(&PortSettings::default()).unwrap();
        let frame: Vec<u8> = (0..60).collect();
        let cases: [(Option<u16>, Option<u16>, &[u8]); 4] = [
            (None, None, &[]),
            (Some(0x6064), None, &[0x81, 0, 0x60, 0x64]),
            (Some(5), Some(6), &[0x88, 0xA8, 0, 6, 0x81, 0, 0, 5]),
            (None, Some(6), &[0x88, 0xA8, 0, 6]),
        ];
        let mut copy = Copied::empty();
        for (inner, outer, tags) in cases {
            let mut packet = open.pool.packet_with(&frame).unwrap();
            packet.set_vlan(inner);
            packet.set_outer_vlan(outer);
            copy.fill(&packet);
            assert_eq!(copy.bytes(), [&frame[..12], tags, &frame[12..]].concat());
            assert_eq!(copy.original as usize, frame.len() + tags.len());
        }
        // Longer than a copy, and shorter than the addresses.
        let longest = vec![7; MAX_FRAME_BYTES];
        let mut packet = open.pool.packet_with(&longest).unwrap();
        packet.set_vlan(Some(5));
        copy.fill(&packet);
        assert_eq!(copy.bytes().len(), MAX_FRAME_BYTES);
        assert_eq!(copy.original as usize, MAX_FRAME_BYTES + 4);
        let mut packet = open.pool.packet_with(&[1; 3]).unwrap();
        packet.set_vlan(Some(5));
        copy.fill(&packet);
        assert_eq!(copy.bytes(), [1, 1, 1, 0x81, 0, 0, 5]);
        drop((packet, open));
        shut_down([one, other]);
        model.stop();
    }

    #[test]
    fn packets_that_were_not_sent_are_no_lost_copies() {
        let mirror = Mirror::new(4);
        let lost = || mirror.counts().1;
        for sent in 0..=2 {
            mirror.give(taken(&mirror, 2, 30), sent, 0);
            while let Some(copy) = mirror.full.pop() {
                mirror.free.push(copy).unwrap();
            }
            assert_eq!(lost(), 0, "{sent} sent, each with a copy");
        }
        mirror.give(taken(&mirror, 2, 30), 5, 0);
        assert_eq!(lost(), 3, "5 sent, 2 of them with a copy");
        mirror.give(Copies::default(), 32, 0);
        assert_eq!(lost(), 3, "no capture was attached when they were copied");
    }

    #[test]
    fn a_capture_that_ends_hears_the_last_losses_while_packets_go_on() {
        let mirror = Mirror::new(4);
        mirror.attach(true);
        mirror.lost.received.store(5, Ordering::Relaxed);
        mirror.lost.sent.store(7, Ordering::Relaxed);
        let (stream, mut capture) = UnixStream::pair().unwrap();
        const LIMIT: Duration = Duration::from_secs(20);
        let (began, has_ended) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let feeding = scope.spawn(|| feed(stream, "", &mirror, &AtomicBool::new(false)));
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) && began.elapsed() < LIMIT {
                    if let Some(copy) = mirror.free.pop() {
                        mirror.full.push(copy).unwrap();
                    }
                }
            });
            capture.shutdown(std::net::Shutdown::Write).unwrap();
            let mut copy = Copied::empty();
            let mut losses = Vec::new();
            loop {
                match copy.read(&mut capture).unwrap() {
                    Next::Copy => {}
                    Next::Losses => losses.push((copy.direction, copy.lost)),
                    Next::End => break,
                }
            }
            assert_eq!(losses, [(Direction::Received, 5), (Direction::Sent, 7)]);
            assert!(began.elapsed() < LIMIT, "once nothing came");
            has_ended.store(true, Ordering::Relaxed);
            feeding.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_capture_has_all_copies_of_a_program_that_ends_while_they_are_written() {
        let mirror = Mirror::new(COPIES);
        mirror.attach(true);
        let add = || {
            let mut copy = mirror.free.pop()?;
            copy.length = 9000;
            mirror.full.push(copy).ok()
        };
        while add().is_some() {}
        let (stream, mut capture) = UnixStream::pair().unwrap();
        let (began, stop) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let feeding = scope.spawn(|| feed(stream, "", &mirror, &stop));
            // Once the first one is written; the socket does not take all of them.
            while add().is_none() && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Release);
            let mut copy = Copied::empty();
            let mut copies = 0;
            while copy.read(&mut capture).unwrap() == Next::Copy {
                copies += 1;
            }
            feeding.join().unwrap().unwrap();
            assert_eq!(copies, COPIES + 1);
        });
    }
}
