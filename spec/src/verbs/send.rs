//! Words and operation codes of send-queue elements.

crate::words! {
    /// Word 3 of a send element's first quantum, as data-moving operations use it.
    ///
    /// The word that carries the valid bit: it is stored last.
    /// Source: irdma `defs.h`, IRDMAQPSQ_*; irdma `uk.c`, irdma_uk_send and its neighbours.
    pub struct SendHeader: u64 {
        /// remote steering tag, steering tag to invalidate, or 0 (IRDMAQPSQ_REMSTAG)
        steering_tag: [31:0],
        /// operation, see [`SendOpcode`] (IRDMAQPSQ_OPCODE)
        opcode: [37:32],
        /// fragment slots after the first quantum: twice the further quanta
        /// (IRDMAQPSQ_ADDFRAGCNT)
        further_fragments: [41:38],
        /// put the round-trip time into the completion (IRDMAQPSQ_REPORTRTT)
        report_round_trip: [46],
        /// word 0 holds immediate data; fragment 0 moves to byte 32 (IRDMAQPSQ_IMMDATAFLAG)
        immediate: [47],
        /// bytes of inline data (IRDMAQPSQ_INLINEDATALEN)
        inline_length_bytes: [55:48],
        /// the element was copied to the push page (IRDMAQPSQ_PUSHWQE)
        push: [56],
        /// the data itself is in the element (IRDMAQPSQ_INLINEDATAFLAG)
        inline: [57],
        /// iWARP streaming mode (IRDMAQPSQ_STREAMMODE)
        stream_mode: [58],
        /// iWARP: hold until a PDU was received (IRDMAQPSQ_WAITFORRCVPDU)
        wait_for_receive_pdu: [59],
        /// wait for the outstanding RDMA reads (IRDMAQPSQ_READFENCE)
        read_fence: [60],
        /// wait for every earlier element (IRDMAQPSQ_LOCALFENCE)
        local_fence: [61],
        /// write a completion on success (IRDMAQPSQ_SIGCOMPL)
        signalled: [62],
        /// ring polarity (IRDMAQPSQ_VALID)
        valid: [63],
    }

    /// Word 3 of a datagram send.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_AHID, IRDMAQPSQ_L4LEN, IRDMAQPSQ_UDPHEADER.
    pub struct DatagramHeader: u64 {
        /// address handle (IRDMAQPSQ_AHID)
        address_handle: [16:0],
        /// operation
        opcode: [37:32],
        /// fragment slots after the first quantum
        further_fragments: [41:38],
        /// word 0 holds immediate data
        immediate: [47],
        /// bytes of inline data
        inline_length_bytes: [55:48],
        /// the data itself is in the element
        inline: [57],
        /// wait for the outstanding RDMA reads
        read_fence: [60],
        /// the buffer begins with a UDP header (IRDMAQPSQ_UDPHEADER)
        udp_header: [61],
        /// write a completion on success
        signalled: [62],
        /// ring polarity
        valid: [63],
    }

    /// Word 3 of a raw packet send, on the queue pairs that iWARP connections use.
    ///
    /// Source: irdma `uda.c`/`puda.c`, irdma_puda_send; `defs.h`, IRDMAQPSQ_L4LEN.
    pub struct UdaHeader: u64 {
        /// address handle
        address_handle: [16:0],
        /// operation
        opcode: [37:32],
        /// length of the layer-4 header, in units of 4 bytes
        l4_length_words: [45:42],
        /// write a completion on success
        signalled: [62],
        /// ring polarity
        valid: [63],
    }

    /// Word 3 of a fast register.
    ///
    /// Source: irdma `ctrl.c`, irdma_sc_mr_fast_register.
    pub struct FastRegisterHeader: u64 {
        /// consumer's part of the steering tag (IRDMAQPSQ_STAGKEY)
        steering_tag_key: [7:0],
        /// index of the region (IRDMAQPSQ_STAGINDEX)
        steering_tag_index: [31:8],
        /// operation
        opcode: [37:32],
        /// host-resident page list, 0 on the E810 (IRDMAQPSQ_COPYHOSTPBLS)
        copy_host_page_list: [43],
        /// levels of the page list: 0 none, 1 one, 2 two (IRDMAQPSQ_LPBLSIZE)
        page_list_levels: [45:44],
        /// 0: 4 KiB, 1: 2 MiB, 2: 1 GiB (IRDMAQPSQ_HPAGESIZE)
        page_size: [47:46],
        /// rights, see the `access` constants of the control path (IRDMAQPSQ_STAGRIGHTS)
        access_rights: [52:48],
        /// addresses are virtual; else they count from zero (IRDMAQPSQ_VABASEDTO)
        virtual_address_based: [53],
        /// wait for the outstanding RDMA reads
        read_fence: [60],
        /// wait for every earlier element
        local_fence: [61],
        /// write a completion on success
        signalled: [62],
        /// ring polarity
        valid: [63],
    }

    /// Word 3 of a memory window bind.
    ///
    /// Source: rdma-core `uk.c`, irdma_uk_mw_bind.
    pub struct BindHeader: u64 {
        /// operation
        opcode: [37:32],
        /// rights: remote read is 4, remote write is 8 (IRDMAQPSQ_STAGRIGHTS)
        access_rights: [52:48],
        /// addresses are virtual; else they count from zero (IRDMAQPSQ_VABASEDTO)
        virtual_address_based: [53],
        /// window of type 1; else type 2 (IRDMAQPSQ_MEMWINDOWTYPE)
        window_type_1: [54],
        /// wait for the outstanding RDMA reads
        read_fence: [60],
        /// wait for every earlier element
        local_fence: [61],
        /// write a completion on success
        signalled: [62],
        /// ring polarity
        valid: [63],
    }

    /// Second word of a fragment; the first is the address.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_GEN1_FRAG / IRDMAQPSQ_FRAG_STAG, _LEN, _VALID.
    pub struct FragmentKey: u64 {
        /// steering tag of the local region (IRDMAQPSQ_FRAG_STAG)
        steering_tag: [31:0],
        /// bytes to gather or scatter (IRDMAQPSQ_FRAG_LEN)
        length_bytes: [62:32],
        /// ring polarity (IRDMAQPSQ_FRAG_VALID)
        valid: [63],
    }

    /// Word 0 of an element with immediate data.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_IMMDATA.
    pub struct ImmediateWord: u64 {
        /// the immediate as a number in host order
        immediate: [31:0],
    }

    /// Word 2 of a datagram send.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_DESTQKEY, IRDMAQPSQ_DESTQPN.
    pub struct DatagramDestination: u64 {
        /// queue key of the destination
        queue_key: [31:0],
        /// queue pair number of the destination
        queue_pair: [55:32],
    }

    /// Word 1 of a memory window bind.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_MWSTAG, IRDMAQPSQ_PARENTMRSTAG.
    pub struct BindTags: u64 {
        /// steering tag of the window
        window: [31:0],
        /// steering tag of the region that it opens
        region: [63:32],
    }

    /// Word 1 of a local invalidate.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_LOCSTAG.
    pub struct LocalInvalidateTag: u64 {
        /// steering tag to invalidate
        steering_tag: [31:0],
    }

    /// Word 1 of a fast register: the page's address, or the upper part of the first page-list
    /// index, in its low bits. A page address has its low twelve bits clear.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_FIRSTPMPBLIDXHI; golden vectors `fast_register.*`.
    pub struct FastRegisterPage: u64 {
        /// bits 27:16 of the index of the first page-list entry
        first_entry_high: [11:0],
        /// bits 51:12 of the page's address
        page_number: [51:12],
    }

    /// Word 2 of a fast register.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_PBLSIZE / IRDMAQPSQ_FIRSTPMPBLIDXLO.
    pub struct FastRegisterLength: u64 {
        /// bytes of the region
        length_bytes: [40:0],
        /// bits 15:0 of the index of the first page-list entry
        first_entry_low: [63:48],
    }

    /// Last word of a further quantum that carries inline data: 7 bytes of data and the valid bit.
    ///
    /// Source: irdma `uk.c`, irdma_copy_inline_data (byte 31 of each quantum after the first).
    pub struct InlineTail: u64 {
        /// bytes 24..31 of the quantum
        data: [55:0],
        /// ring polarity
        valid: [63],
    }

    /// Last word of the second quantum of an atomic operation.
    ///
    /// Source: rdma-core `uk.c`, irdma_uk_atomic_fetch_add.
    pub struct AtomicTail: u64 {
        /// ring polarity
        valid: [63],
    }
}

/// Operation of a send element.
///
/// Source: irdma `user.h`, IRDMAQP_OP_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendOpcode {
    /// 0x00 IRDMAQP_OP_RDMA_WRITE
    Write,
    /// 0x01 IRDMAQP_OP_RDMA_READ
    Read,
    /// 0x03 IRDMAQP_OP_RDMA_SEND
    Send,
    /// 0x04 IRDMAQP_OP_RDMA_SEND_INV
    SendInvalidate,
    /// 0x05 IRDMAQP_OP_RDMA_SEND_SOL_EVENT
    SendSolicited,
    /// 0x06 IRDMAQP_OP_RDMA_SEND_SOL_EVENT_INV
    SendSolicitedInvalidate,
    /// 0x08 IRDMAQP_OP_BIND_MW
    BindWindow,
    /// 0x09 IRDMAQP_OP_FAST_REGISTER
    FastRegister,
    /// 0x0A IRDMAQP_OP_LOCAL_INVALIDATE
    LocalInvalidate,
    /// 0x0B IRDMAQP_OP_RDMA_READ_LOC_INV: invalidates the local sink after the read
    ReadInvalidate,
    /// 0x0C IRDMAQP_OP_NOP
    Nop,
    /// 0x0D IRDMAQP_OP_RDMA_WRITE_SOL
    WriteSolicited,
    /// 0x0F IRDMAQP_OP_ATOMIC_FETCH_ADD; not on the E810
    FetchAdd,
    /// 0x11 IRDMAQP_OP_ATOMIC_COMPARE_SWAP_ADD; not on the E810
    CompareSwap,
    /// 0x30 IRDMAQP_OP_GEN_RTS_AE; iWARP only
    GenerateReadyEvent,
    /// any other code
    Unknown(u8),
}

impl SendOpcode {
    /// The operation of a six-bit code.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0x00 => Self::Write,
            0x01 => Self::Read,
            0x03 => Self::Send,
            0x04 => Self::SendInvalidate,
            0x05 => Self::SendSolicited,
            0x06 => Self::SendSolicitedInvalidate,
            0x08 => Self::BindWindow,
            0x09 => Self::FastRegister,
            0x0A => Self::LocalInvalidate,
            0x0B => Self::ReadInvalidate,
            0x0C => Self::Nop,
            0x0D => Self::WriteSolicited,
            0x0F => Self::FetchAdd,
            0x11 => Self::CompareSwap,
            0x30 => Self::GenerateReadyEvent,
            other => Self::Unknown(other),
        }
    }

    /// The six-bit code of the operation.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Write => 0x00,
            Self::Read => 0x01,
            Self::Send => 0x03,
            Self::SendInvalidate => 0x04,
            Self::SendSolicited => 0x05,
            Self::SendSolicitedInvalidate => 0x06,
            Self::BindWindow => 0x08,
            Self::FastRegister => 0x09,
            Self::LocalInvalidate => 0x0A,
            Self::ReadInvalidate => 0x0B,
            Self::Nop => 0x0C,
            Self::WriteSolicited => 0x0D,
            Self::FetchAdd => 0x0F,
            Self::CompareSwap => 0x11,
            Self::GenerateReadyEvent => 0x30,
            Self::Unknown(code) => code,
        }
    }
}

/// A piece of a local, registered buffer. Verbs: `ibv_sge`, whose layout it has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fragment {
    /// Its start: a virtual address of its region, or an offset in a zero-based one.
    pub address: u64,
    /// Bytes, below 2^31.
    pub length_bytes: u32,
    /// Local key of the region: the E810's steering tag.
    pub steering_tag: u32,
}

impl Fragment {
    /// Largest length of one fragment: the field has 31 bits.
    pub const MAX_BYTES: u32 = (FragmentKey::LENGTH_BYTES_MASK >> 32) as u32;

    /// The two words of a fragment slot.
    ///
    /// A length above [`Self::MAX_BYTES`] is the caller's bug.
    #[inline(always)]
    #[must_use]
    pub const fn encode(self, polarity: bool) -> [u64; 2] {
        let key = FragmentKey::ZERO
            .with_steering_tag(self.steering_tag as u64)
            .with_length_bytes(self.length_bytes as u64)
            .with_valid(polarity);
        [self.address, key.0]
    }

    /// Decodes the two words of a slot, without the valid bit.
    #[inline(always)]
    #[must_use]
    pub const fn decode(address: u64, key: FragmentKey) -> Self {
        Self {
            address,
            length_bytes: key.length_bytes() as u32,
            steering_tag: key.steering_tag() as u32,
        }
    }
}
