//! Layouts of the connection manager's messages.
//!
//! Names are those of the standard. `local` and `remote` are seen from the sender of a message.
//! Reserved bits are sent as 0 and ignored.
//!
//! Source: InfiniBand Architecture Specification volume 1, sections 12.6 to 12.11.

use crate::address::Gid;
use crate::layout::message;

/// Bytes of private data of a rejection (REJ).
pub const MAX_REJECTION_PRIVATE_BYTES: usize = 148;
/// Bytes of private data of the answer about an alternate path (APR).
pub const ALTERNATE_PATH_PRIVATE_BYTES: usize = 148;
/// Bytes of additional information of both.
pub const MAX_ADDITIONAL_INFORMATION_BYTES: usize = 72;

message! {
    /// REQ: requests a connection.
    pub struct ConnectionRequest {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// vendor of an extension (ECE); 0 without one
        vendor_id: u32 = [5 + 0, 24],
        /// requested service
        service_id: u64 = [8 + 0, 64],
        /// GUID of the sender's node
        local_ca_guid: u64 = [16 + 0, 64],
        /// Q_Key of a reliable datagram channel
        local_q_key: u32 = [28 + 0, 32],
        /// queue pair of the sender, 24 bits
        local_qpn: u32 = [32 + 0, 24],
        /// reads and atomics that the sender answers at a time
        responder_resources: u8 = [35 + 0, 8],
        /// end-to-end context of a reliable datagram channel, 24 bits
        local_eecn: u32 = [36 + 0, 24],
        /// reads and atomics that the sender has outstanding at a time
        initiator_depth: u8 = [39 + 0, 8],
        /// the same context of the receiver, 24 bits
        remote_eecn: u32 = [40 + 0, 24],
        /// time that the receiver has for an answer, a code
        remote_cm_response_timeout: u8 = [43 + 0, 5],
        /// 0 reliable, 1 unreliable connection, 2 reliable datagram, 3 see the extended type
        transport_service_type: u8 = [43 + 5, 2],
        /// true if the sender implements end-to-end flow control
        end_to_end_flow_control: bool = [43 + 7, 1],
        /// PSN of the first packet that the sender will receive, 24 bits
        starting_psn: u32 = [44 + 0, 24],
        /// time within which the sender answers, a code
        local_cm_response_timeout: u8 = [47 + 0, 5],
        /// transport retries, 0..=7
        retry_count: u8 = [47 + 5, 3],
        /// partition key
        partition_key: u16 = [48 + 0, 16],
        /// path MTU: 1 = 256 to 5 = 4096 bytes
        path_mtu: u8 = [50 + 0, 4],
        /// true if the reliable datagram channel exists
        rdc_exists: bool = [50 + 4, 1],
        /// receiver-not-ready retries of the receiver of this message; 7 = for ever
        rnr_retry_count: u8 = [50 + 5, 3],
        /// repeats of a message before the sender is given up
        max_cm_retries: u8 = [51 + 0, 4],
        /// true if the sender's queue pair has a shared receive queue
        srq: bool = [51 + 4, 1],
        /// 1 = extended reliable connection
        extended_transport_type: u8 = [51 + 5, 3],
        /// LID of the sender's end of the primary path; no meaning on RoCE
        primary_local_lid: u16 = [52 + 0, 16],
        /// LID of the receiver's end of the primary path
        primary_remote_lid: u16 = [54 + 0, 16],
        /// GID of the sender's end of the primary path
        primary_local_gid: Gid = [56 + 0, 128],
        /// GID of the receiver's end of the primary path
        primary_remote_gid: Gid = [72 + 0, 128],
        /// flow label, 20 bits
        primary_flow_label: u32 = [88 + 0, 20],
        /// packet rate, a code
        primary_packet_rate: u8 = [91 + 2, 6],
        /// traffic class
        primary_traffic_class: u8 = [92 + 0, 8],
        /// hop limit
        primary_hop_limit: u8 = [93 + 0, 8],
        /// service level
        primary_sl: u8 = [94 + 0, 4],
        /// true if the path stays in the subnet
        primary_subnet_local: bool = [94 + 4, 1],
        /// local ACK timeout: 4.096 us times 2 to this power
        primary_local_ack_timeout: u8 = [95 + 0, 5],
        /// LID of the sender's end of the alternate path; no meaning on RoCE
        alternate_local_lid: u16 = [96 + 0, 16],
        /// LID of the receiver's end of the alternate path
        alternate_remote_lid: u16 = [98 + 0, 16],
        /// GID of the sender's end of the alternate path
        alternate_local_gid: Gid = [100 + 0, 128],
        /// GID of the receiver's end of the alternate path
        alternate_remote_gid: Gid = [116 + 0, 128],
        /// flow label, 20 bits
        alternate_flow_label: u32 = [132 + 0, 20],
        /// packet rate, a code
        alternate_packet_rate: u8 = [135 + 2, 6],
        /// traffic class
        alternate_traffic_class: u8 = [136 + 0, 8],
        /// hop limit
        alternate_hop_limit: u8 = [137 + 0, 8],
        /// service level
        alternate_sl: u8 = [138 + 0, 4],
        /// true if the path stays in the subnet
        alternate_subnet_local: bool = [138 + 4, 1],
        /// local ACK timeout: 4.096 us times 2 to this power
        alternate_local_ack_timeout: u8 = [139 + 0, 5],
        /// true if suggested alternate paths are supported
        sap_supported: bool = [139 + 5, 1],
    }
    areas {
        /// private data; for IP services an address header first
        private_data: [92 at 140],
    }
}

message! {
    /// MRA: a message was received, the answer takes longer.
    pub struct MessageReceipt {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
        /// message that was received: 0 REQ, 1 REP, 2 LAP
        message_mraed: u8 = [8 + 0, 2],
        /// time that the answer may take, a code
        service_timeout: u8 = [9 + 0, 5],
    }
    areas {
        /// private data
        private_data: [222 at 10],
    }
}

message! {
    /// REJ: refuses.
    pub struct Rejection {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
        /// message that is refused: 0 REQ, 1 REP, 2 another or none
        message_rejected: u8 = [8 + 0, 2],
        /// bytes of additional information
        rejected_info_length: u8 = [9 + 0, 7],
        /// reason, see [`Reason`](crate::Reason)
        reason: u16 = [10 + 0, 16],
    }
    areas {
        /// additional information, by reason
        additional_info: [MAX_ADDITIONAL_INFORMATION_BYTES at 12],
        /// private data
        private_data: [MAX_REJECTION_PRIVATE_BYTES at 84],
    }
}

message! {
    /// REP: accepts a connection.
    pub struct ConnectionReply {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
        /// Q_Key
        local_q_key: u32 = [8 + 0, 32],
        /// queue pair of the sender, 24 bits
        local_qpn: u32 = [12 + 0, 24],
        /// vendor of an extension, bits 23:16
        vendor_id_high: u8 = [15 + 0, 8],
        /// end-to-end context, or the queue pair of an extended connection; 24 bits
        local_ee_context: u32 = [16 + 0, 24],
        /// vendor of an extension, bits 15:8
        vendor_id_middle: u8 = [19 + 0, 8],
        /// PSN of the first packet that the sender will receive, 24 bits
        starting_psn: u32 = [20 + 0, 24],
        /// vendor of an extension, bits 7:0
        vendor_id_low: u8 = [23 + 0, 8],
        /// reads and atomics that the sender answers at a time
        responder_resources: u8 = [24 + 0, 8],
        /// reads and atomics that the sender has outstanding at a time
        initiator_depth: u8 = [25 + 0, 8],
        /// time that the sender takes for an acknowledgement, a code
        target_ack_delay: u8 = [26 + 0, 5],
        /// answer to an alternate path, 0 = accepted or none requested
        failover_accepted: u8 = [26 + 5, 2],
        /// true if the sender implements end-to-end flow control
        end_to_end_flow_control: bool = [26 + 7, 1],
        /// receiver-not-ready retries of the receiver of this message
        rnr_retry_count: u8 = [27 + 0, 3],
        /// true if the sender's queue pair has a shared receive queue
        srq: bool = [27 + 3, 1],
        /// GUID of the sender's node
        local_ca_guid: u64 = [28 + 0, 64],
    }
    areas {
        /// private data
        private_data: [196 at 36],
    }
}

message! {
    /// RTU: the connection is ready to use.
    pub struct ReadyToUse {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
    }
    areas {
        /// private data
        private_data: [224 at 8],
    }
}

message! {
    /// DREQ: ends a connection.
    pub struct DisconnectRequest {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
        /// queue pair of the receiver, 24 bits
        remote_qpn: u32 = [8 + 0, 24],
    }
    areas {
        /// private data
        private_data: [220 at 12],
    }
}

message! {
    /// DREP: confirms the end.
    pub struct DisconnectReply {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
    }
    areas {
        /// private data
        private_data: [224 at 8],
    }
}

message! {
    /// SIDR_REQ: requests the queue pair of a datagram service.
    pub struct ServiceRequest {
        /// number of the request
        request_id: u32 = [0 + 0, 32],
        /// partition key
        partition_key: u16 = [4 + 0, 16],
        /// requested service
        service_id: u64 = [8 + 0, 64],
    }
    areas {
        /// private data; for IP services an address header first
        private_data: [216 at 16],
    }
}

message! {
    /// SIDR_REP: names the queue pair, or refuses.
    pub struct ServiceReply {
        /// number of the request
        request_id: u32 = [0 + 0, 32],
        /// see [`ServiceStatus`](crate::ServiceStatus)
        status: u8 = [4 + 0, 8],
        /// bytes of additional information
        additional_info_length: u8 = [5 + 0, 8],
        /// vendor of an extension, bits 23:8
        vendor_id_high: u16 = [6 + 0, 16],
        /// queue pair of the service, 24 bits
        qpn: u32 = [8 + 0, 24],
        /// vendor of an extension, bits 7:0
        vendor_id_low: u8 = [11 + 0, 8],
        /// service
        service_id: u64 = [12 + 0, 64],
        /// Q_Key of the queue pair
        q_key: u32 = [20 + 0, 32],
    }
    areas {
        /// additional information, by status
        additional_info: [72 at 24],
        /// private data
        private_data: [136 at 96],
    }
}

message! {
    /// LAP: offers an alternate path.
    pub struct LoadAlternatePath {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
        /// queue pair of the receiver, 24 bits
        remote_qpn: u32 = [12 + 0, 24],
        /// time that the receiver has for an answer, a code
        remote_cm_response_timeout: u8 = [15 + 0, 5],
        /// LID of the sender's end of the alternate path; no meaning on RoCE
        alternate_local_lid: u16 = [20 + 0, 16],
        /// LID of the receiver's end of the alternate path
        alternate_remote_lid: u16 = [22 + 0, 16],
        /// GID of the sender's end of the alternate path
        alternate_local_gid: Gid = [24 + 0, 128],
        /// GID of the receiver's end of the alternate path
        alternate_remote_gid: Gid = [40 + 0, 128],
        /// flow label, 20 bits
        alternate_flow_label: u32 = [56 + 0, 20],
        /// packet rate, a code
        alternate_packet_rate: u8 = [61 + 2, 6],
        /// traffic class
        alternate_traffic_class: u8 = [59 + 0, 8],
        /// hop limit
        alternate_hop_limit: u8 = [60 + 0, 8],
        /// service level
        alternate_sl: u8 = [62 + 0, 4],
        /// true if the path stays in the subnet
        alternate_subnet_local: bool = [62 + 4, 1],
        /// local ACK timeout: 4.096 us times 2 to this power
        alternate_local_ack_timeout: u8 = [63 + 0, 5],
    }
    areas {
        /// private data
        private_data: [168 at 64],
    }
}

message! {
    /// APR: answers an offer of an alternate path.
    pub struct AlternatePathResponse {
        /// communication id of the sender
        local_comm_id: u32 = [0 + 0, 32],
        /// communication id of the receiver; 0 if the sender does not know it
        remote_comm_id: u32 = [4 + 0, 32],
        /// bytes of additional information
        additional_info_length: u8 = [8 + 0, 8],
        /// status; 2 = not supported
        ap_status: u8 = [9 + 0, 8],
    }
    areas {
        /// additional information, by status
        additional_info: [MAX_ADDITIONAL_INFORMATION_BYTES at 12],
        /// private data
        private_data: [ALTERNATE_PATH_PRIVATE_BYTES at 84],
    }
}
