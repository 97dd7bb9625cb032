//! Reading send-queue elements: the device's side.

use super::receive::slots;
use super::send::{
    AtomicTail, BindHeader, DatagramDestination, DatagramHeader, FastRegisterHeader,
    FastRegisterLength, FastRegisterPage, FragmentKey, ImmediateWord, InlineTail,
    LocalInvalidateTag,
};
use super::{Fragment, MAX_QUANTA, QUANTUM_WORDS, Quantum, SendHeader, SendOpcode, sizes};

/// A rule of the layout that an element breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ElementBreach {
    /// The element needs more quanta than were given, or than an element may have.
    #[error("the element takes {needed_quanta} quanta where at most {given_quanta} are possible")]
    TooLong {
        /// quanta that its header requires
        needed_quanta: usize,
        /// quanta that there are
        given_quanta: usize,
    },
    /// The element crosses the end of a block of eight quanta.
    #[error("an element of {quanta} quanta at index {index} crosses a 256-byte boundary")]
    CrossesBlock {
        /// index of its first quantum
        index: u32,
        /// quanta that it takes
        quanta: usize,
    },
    /// A bit without a meaning is set.
    #[error("reserved bits {bits:#x} are set in word {word}")]
    ReservedBits {
        /// word of the element
        word: usize,
        /// the bits
        bits: u64,
    },
    /// A quantum after the first has the wrong valid bit.
    #[error("quantum {quantum} of the element has the wrong valid bit")]
    WrongValidBit {
        /// quantum of the element, from 1
        quantum: usize,
    },
    /// The count of further fragments is odd.
    #[error("{count} further fragments do not fill whole quanta")]
    OddFragments {
        /// count in the header
        count: usize,
    },
    /// More bytes inline than the device takes.
    #[error("{length_bytes} bytes inline are more than the device takes")]
    InlineTooLong {
        /// length in the header
        length_bytes: usize,
    },
    /// The operation has no meaning.
    #[error("operation {code:#04x} is unknown")]
    UnknownOperation {
        /// code in the header
        code: u8,
    },
}

impl SendHeader {
    /// Quanta of the element that begins with this header, 1..=8.
    ///
    /// A length beyond the largest element gives 8: [`SendElement::new`] reports it as an error.
    #[inline]
    #[must_use]
    pub const fn quanta(self) -> usize {
        let wanted = self.wanted_quanta();
        if wanted > MAX_QUANTA {
            MAX_QUANTA
        } else {
            wanted
        }
    }

    /// True for a write or read of one fragment in one quantum, as far as this word tells; see
    /// [`PlainElement`].
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        const OTHER: u64 = SendHeader::RESERVED
            | SendHeader::INLINE_MASK
            | SendHeader::IMMEDIATE_MASK
            | SendHeader::FURTHER_FRAGMENTS_MASK;
        let opcode = SendOpcode::from_code(self.opcode() as u8);
        matches!(opcode, SendOpcode::Write | SendOpcode::Read) && self.0 & OTHER == 0
    }

    const fn wanted_quanta(self) -> usize {
        match SendOpcode::from_code(self.opcode() as u8) {
            SendOpcode::FastRegister
            | SendOpcode::BindWindow
            | SendOpcode::LocalInvalidate
            | SendOpcode::Nop
            | SendOpcode::GenerateReadyEvent => 1,
            _ if self.inline() => sizes::inline_quanta(self.inline_length_bytes() as usize),
            _ => 1 + (self.further_fragments() as usize).div_ceil(2),
        }
    }
}

/// A write or read of one fragment in one quantum without a breach of the layout: what most
/// elements are. Its header has the key of the remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainElement {
    /// It reads; else it writes.
    pub reads: bool,
    /// Local memory.
    pub fragment: Fragment,
    /// First byte of the remote memory.
    pub remote_address: u64,
}

impl PlainElement {
    /// Decodes the element with this header and these words, the last of which is the header
    /// again; `None` if it is another one, or has a breach. `polarity` is the ring's valid value
    /// there.
    #[inline]
    #[must_use]
    pub const fn new(header: SendHeader, words: &Quantum, polarity: bool) -> Option<Self> {
        let [address, key, remote_address, _] = *words;
        let key = FragmentKey(key);
        if !header.is_plain() || key.valid() != polarity {
            return None;
        }
        Some(Self {
            reads: matches!(
                SendOpcode::from_code(header.opcode() as u8),
                SendOpcode::Read
            ),
            fragment: Fragment::decode(address, key),
            remote_address,
        })
    }
}

/// A send element as read from a ring: a view of its words.
#[derive(Clone, Copy, Debug)]
pub struct SendElement<'a> {
    words: &'a [u64],
}

impl<'a> SendElement<'a> {
    /// Decodes the element whose first quantum is the first of `words`.
    ///
    /// Shape: four words a quantum; words after the element are ignored. Errors:
    /// [`ElementBreach::TooLong`] if its header requires more.
    pub fn new(words: &'a [u64]) -> Result<Self, ElementBreach> {
        let given_quanta = (words.len() / QUANTUM_WORDS).min(MAX_QUANTA);
        let header = SendHeader(words.get(3).copied().unwrap_or(0));
        let needed_quanta = header.wanted_quanta();
        match words.get(..needed_quanta * QUANTUM_WORDS) {
            Some(own) if needed_quanta <= given_quanta => Ok(Self { words: own }),
            _ => Err(ElementBreach::TooLong {
                needed_quanta,
                given_quanta,
            }),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Word 3 as data-moving operations use it.
    #[inline]
    #[must_use]
    pub fn header(&self) -> SendHeader {
        SendHeader(self.word(3))
    }

    /// Word 3 as a datagram send uses it.
    #[must_use]
    pub fn datagram_header(&self) -> DatagramHeader {
        DatagramHeader(self.word(3))
    }

    /// Word 3 as a fast register uses it.
    #[must_use]
    pub fn fast_register_header(&self) -> FastRegisterHeader {
        FastRegisterHeader(self.word(3))
    }

    /// Word 3 as a window bind uses it.
    #[must_use]
    pub fn bind_header(&self) -> BindHeader {
        BindHeader(self.word(3))
    }

    /// The operation.
    #[inline]
    #[must_use]
    pub fn opcode(&self) -> SendOpcode {
        SendOpcode::from_code(self.header().opcode() as u8)
    }

    /// Quanta that it takes.
    #[must_use]
    pub fn quanta(&self) -> usize {
        self.words.len() / QUANTUM_WORDS
    }

    /// Remote address of writes and reads; first byte of a window.
    #[must_use]
    pub fn remote_address(&self) -> u64 {
        self.word(2)
    }

    /// Destination of a datagram.
    #[must_use]
    pub fn datagram_destination(&self) -> DatagramDestination {
        DatagramDestination(self.word(2))
    }

    /// Steering tag that a local invalidate names.
    #[must_use]
    pub fn local_invalidate_tag(&self) -> u32 {
        LocalInvalidateTag(self.word(1)).steering_tag() as u32
    }

    /// Words 0..3 of an operation without fragments: address, tags or page, length.
    #[must_use]
    pub fn operands(&self) -> [u64; 3] {
        [self.word(0), self.word(1), self.word(2)]
    }

    /// Index of the first page-list entry of a fast register.
    #[must_use]
    pub fn fast_register_first_entry(&self) -> u32 {
        let high = FastRegisterPage(self.word(1)).first_entry_high() as u32;
        let low = FastRegisterLength(self.word(2)).first_entry_low() as u32;
        high << 16 | low
    }

    /// Immediate data, if it carries any, as a number in host order.
    #[inline]
    #[must_use]
    pub fn immediate(&self) -> Option<u32> {
        let carries = self.header().immediate() && self.has_fragments();
        carries.then(|| ImmediateWord(self.word(0)).immediate() as u32)
    }

    /// Returns the local fragments in order; empty if the data is inline or the operation moves
    /// none.
    ///
    /// The layout has no count of fragments: a zero fragment that completes a quantum, or means
    /// "none", is among them.
    pub fn fragments(&self) -> impl Iterator<Item = Fragment> + use<'a> {
        let header = self.header();
        let further = header.further_fragments() as usize;
        let skipped = usize::from(header.immediate());
        let gathers = self.has_fragments() && !header.inline();
        let count = if gathers { 1 + further } else { 0 };
        slots(self.words, count)
            .skip(skipped)
            .map(|(address, key)| Fragment::decode(address, key))
    }

    /// Bytes of its message, inline or in fragments.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        if self.header().inline() {
            self.header().inline_length_bytes()
        } else {
            self.fragments()
                .map(|piece| u64::from(piece.length_bytes))
                .sum()
        }
    }

    /// Copies the inline data out and returns the number of bytes.
    ///
    /// Range: the shortest of the header's length, the element's data and `target`.
    pub fn copy_inline(&self, target: &mut [u8]) -> usize {
        if !self.header().inline() {
            return 0;
        }
        let wanted = self.header().inline_length_bytes() as usize;
        let first = self.word(1).to_le_bytes();
        let further = self
            .words
            .get(QUANTUM_WORDS..)
            .unwrap_or(&[])
            .chunks_exact(QUANTUM_WORDS)
            .flat_map(|quantum| {
                quantum
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .take(sizes::INLINE_FURTHER_BYTES)
            });
        let mut copied = 0;
        for (slot, byte) in target
            .iter_mut()
            .take(wanted)
            .zip(first.into_iter().chain(further))
        {
            *slot = byte;
            copied += 1;
        }
        copied
    }

    /// Returns the first rule of the layout that the element violates, for a queue pair of the
    /// reliable or unreliable datagram service.
    ///
    /// `index` is its first quantum in the ring, `polarity` the ring's valid value there. Stale
    /// words that the layout tells the device to ignore are not checked.
    #[must_use]
    pub fn breach(&self, index: u32, polarity: bool, datagram: bool) -> Option<ElementBreach> {
        let quanta = self.quanta();
        if index as usize % MAX_QUANTA + quanta > MAX_QUANTA {
            return Some(ElementBreach::CrossesBlock { index, quanta });
        }
        if let SendOpcode::Unknown(code) = self.opcode() {
            return Some(ElementBreach::UnknownOperation { code });
        }
        self.reserved_bits(datagram)
            .or_else(|| self.shape_breach())
            .or_else(|| self.valid_bit_breach(polarity))
    }

    fn reserved_bits(&self, datagram: bool) -> Option<ElementBreach> {
        use SendOpcode as Op;
        let is_send = matches!(self.opcode(), Op::Send | Op::SendSolicited);
        let masks: [u64; 4] = match self.opcode() {
            Op::FastRegister => [
                0,
                FastRegisterPage::RESERVED,
                FastRegisterLength::RESERVED,
                FastRegisterHeader::RESERVED,
            ],
            Op::BindWindow => [0, 0, 0, BindHeader::RESERVED],
            Op::LocalInvalidate => [
                u64::MAX,
                LocalInvalidateTag::RESERVED,
                u64::MAX,
                SendHeader::RESERVED | SendHeader::STEERING_TAG_MASK,
            ],
            Op::Nop | Op::GenerateReadyEvent => {
                [u64::MAX, u64::MAX, u64::MAX, SendHeader::RESERVED]
            }
            _ if is_send && datagram => [
                0,
                0,
                DatagramDestination::RESERVED,
                DatagramHeader::RESERVED,
            ],
            Op::Send | Op::SendSolicited | Op::SendInvalidate | Op::SendSolicitedInvalidate => {
                [0, 0, u64::MAX, SendHeader::RESERVED]
            }
            _ => [0, 0, 0, SendHeader::RESERVED],
        };
        masks.iter().enumerate().find_map(|(word, mask)| {
            let bits = self.word(word) & mask;
            (bits != 0).then_some(ElementBreach::ReservedBits { word, bits })
        })
    }

    fn has_fragments(&self) -> bool {
        !matches!(
            self.opcode(),
            SendOpcode::FastRegister
                | SendOpcode::BindWindow
                | SendOpcode::LocalInvalidate
                | SendOpcode::Nop
                | SendOpcode::GenerateReadyEvent
        )
    }

    fn shape_breach(&self) -> Option<ElementBreach> {
        if !self.has_fragments() {
            return None;
        }
        let header = self.header();
        let length_bytes = header.inline_length_bytes() as usize;
        let count = header.further_fragments() as usize;
        if header.inline() && length_bytes > sizes::MAX_INLINE_BYTES {
            Some(ElementBreach::InlineTooLong { length_bytes })
        } else if !header.inline() && !count.is_multiple_of(2) && !self.is_atomic() {
            Some(ElementBreach::OddFragments { count })
        } else {
            None
        }
    }

    fn is_atomic(&self) -> bool {
        matches!(
            self.opcode(),
            SendOpcode::FetchAdd | SendOpcode::CompareSwap
        )
    }

    /// Valid bits: of each further quantum, and of each fragment slot.
    fn valid_bit_breach(&self, polarity: bool) -> Option<ElementBreach> {
        if !self.has_fragments() || self.is_atomic() {
            let wrong = self.is_atomic() && AtomicTail(self.word(7)).valid() != polarity;
            return wrong.then_some(ElementBreach::WrongValidBit { quantum: 1 });
        }
        let header = self.header();
        if header.inline() {
            let wrong = (1..self.quanta())
                .find(|quantum| InlineTail(self.word(quantum * 4 + 3)).valid() != polarity);
            return wrong.map(|quantum| ElementBreach::WrongValidBit { quantum });
        }
        let count = 1 + header.further_fragments() as usize;
        let skipped = usize::from(header.immediate());
        slots(self.words, count)
            .enumerate()
            .skip(skipped)
            .find(|(_, (_, key))| key.valid() != polarity)
            .map(|(slot, _)| ElementBreach::WrongValidBit {
                quantum: slot.div_ceil(2),
            })
    }
}
