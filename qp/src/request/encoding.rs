//! The quanta of each kind of request.

use super::*;
use ringside_spec::verbs::send::{
    BindHeader, BindTags, DatagramDestination, DatagramHeader, FastRegisterHeader,
    FastRegisterLength, FastRegisterPage, ImmediateWord, InlineTail, LocalInvalidateTag,
};
use ringside_spec::verbs::sizes::{INLINE_FIRST_BYTES, INLINE_FURTHER_BYTES};

#[inline(always)]
fn fragments_shape(fragments: &[Fragment], immediate: bool) -> Result<Shape, RequestError> {
    let length_bytes = match fragments {
        [] => 0,
        [only] => u64::from(only.length_bytes),
        several if several.len() <= sizes::MAX_FRAGMENTS => several
            .iter()
            .map(|piece| u64::from(piece.length_bytes))
            .sum(),
        many => return Err(RequestError::TooManyFragments { given: many.len() }),
    };
    if length_bytes > MAX_MESSAGE_BYTES {
        return Err(RequestError::MessageTooLong { length_bytes });
    }
    Ok(Shape {
        quanta: sizes::send_quanta(fragments.len() + usize::from(immediate)),
        length_bytes: length_bytes as u32,
    })
}

#[inline(always)]
fn inline_shape(data: &[u8]) -> Result<Shape, RequestError> {
    if data.len() > sizes::MAX_INLINE_BYTES {
        return Err(RequestError::InlineTooLong {
            length_bytes: data.len(),
        });
    }
    Ok(Shape {
        quanta: sizes::inline_quanta(data.len()),
        length_bytes: data.len() as u32,
    })
}

#[inline(always)]
pub(crate) const fn fragment_words(fragment: Fragment, polarity: Polarity) -> [u64; 2] {
    let [address, key] = fragment.encode(false);
    [address, polarity.on(key)]
}

/// Returns words 0 and 1 and the header's count of further slots, for fragments in buffers.
///
/// An immediate takes slot 0. An even number of slots is completed by a zero fragment with the
/// valid bit, so that every quantum of the element carries the polarity.
#[inline(always)]
fn gather(
    fragments: &[Fragment],
    immediate: Option<u32>,
    polarity: Polarity,
    mut further: impl FnMut(usize, Quantum),
) -> ([u64; 2], SendHeader) {
    let (first, rest) = match (immediate, fragments) {
        (Some(value), all) => ([ImmediateWord(u64::from(value)).0, 0], all),
        (None, [first, rest @ ..]) => (fragment_words(*first, polarity), rest),
        (None, []) => (fragment_words(Fragment::default(), polarity), &[][..]),
    };
    let mut slots = 0;
    for (index, pair) in rest.chunks(2).enumerate() {
        let second = pair.get(1).copied().unwrap_or_default();
        let first = pair.first().copied().unwrap_or_default();
        let [a, b] = fragment_words(first, polarity);
        let [c, d] = fragment_words(second, polarity);
        further(index + 1, [a, b, c, d]);
        slots += 2;
    }
    let header = SendHeader::ZERO
        .with_further_fragments(slots)
        .with_immediate(immediate.is_some());
    (first, header)
}

/// Returns words 0 and 1 and the header's inline fields, for data in the element.
#[inline(always)]
fn place_inline(
    data: &[u8],
    immediate: Option<u32>,
    polarity: Polarity,
    mut further: impl FnMut(usize, Quantum),
) -> ([u64; 2], SendHeader) {
    let first = match data.first_chunk::<INLINE_FIRST_BYTES>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => short_word(data),
    };
    let rest = data.get(INLINE_FIRST_BYTES..).unwrap_or(&[]);
    for (index, piece) in rest.chunks(INLINE_FURTHER_BYTES).enumerate() {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(piece.chunks(8)) {
            *word = short_word(bytes);
        }
        words[3] = polarity.on(words[3] & !InlineTail::VALID_MASK);
        further(index + 1, words);
    }
    let header = SendHeader::ZERO
        .with_inline(true)
        .with_inline_length_bytes(data.len() as u64)
        .with_immediate(immediate.is_some());
    (
        [ImmediateWord(u64::from(immediate.unwrap_or(0))).0, first],
        header,
    )
}

/// Returns up to eight bytes as the low bytes of a word.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[inline(always)]
fn finish(
    header: SendHeader,
    opcode: SendOpcode,
    tag: u32,
    flags: SendFlags,
    polarity: Polarity,
) -> u64 {
    let header = header
        .with_steering_tag(u64::from(tag))
        .with_opcode(u64::from(opcode.code()));
    polarity.on_header(header.0, flags, SendFlags::TRANSFER_BITS)
}

#[inline(always)]
const fn write_opcode(flags: SendFlags) -> SendOpcode {
    if flags.contains(SendFlags::SOLICITED) {
        SendOpcode::WriteSolicited
    } else {
        SendOpcode::Write
    }
}

impl SendKind {
    #[inline(always)]
    const fn immediate(self) -> Option<u32> {
        match self {
            Self::Immediate(value) => Some(value),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) const fn tag(self) -> u32 {
        match self {
            Self::Invalidate(key) => key,
            _ => 0,
        }
    }

    #[inline(always)]
    const fn opcode(self, flags: SendFlags) -> SendOpcode {
        match (self, flags.contains(SendFlags::SOLICITED)) {
            (Self::Invalidate(_), false) => SendOpcode::SendInvalidate,
            (Self::Invalidate(_), true) => SendOpcode::SendSolicitedInvalidate,
            (_, false) => SendOpcode::Send,
            (_, true) => SendOpcode::SendSolicited,
        }
    }
}

impl WorkRequest for Write<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        fragments_shape(self.fragments, self.immediate.is_some())
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        write_opcode(flags)
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        put: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let ([a, b], header) = gather(self.fragments, self.immediate, polarity, put);
        let opcode = write_opcode(flags);
        let header = finish(header, opcode, self.remote_key, flags, polarity);
        [a, b, self.remote_address, header]
    }
}

impl WorkRequest for WriteInline<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        inline_shape(self.data)
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        write_opcode(flags)
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        put: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let ([a, b], header) = place_inline(self.data, self.immediate, polarity, put);
        let opcode = write_opcode(flags);
        let header = finish(header, opcode, self.remote_key, flags, polarity);
        [a, b, self.remote_address, header]
    }
}

impl WorkRequest for Read<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        fragments_shape(self.fragments, false)
    }

    #[inline(always)]
    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        if self.invalidate_local {
            SendOpcode::ReadInvalidate
        } else {
            SendOpcode::Read
        }
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        put: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let ([a, b], header) = gather(self.fragments, None, polarity, put);
        let header = finish(header, self.opcode(flags), self.remote_key, flags, polarity);
        [a, b, self.remote_address, header]
    }
}

impl WorkRequest for Send<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        fragments_shape(self.fragments, self.kind.immediate().is_some())
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        self.kind.opcode(flags)
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        put: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let ([a, b], header) = gather(self.fragments, self.kind.immediate(), polarity, put);
        let opcode = self.kind.opcode(flags);
        let header = finish(header, opcode, self.kind.tag(), flags, polarity);
        [a, b, 0, header]
    }
}

impl WorkRequest for SendInline<'_> {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        inline_shape(self.data)
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        self.kind.opcode(flags)
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        put: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let ([a, b], header) = place_inline(self.data, self.kind.immediate(), polarity, put);
        let opcode = self.kind.opcode(flags);
        let header = finish(header, opcode, self.kind.tag(), flags, polarity);
        [a, b, 0, header]
    }
}

impl WorkRequest for SendDatagram<'_> {
    const IS_DATAGRAM: bool = true;

    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        match self.payload {
            Payload::Fragments(fragments) => fragments_shape(fragments, self.immediate.is_some()),
            Payload::Inline(data) => inline_shape(data),
        }
    }

    #[inline(always)]
    fn opcode(&self, flags: SendFlags) -> SendOpcode {
        SendKind::Plain.opcode(flags)
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        put: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let ([a, b], shared) = match self.payload {
            Payload::Fragments(pieces) => gather(pieces, self.immediate, polarity, put),
            Payload::Inline(data) => place_inline(data, self.immediate, polarity, put),
        };
        let destination = DatagramDestination::ZERO
            .with_queue_key(u64::from(self.queue_key))
            .with_queue_pair(u64::from(self.destination));
        let header = DatagramHeader(shared.0)
            .with_address_handle(u64::from(self.address_handle))
            .with_opcode(u64::from(self.opcode(flags).code()));
        [
            a,
            b,
            destination.0,
            polarity.on_header(header.0, flags, SendFlags::DATAGRAM_BITS),
        ]
    }
}

const ONE_QUANTUM: Shape = Shape {
    quanta: 1,
    length_bytes: 0,
};

impl WorkRequest for LocalInvalidate {
    fn shape(&self) -> Result<Shape, RequestError> {
        Ok(ONE_QUANTUM)
    }

    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::LocalInvalidate
    }

    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        _: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let tag = LocalInvalidateTag::ZERO.with_steering_tag(u64::from(self.key));
        let header = SendHeader::ZERO.with_opcode(u64::from(SendOpcode::LocalInvalidate.code()));
        [
            0,
            tag.0,
            0,
            polarity.on_header(header.0, flags, SendFlags::QUEUE_BITS),
        ]
    }
}

impl WorkRequest for Nop {
    #[inline(always)]
    fn shape(&self) -> Result<Shape, RequestError> {
        Ok(ONE_QUANTUM)
    }

    #[inline(always)]
    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::Nop
    }

    #[inline(always)]
    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        _: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let header = SendHeader::ZERO.with_opcode(u64::from(SendOpcode::Nop.code()));
        [
            0,
            0,
            0,
            polarity.on_header(header.0, flags, SendFlags::QUEUE_BITS),
        ]
    }
}

impl WorkRequest for FastRegister {
    fn shape(&self) -> Result<Shape, RequestError> {
        let longest = FastRegisterLength::LENGTH_BYTES_MASK;
        if self.length_bytes > longest {
            return Err(RequestError::RegionTooLong {
                length_bytes: self.length_bytes,
            });
        }
        let fields = [
            ("first entry of a page list", self.first_entry, 0xFFF_FFFF),
            ("levels of a page list", self.page_list_levels.into(), 3),
            ("index of a region", self.index, 0xFF_FFFF),
            ("access rights", self.access_rights.into(), 0x1F),
        ];
        match fields.into_iter().find(|(_, value, most)| value > most) {
            Some((what, value, most)) => Err(RequestError::OutOfRange {
                what,
                value: value.into(),
                most: most.into(),
            }),
            None => Ok(ONE_QUANTUM),
        }
    }

    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::FastRegister
    }

    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        _: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let page_bits = FastRegisterPage::PAGE_NUMBER_MASK;
        let entry = u64::from(self.first_entry);
        let page = FastRegisterPage(self.page_address & page_bits)
            .with_first_entry_high(entry / (1 << 16));
        let length = FastRegisterLength::ZERO
            .with_length_bytes(self.length_bytes)
            .with_first_entry_low(entry % (1 << 16));
        let header = FastRegisterHeader::ZERO
            .with_steering_tag_key(u64::from(self.key))
            .with_steering_tag_index(u64::from(self.index))
            .with_opcode(u64::from(SendOpcode::FastRegister.code()))
            .with_page_list_levels(u64::from(self.page_list_levels))
            .with_page_size(self.page_size.code())
            .with_access_rights(u64::from(self.access_rights))
            .with_virtual_address_based(self.virtual_address_based);
        [
            self.virtual_address,
            page.0,
            length.0,
            polarity.on_header(header.0, flags, SendFlags::QUEUE_BITS),
        ]
    }
}

/// Remote rights of a window, in the element's encoding. Source: irdma `type.h`,
/// IRDMA_ACCESS_FLAGS_REMOTEREAD_ONLY, IRDMA_ACCESS_FLAGS_REMOTEWRITE_ONLY.
const WINDOW_READ: u64 = 4;
const WINDOW_WRITE: u64 = 8;

impl WorkRequest for BindWindow {
    fn shape(&self) -> Result<Shape, RequestError> {
        Ok(ONE_QUANTUM)
    }

    fn opcode(&self, _flags: SendFlags) -> SendOpcode {
        SendOpcode::BindWindow
    }

    fn encode(
        &self,
        flags: SendFlags,
        polarity: Polarity,
        _: impl FnMut(usize, Quantum),
    ) -> Quantum {
        let tags = BindTags::ZERO
            .with_window(u64::from(self.window_key))
            .with_region(u64::from(self.region_key));
        let read = if self.remote_read { WINDOW_READ } else { 0 };
        let write = if self.remote_write { WINDOW_WRITE } else { 0 };
        let header = BindHeader::ZERO
            .with_opcode(u64::from(SendOpcode::BindWindow.code()))
            .with_access_rights(read | write)
            .with_virtual_address_based(self.virtual_address_based)
            .with_window_type_1(self.window_type_1);
        [
            self.address,
            tags.0,
            self.length_bytes,
            polarity.on_header(header.0, flags, SendFlags::QUEUE_BITS),
        ]
    }
}
