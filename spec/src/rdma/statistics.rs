//! Statistics that GATHER_STATS copies to memory: 46 counters in 1024 bytes.
//!
//! Counters only grow; a reader subtracts the previous snapshot modulo 2^width.

/// A counter in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// The hardware's name, as in GLPES_PF*.
    pub name: &'static str,
    /// The name under which Linux shows it in `hw_counters`.
    pub sysfs_name: &'static str,
    /// Byte offset of its 64-bit word.
    pub byte: usize,
    /// Lowest bit in the word.
    pub bit: u32,
    /// Number of bits.
    pub width: u32,
}

/// Words of the buffer.
pub const BUFFER_WORDS: usize = 128;

/// Every counter, by place.
///
/// TCPRXSEGS: Linux declares 48 bits from bit 32 on, of which only 32 exist.
/// Source: irdma `icrdma_hw.c`, `icrdma_hw_stat_map`; names as in `verbs.c`.
pub const COUNTERS: [Counter; 46] = [
    counter("RXVLANERR", "rxVlanErrors", 0, 32, 24),
    counter("IP4RXOCTS", "ip4InOctets", 8, 0, 48),
    counter("IP4RXPKTS", "ip4InPkts", 16, 0, 48),
    counter("IP4RXTRUNC", "ip4InTruncatedPkts", 24, 0, 32),
    counter("IP4RXDISCARD", "ip4InDiscards", 24, 32, 32),
    counter("IP4RXFRAGS", "ip4InReasmRqd", 32, 0, 48),
    counter("IP4RXMCOCTS", "ip4InMcastOctets", 40, 0, 48),
    counter("IP4RXMCPKTS", "ip4InMcastPkts", 48, 0, 48),
    counter("IP6RXOCTS", "ip6InOctets", 56, 0, 48),
    counter("IP6RXPKTS", "ip6InPkts", 64, 0, 48),
    counter("IP6RXTRUNC", "ip6InTruncatedPkts", 72, 0, 32),
    counter("IP6RXDISCARD", "ip6InDiscards", 72, 32, 32),
    counter("IP6RXFRAGS", "ip6InReasmRqd", 80, 0, 48),
    counter("IP6RXMCOCTS", "ip6InMcastOctets", 88, 0, 48),
    counter("IP6RXMCPKTS", "ip6InMcastPkts", 96, 0, 48),
    counter("IP4TXOCTS", "ip4OutOctets", 104, 0, 48),
    counter("IP4TXPKTS", "ip4OutPkts", 112, 0, 48),
    counter("IP4TXFRAGS", "ip4OutSegRqd", 120, 0, 48),
    counter("IP4TXMCOCTS", "ip4OutMcastOctets", 128, 0, 48),
    counter("IP4TXMCPKTS", "ip4OutMcastPkts", 136, 0, 48),
    counter("IP6TXOCTS", "ip6OutOctets", 144, 0, 48),
    counter("IP6TXPKTS", "ip6OutPkts", 152, 0, 48),
    counter("IP6TXFRAGS", "ip6OutSegRqd", 160, 0, 48),
    counter("IP6TXMCOCTS", "ip6OutMcastOctets", 168, 0, 48),
    counter("IP6TXMCPKTS", "ip6OutMcastPkts", 176, 0, 48),
    counter("IP6TXNOROUTE", "ip6OutNoRoutes", 184, 0, 24),
    counter("IP4TXNOROUTE", "ip4OutNoRoutes", 184, 32, 24),
    counter("TCPRXSEGS", "tcpInSegs", 192, 32, 32),
    counter("TCPRXPROTOERR", "tcpInProtoErrors", 200, 0, 24),
    counter("TCPRXOPTERR", "tcpInOptErrors", 200, 32, 24),
    counter("TCPTXSEG", "tcpOutSegs", 208, 0, 48),
    counter("TCPRTXSEG", "tcpRetransSegs", 216, 32, 32),
    counter("UDPRXPKTS", "RxUDP", 224, 0, 48),
    counter("UDPTXPKTS", "TxUDP", 232, 0, 48),
    counter("RDMARXWRS", "iwInRdmaWrites", 240, 0, 48),
    counter("RDMARXRDS", "iwInRdmaReads", 248, 0, 48),
    counter("RDMARXSNDS", "iwInRdmaSends", 256, 0, 48),
    counter("RDMATXWRS", "iwOutRdmaWrites", 264, 0, 48),
    counter("RDMATXRDS", "iwOutRdmaReads", 272, 0, 48),
    counter("RDMATXSNDS", "iwOutRdmaSends", 280, 0, 48),
    counter("RDMAVBND", "iwRdmaBnd", 288, 0, 48),
    counter("RDMAVINV", "iwRdmaInv", 296, 0, 48),
    counter("RXNPECNMARKEDPKTS", "RxECNMrkd", 304, 0, 56),
    counter("RXRPCNPHANDLED", "cnpHandled", 312, 0, 32),
    counter("RXRPCNPIGNORED", "cnpIgnored", 312, 32, 24),
    counter("TXNPCNPSENT", "cnpSent", 320, 0, 32),
];

const fn counter(
    name: &'static str,
    sysfs_name: &'static str,
    byte: usize,
    bit: u32,
    width: u32,
) -> Counter {
    assert!(bit + width <= u64::BITS && width < u64::BITS && byte.is_multiple_of(8));
    Counter {
        name,
        sysfs_name,
        byte,
        bit,
        width,
    }
}

impl Counter {
    /// The counter with the hardware's name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        COUNTERS.iter().find(|counter| counter.name == name)
    }

    /// Largest value.
    #[must_use]
    pub const fn max(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// The value in a buffer; 0 if the buffer ends before it.
    #[must_use]
    pub fn read(&self, words: &[u64]) -> u64 {
        words
            .get(self.byte / 8)
            .map_or(0, |word| word >> self.bit & self.max())
    }

    /// Stores a value modulo 2^width; does nothing if the buffer ends before it.
    pub fn write(&self, words: &mut [u64], value: u64) {
        if let Some(word) = words.get_mut(self.byte / 8) {
            let mask = self.max() << self.bit;
            *word = *word & !mask | (value & self.max()) << self.bit;
        }
    }

    /// The count between two values, over at most one wrap.
    #[must_use]
    pub const fn difference(&self, before: u64, after: u64) -> u64 {
        after.wrapping_sub(before) & self.max()
    }
}
