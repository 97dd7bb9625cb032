//! Format of the package file (DDP): segments, buffers, sections.
//!
//! A file is a [`PackageHeader`], the offsets of its segments, and the segments. The E810's
//! segment ends in a table of buffers of 4096 bytes; each has a [`BufferHeader`], its
//! [`SectionEntry`]s and the sections. Offsets of segments count from the beginning of the file,
//! offsets of sections from the beginning of their buffer. Source: ice `ice_ddp.h`.

use crate::lan::wire::wire;
use zerocopy::byteorder::little_endian::{U16, U32};

wire! {
    /// Version of a package, segment or section.
    pub struct PackageVersion "ice_pkg_ver": 4 {
        /// major
        major "major": u8,
        /// minor
        minor "minor": u8,
        /// update
        update "update": u8,
        /// draft
        draft "draft": u8,
    }
    /// Head of the file; `segment_count` offsets of 32 bits follow.
    pub struct PackageHeader "ice_pkg_hdr": 8 {
        /// [`FORMAT_VERSION`]
        format "pkg_format_ver": PackageVersion,
        /// segments
        segment_count "seg_count": U32,
    }
    /// Head of a segment.
    pub struct SegmentHeader "ice_generic_seg_hdr": 44 {
        /// see [`segment`]
        kind "seg_type": U32,
        /// version of its format
        format "seg_format_ver": PackageVersion,
        /// bytes with the header
        size_bytes "seg_size": U32,
        /// name, padded with zeros
        name "seg_id": [u8; 32],
    }
    /// A device that the segment is for.
    pub struct DeviceEntry "ice_device_id_entry": 8 {
        /// device and vendor
        device "device": DeviceId,
        /// subsystem device and vendor
        subsystem "sub_device": DeviceId,
    }
    /// Device and vendor id.
    pub struct DeviceId "ice_device_id": 4 {
        /// device
        device "dev_vend_id.device_id": U16,
        /// vendor
        vendor "dev_vend_id.vendor_id": U16,
    }
    /// Head of the E810's segment; `device_count` [`DeviceEntry`] follow, then a count of 32 bits
    /// and as many NVM versions of 32 bits, then a count of 32 bits and as many buffers.
    pub struct DeviceSegment "ice_seg": 48 {
        /// head
        header "hdr": SegmentHeader,
        /// devices that follow
        device_count "device_table_count": U32,
    }
    /// Head of a segment of run-time configuration; the buffers follow.
    pub struct RuntimeSegment "ice_run_time_cfg_seg": 56 {
        /// head
        header "hdr": SegmentHeader,
        /// zero
        reserved "rsvd": [u8; 8],
        /// buffers that follow
        buffer_count "buf_table": U32,
    }
    /// Segment of metadata of the whole package.
    pub struct MetadataSegment "ice_global_metadata_seg": 84 {
        /// head
        header "hdr": SegmentHeader,
        /// version of the package
        version "pkg_ver": PackageVersion,
        /// zero
        reserved "rsvd": U32,
        /// name, padded with zeros
        name "pkg_name": [u8; 32],
    }
    /// Head of a signing segment; the buffers follow.
    pub struct SigningSegment "ice_sign_seg": 112 {
        /// head
        header "hdr": SegmentHeader,
        /// kind of the segment that is signed
        signed_kind "seg_id": U32,
        /// see [`signature`]
        signature "sign_type": U32,
        /// the segment that is signed
        signed_segment "signed_seg_idx": U32,
        /// first buffer that is signed
        first_buffer "signed_buf_start": U32,
        /// buffers that are signed
        signed_count "signed_buf_count": U32,
        /// zero
        reserved "reserved": [u8; 44],
        /// buffers that follow
        buffer_count "buf_tbl": U32,
    }
    /// Head of a buffer; `section_count` [`SectionEntry`] follow.
    pub struct BufferHeader "ice_buf_hdr": 4 {
        /// sections, 1 to 511
        section_count "section_count": U16,
        /// bytes in use, 12 to 4096
        data_end "data_end": U16,
    }
    /// The position of a section.
    pub struct SectionEntry "ice_section_entry": 8 {
        /// see [`section`]
        kind "type": U32,
        /// bytes from the beginning of the buffer, 12 to 4095
        offset "offset": U16,
        /// bytes, 1 to 4084
        size_bytes "size": U16,
    }
    /// Section of metadata: the first of the first buffer.
    pub struct MetadataSection "ice_meta_sect": 36 {
        /// version of the package; see [`SUPPORTED_VERSION`]
        version "ver": PackageVersion,
        /// name, padded with zeros
        name "name": [u8; 28],
        /// tracking id
        track_id "track_id": U32,
    }
    /// A name; a section of them begins with a count of 16 bits.
    pub struct Label "ice_label": 66 {
        /// the value of the label
        value "value": U16,
        /// name, padded with zeros
        name "name": [u8; 64],
    }
    /// Head of a section of labels; `count` [`Label`] follow.
    pub struct LabelSection "ice_label_section": 2 {
        /// labels that follow
        count "count": U16,
    }
    /// Key and mask of a boost entry.
    pub struct BoostKeyValue "ice_boost_key_value": 20 {
        /// the rest
        rest "remaining_hv_key": [u8; 15],
        /// destination port
        destination_port "hv_dst_port_key": U16,
        /// source port
        source_port "hv_src_port_key": U16,
        /// search key
        search "tcam_search_key": u8,
    }
    /// Entry of the parser's boost memory: a tunnel port.
    pub struct BoostEntry "ice_boost_tcam_entry": 88 {
        /// address; equals the value of its label
        address "addr": U16,
        /// zero
        reserved "reserved": U16,
        /// key and inverted key
        key "key": [BoostKeyValue; 2],
        /// group that a hit gives
        hit_group "boost_hit_index_group": u8,
        /// more
        bits "bit_fields": [u8; 43],
    }
    /// Head of a section of boost entries; `count` [`BoostEntry`] follow.
    pub struct BoostSection "ice_boost_tcam_section": 4 {
        /// entries that follow
        count "count": U16,
        /// zero
        reserved "reserved": U16,
    }
    /// A word of a field vector.
    pub struct FieldVectorWord "ice_fv_word": 4 {
        /// protocol
        protocol "prot_id": u8,
        /// offset in its header
        offset "off": U16,
        /// zero
        reserved "resvrd": u8,
    }
    /// Head of a section of the switch's field vectors; `count` vectors of 48
    /// [`FieldVectorWord`] follow.
    pub struct FieldVectorSection "ice_sw_fv_section": 4 {
        /// vectors that follow
        count "count": U16,
        /// profile of the first
        first "base_offset": U16,
    }
    /// Entry of the parser's marker memory.
    pub struct MarkerEntry "ice_marker_ptype_tcam_entry": 24 {
        /// address
        address "addr": U16,
        /// packet type
        packet_type "ptype": U16,
        /// keys
        keys "keys": [u8; 20],
    }
    /// Head of a section of marker entries; `count` [`MarkerEntry`] follow.
    pub struct MarkerSection "ice_marker_ptype_tcam_section": 4 {
        /// entries that follow
        count "count": U16,
        /// zero
        reserved "reserved": U16,
    }
    /// Head of a section of packet type groups; `count` bytes follow.
    pub struct PacketGroupSection "ice_xlt1_section": 4 {
        /// values that follow
        count "count": U16,
        /// index of the first
        first "offset": U16,
    }
    /// Head of a section of VSI groups; `count` values of 16 bits follow.
    pub struct VsiGroupSection "ice_xlt2_section": 4 {
        /// values that follow
        count "count": U16,
        /// index of the first
        first "offset": U16,
    }
    /// Entry of a profile match memory; a section of them begins with a count of 16 bits. Its key
    /// is of five bytes (flags, packet type group, VSI group): a bit that is set in the first half
    /// may be 0, in the second half 1; a bit clear in both matches nothing.
    pub struct ProfileEntry "ice_prof_tcam_entry": 13 {
        /// row: of the matching ones, the lowest is used
        row "addr": U16,
        /// bits that may be 0
        key "key[0..5]": [u8; 5],
        /// bits that may be 1
        inverse "key[5..10]": [u8; 5],
        /// profile
        profile "prof_id": u8,
    }
    /// Head of a section of field vectors of the flow director or the hash; `count` vectors of
    /// [`VECTOR_WORDS`] [`FieldVectorWord`] follow.
    pub struct VectorSection "ice_fv_section": 4 {
        /// vectors that follow
        count "count": U16,
        /// profile of the first
        first "base_offset": U16,
    }
    /// Head of a section of profile redirection; `count` bytes follow.
    pub struct RedirectSection "ice_prof_redir_section": 4 {
        /// values that follow
        count "count": U16,
        /// index of the first
        first "offset": U16,
    }
}

/// Words of a field vector of the flow director or the hash.
pub const VECTOR_WORDS: usize = 24;
/// [`FieldVectorWord::protocol`] and [`FieldVectorWord::offset`] of a word that is not used.
pub const UNUSED_WORD: (u8, u16) = (0xFF, 0x1FF);
/// Bytes of a buffer.
pub const BUFFER_BYTES: usize = 4096;
/// [`PackageHeader::format`]: all four bytes must be these.
pub const FORMAT_VERSION: [u8; 4] = [1, 0, 0, 0];
/// Major and minor of [`MetadataSection::version`] that drivers take.
pub const SUPPORTED_VERSION: (u8, u8) = (1, 3);
/// Most sections of a buffer.
pub const MAX_SECTIONS: u16 = 511;
/// Smallest offset of a section, and smallest [`BufferHeader::data_end`].
pub const SECTION_OFFSET_MIN: u16 = 12;
/// Most bytes of a section.
pub const MAX_SECTION_BYTES: u16 = 4084;
/// Bit of [`SectionEntry::kind`] that marks labels and metadata, which are not downloaded.
pub const NOT_DOWNLOADED: u32 = 0x8000_0000;

/// Values of [`SegmentHeader::kind`].
pub mod segment {
    /// metadata of the whole
    pub const METADATA: u32 = 0x01;
    /// the E810's
    pub const E810: u32 = 0x10;
    /// run-time configuration
    pub const RUNTIME: u32 = 0x20;
    /// signatures
    pub const SIGNING: u32 = 0x1001;
}

/// Values of [`SigningSegment::signature`].
pub mod signature {
    /// RSA 2048: the E810's
    pub const RSA_2K: u32 = 1;
    /// RSA 3072
    pub const RSA_3K: u32 = 2;
    /// RSA 3072 with secure boot
    pub const RSA_3K_SECURE_BOOT: u32 = 3;
    /// RSA 3072 of the E825
    pub const RSA_3K_E825: u32 = 5;
}

/// Values of [`SectionEntry::kind`]. Source: ice `ICE_SID_*`.
pub mod section {
    /// metadata
    pub const METADATA: u32 = 1;
    /// manifest, key and signature of a signed package; its download begins with these. Source: the
    /// package 1.3.41.0 of Debian's firmware-intel-misc, whose signing segments hold nothing else.
    pub const SIGNATURES: core::ops::RangeInclusive<u32> = 2..=6;
    /// first of the switch's sections: XLT0; the others follow in the order of [`block`]
    pub const SWITCH: u32 = 10;
    /// first of the access control list's sections
    pub const ACCESS_CONTROL: u32 = 20;
    /// first of the flow director's sections
    pub const FLOW_DIRECTOR: u32 = 30;
    /// first of the hash's sections
    pub const HASH: u32 = 40;
    /// first of the RDMA engine's sections
    pub const PROTOCOL_ENGINE: u32 = 80;
    /// parser marker memory
    pub const PARSER_MARKER: u32 = 55;
    /// parser boost memory
    pub const PARSER_BOOST: u32 = 56;
    /// protocol groups
    pub const PROTOCOL_GROUPS: u32 = 57;
    /// initial metadata, read back after a download
    pub const METADATA_INIT: u32 = 58;
    /// parser boost memory of the transmit side
    pub const TRANSMIT_BOOST: u32 = 66;
    /// flag redirection
    pub const FLAG_REDIRECT: u32 = 97;
    /// names of boost entries
    pub const BOOST_LABELS: u32 = 0x8000_0018;

    /// The kinds of the sections of one block, counted from its first.
    pub mod block {
        /// packet type to key
        pub const XLT0: u32 = 0;
        /// the rule by which keys are built
        pub const KEY_BUILDER: u32 = 1;
        /// packet type groups
        pub const PACKET_GROUPS: u32 = 2;
        /// VSI groups
        pub const VSI_GROUPS: u32 = 3;
        /// profile match memory
        pub const PROFILE_TCAM: u32 = 4;
        /// profile redirection
        pub const REDIRECT: u32 = 5;
        /// field vectors
        pub const FIELD_VECTORS: u32 = 6;
    }
}
