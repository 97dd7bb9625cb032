//! Reasons of a rejection.

macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl Reason {
            $($(#[$meta])* pub const $name: Self = Self($code);)*

            /// The standard's name for it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "reason unknown to this version",
                }
            }
        }
    };
}

/// REJ:Reason. Codes without a name are kept.
/// Source: InfiniBand Architecture Specification volume 1, table 108.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

reasons! {
    /// no queue pair left
    NO_QUEUE_PAIR = 1, "no queue pair available";
    /// no end-to-end context left
    NO_END_TO_END_CONTEXT = 2, "no end-to-end context available";
    /// no resources
    NO_RESOURCES = 3, "no resources available";
    /// gave up waiting; the additional information is the sender's GUID
    TIMEOUT = 4, "timeout";
    /// the request makes no sense here
    UNSUPPORTED_REQUEST = 5, "unsupported request";
    /// communication id unknown
    INVALID_COMMUNICATION_ID = 6, "invalid communication id";
    /// instance unknown
    INVALID_INSTANCE = 7, "invalid communication instance";
    /// no listener for the service id
    INVALID_SERVICE_ID = 8, "invalid service id";
    /// transport type not served
    INVALID_TRANSPORT = 9, "invalid transport service type";
    /// a connection that still exists uses the queue pair
    STALE_CONNECTION = 10, "stale connection";
    /// the channel does not exist
    NO_CHANNEL = 11, "reliable datagram channel does not exist";
    /// the primary remote GID is not one of the receiver's, or cannot be reached
    PRIMARY_REMOTE_GID = 12, "primary remote GID rejected";
    /// primary remote LID
    PRIMARY_REMOTE_LID = 13, "primary remote LID rejected";
    /// primary service level
    PRIMARY_SERVICE_LEVEL = 14, "primary service level rejected";
    /// primary traffic class
    PRIMARY_TRAFFIC_CLASS = 15, "primary traffic class rejected";
    /// primary hop limit
    PRIMARY_HOP_LIMIT = 16, "primary hop limit rejected";
    /// primary packet rate
    PRIMARY_PACKET_RATE = 17, "primary packet rate rejected";
    /// the alternate remote GID
    ALTERNATE_REMOTE_GID = 18, "alternate remote GID rejected";
    /// alternate remote LID
    ALTERNATE_REMOTE_LID = 19, "alternate remote LID rejected";
    /// alternate service level
    ALTERNATE_SERVICE_LEVEL = 20, "alternate service level rejected";
    /// alternate traffic class
    ALTERNATE_TRAFFIC_CLASS = 21, "alternate traffic class rejected";
    /// alternate hop limit
    ALTERNATE_HOP_LIMIT = 22, "alternate hop limit rejected";
    /// alternate packet rate
    ALTERNATE_PACKET_RATE = 23, "alternate packet rate rejected";
    /// try another connection manager
    PORT_AND_MANAGER_REDIRECT = 24, "port and connection manager redirection";
    /// try another port
    PORT_REDIRECT = 25, "port redirection";
    /// path MTU too large
    PATH_MTU = 26, "path MTU rejected";
    /// too few responder resources
    RESPONDER_RESOURCES = 27, "insufficient responder resources";
    /// the program refuses; its private data may hold the reason
    CONSUMER = 28, "rejected by the program";
    /// receiver-not-ready retry count
    RNR_RETRY_COUNT = 29, "receiver-not-ready retry count rejected";
    /// the communication id is used twice
    DUPLICATE_COMMUNICATION_ID = 30, "duplicate local communication id";
    /// another version of the class
    CLASS_VERSION = 31, "unsupported class version";
    /// primary flow label
    PRIMARY_FLOW_LABEL = 32, "primary flow label rejected";
    /// alternate flow label
    ALTERNATE_FLOW_LABEL = 33, "alternate flow label rejected";
    /// a vendor's extension (ECE) is not supported
    VENDOR_OPTION = 35, "vendor option not supported";
}

impl std::fmt::Display for Reason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} (reason {})", self.text(), self.0)
    }
}

impl std::fmt::Debug for Reason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, out)
    }
}

/// SIDR_REP:Status. Codes without a name are kept.
/// Source: InfiniBand Architecture Specification volume 1, table 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceStatus(pub u8);

impl ServiceStatus {
    /// the reply names a queue pair
    pub const VALID: Self = Self(0);
    /// no listener for the service id
    pub const UNSUPPORTED: Self = Self(1);
    /// the program refuses
    pub const REJECTED: Self = Self(2);
    /// no queue pair left
    pub const NO_QUEUE_PAIR: Self = Self(3);
    /// try elsewhere
    pub const REDIRECT: Self = Self(4);
    /// another version of the class
    pub const VERSION: Self = Self(5);
}
