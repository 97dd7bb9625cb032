//! Management datagrams (MADs) of the communication management class.
//!
//! Source: InfiniBand Architecture Specification volume 1, section 13.4.2 (header) and 12.6
//! (attributes).

pub use crate::layout::{DATA_BYTES, HEADER_BYTES, MAD_BYTES};
use crate::message::{
    AlternatePathResponse, ConnectionReply, ConnectionRequest, DisconnectReply, DisconnectRequest,
    LoadAlternatePath, MessageReceipt, ReadyToUse, Rejection, ServiceReply, ServiceRequest,
};

/// Version of the header.
const BASE_VERSION: u8 = 1;
/// Communication management.
const CLASS: u8 = 0x07;
/// Version of that class.
const CLASS_VERSION: u8 = 2;
/// Every message but those about the class itself.
const METHOD_SEND: u8 = 0x03;

/// A message with the parts of the MAD's header that mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// chosen by the sender of a request, repeated in answers; nothing else
    pub transaction_id: u64,
    /// attribute modifier: 0, or the data of a vendor's extension (ECE)
    pub attribute_modifier: u32,
    /// the message
    pub message: Message,
}

macro_rules! messages {
    ($($(#[$meta:meta])* $variant:ident($type:ident) = $attribute:literal, $short:literal;)*) => {
        /// A message of the connection manager.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        // Of similar size, and copied into a MAD in the end: a box each would save nothing.
        #[allow(clippy::large_enum_variant)]
        pub enum Message {
            $($(#[$meta])* $variant($type),)*
        }

        impl Message {
            /// Attribute id.
            #[must_use]
            pub const fn attribute(&self) -> u16 {
                match self { $(Self::$variant(_) => $attribute,)* }
            }

            /// The standard's abbreviation.
            #[must_use]
            pub const fn abbreviation(&self) -> &'static str {
                match self { $(Self::$variant(_) => $short,)* }
            }

            /// Every field but the areas of bytes: its name and value.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, u128)> {
                match self { $(Self::$variant(message) => message.fields(),)* }
            }

            /// Areas of bytes: name and content.
            #[must_use]
            pub fn areas(&self) -> Vec<(&'static str, &[u8])> {
                match self { $(Self::$variant(message) => message.areas(),)* }
            }

            fn decode(attribute: u16, data: &[u8; DATA_BYTES]) -> Option<Self> {
                match attribute {
                    $($attribute => Some(Self::$variant($type::decode(data))),)*
                    _ => None,
                }
            }

            fn encode(&self, data: &mut [u8; DATA_BYTES]) {
                match self { $(Self::$variant(message) => message.encode(data),)* }
            }
        }
    };
}

messages! {
    /// requests a connection
    Request(ConnectionRequest) = 0x10, "REQ";
    /// the answer takes longer
    Receipt(MessageReceipt) = 0x11, "MRA";
    /// refuses
    Reject(Rejection) = 0x12, "REJ";
    /// accepts
    Reply(ConnectionReply) = 0x13, "REP";
    /// the connection is ready to use
    Ready(ReadyToUse) = 0x14, "RTU";
    /// ends a connection
    Disconnect(DisconnectRequest) = 0x15, "DREQ";
    /// confirms the end
    DisconnectReply(DisconnectReply) = 0x16, "DREP";
    /// requests the queue pair of a datagram service
    ServiceRequest(ServiceRequest) = 0x17, "SIDR_REQ";
    /// names it, or refuses
    ServiceReply(ServiceReply) = 0x18, "SIDR_REP";
    /// offers an alternate path
    LoadAlternatePath(LoadAlternatePath) = 0x19, "LAP";
    /// answers such an offer
    AlternatePathResponse(AlternatePathResponse) = 0x1A, "APR";
}

/// The reason why bytes are not a message of the connection manager. The receiver drops them and
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MadError {
    /// Shorter than a MAD. Longer ones are cut.
    #[error("{length_bytes} bytes are no MAD of {MAD_BYTES}")]
    Short {
        /// bytes that arrived
        length_bytes: usize,
    },
    /// The header's version is unknown.
    #[error("MAD of base version {0}, not {BASE_VERSION}")]
    BaseVersion(u8),
    /// A message for another agent, or for one that queue pair 1 does not serve.
    #[error("MAD of class {0:#04x}, not {CLASS:#04x}")]
    Class(u8),
    /// A later or earlier connection manager.
    #[error("connection manager of version {0}, not {CLASS_VERSION}")]
    ClassVersion(u8),
    /// A question about the class, or a method that does not exist.
    #[error("method {0:#04x}, not Send")]
    Method(u8),
    /// No message has this attribute id.
    #[error("attribute {0:#06x} is no message")]
    Attribute(u16),
}

impl Mad {
    /// Reads a MAD.
    ///
    /// Errors: [`MadError`], and the caller drops the MAD: nothing is answered.
    pub fn decode(bytes: &[u8]) -> Result<Self, MadError> {
        let short = MadError::Short {
            length_bytes: bytes.len(),
        };
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let data = rest.first_chunk::<DATA_BYTES>().ok_or(short)?;
        let [base, class, version, method, _, _, _, _, ids @ ..] = header;
        let [t0, t1, t2, t3, t4, t5, t6, t7, a0, a1, _, _, m0, m1, m2, m3] = ids;
        match (*base, *class, *version, *method) {
            (BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND) => {}
            (BASE_VERSION, CLASS, CLASS_VERSION, method) => return Err(MadError::Method(method)),
            (BASE_VERSION, CLASS, version, _) => return Err(MadError::ClassVersion(version)),
            (BASE_VERSION, class, ..) => return Err(MadError::Class(class)),
            (base, ..) => return Err(MadError::BaseVersion(base)),
        }
        let attribute = u16::from_be_bytes([*a0, *a1]);
        Ok(Self {
            transaction_id: u64::from_be_bytes([*t0, *t1, *t2, *t3, *t4, *t5, *t6, *t7]),
            attribute_modifier: u32::from_be_bytes([*m0, *m1, *m2, *m3]),
            message: Message::decode(attribute, data).ok_or(MadError::Attribute(attribute))?,
        })
    }

    /// Writes a MAD.
    #[must_use]
    pub fn encode(&self) -> [u8; MAD_BYTES] {
        let mut data = [0; DATA_BYTES];
        self.message.encode(&mut data);
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND]);
        header[8..16].copy_from_slice(&self.transaction_id.to_be_bytes());
        header[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        header[20..].copy_from_slice(&self.attribute_modifier.to_be_bytes());
        let mut mad = [0; MAD_BYTES];
        mad[..HEADER_BYTES].copy_from_slice(&header);
        mad[HEADER_BYTES..].copy_from_slice(&data);
        mad
    }
}
