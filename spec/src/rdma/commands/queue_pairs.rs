//! Queue pairs: create, modify, destroy, flush, suspend, resume, upload.

use crate::rdma::layout::codes;

codes! {
    /// Kind of a queue pair.
    /// Source: irdma `defs.h`, IRDMA_QP_TYPE_*.
    pub enum QueuePairType: u8 {
        /// iWARP.
        Iwarp = 1,
        /// Unreliable datagrams of the driver itself (ILQ, IEQ).
        Uda = 2,
        /// RoCEv2, reliable connected.
        RoceReliableConnected = 3,
        /// RoCEv2, unreliable datagram.
        RoceUnreliableDatagram = 4,
    }

    /// State that a queue pair is to take.
    /// Source: irdma `type.h`, IRDMA_QP_STATE_*.
    pub enum QueuePairState: u8 {
        /// No state: leave it unchanged.
        Invalid = 0,
        /// Reset or initialised; nothing is sent or received.
        Idle = 1,
        /// Ready to send.
        ReadyToSend = 2,
        /// Closing; for RoCE the send queue is being drained (SQD).
        Closing = 3,
        /// Ready to receive.
        ReadyToReceive = 4,
        /// Terminating (iWARP).
        Terminate = 5,
        /// Failed.
        Error = 6,
    }

    /// The queue or direction that an asynchronous event comes from.
    /// Source: irdma `defs.h`/`hw.c`, IRDMA_AE_SOURCE_*.
    pub enum AeSource: u8 {
        /// No queue pair or completion queue.
        None = 0,
        /// Receive queue.
        ReceiveQueue = 1,
        /// Completion queue.
        CompletionQueue = 2,
        /// Receive queue.
        ReceiveQueue3 = 3,
        /// Send queue.
        SendQueue = 5,
        /// Completion queue.
        CompletionQueue6 = 6,
        /// Send queue.
        SendQueue7 = 7,
        /// Inbound RDMA write or read request.
        InboundRequest = 9,
        /// Completion queue.
        CompletionQueueA = 0xA,
        /// Inbound RDMA write or read request.
        InboundRequestB = 0xB,
        /// Outbound read response.
        OutboundReadResponse = 0xD,
        /// Completion queue.
        CompletionQueueE = 0xE,
        /// Outbound read response.
        OutboundReadResponseF = 0xF,
    }
}

commands! {
    /// Creates a queue pair from its context in memory.
    /// Source: irdma `ctrl.c`, `irdma_sc_qp_create`.
    pub struct CreateQueuePair {
        /// I/O virtual address of the queue pair context, 256-byte aligned.
        host_context_address: u64 = 2[63:0],
        /// I/O virtual address of the shadow area, 64-byte aligned.
        shadow_address: u64 = 5[63:0],
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
        /// The context's ORD is valid.
        ord_valid: bool = 3[42],
        /// The context's TCP part is valid (iWARP).
        tcp_context_valid: bool = 3[43],
        /// The context gives the queues' addresses as page buffer list indexes.
        queues_virtual: bool = 3[45],
        /// Loop packets back.
        force_loopback: bool = 3[46],
        /// The context's completion queue numbers are valid.
        cq_numbers_valid: bool = 3[47],
        /// Kind of queue pair.
        qp_type: QueuePairType = 3[50:48],
        /// The context's source MAC address is valid.
        mac_valid: bool = 3[51],
        /// The context's ARP index is valid.
        arp_index_valid: bool = 3[59],
        /// State to take.
        next_state: QueuePairState = 3[62:60],
    }

    /// Changes a queue pair's state, and takes the parts of its context that are named valid.
    /// Source: irdma `ctrl.c`, `irdma_sc_qp_modify`.
    pub struct ModifyQueuePair {
        /// New maximum segment size, bytes; valid with `mss_change`.
        new_mss: u16 = 1[45:32],
        /// Bytes of the terminate message, in units of 4 (iWARP).
        terminate_length: u8 = 1[51:48],
        /// I/O virtual address of the queue pair context, 256-byte aligned.
        host_context_address: u64 = 2[63:0],
        /// I/O virtual address of the shadow area, 64-byte aligned.
        shadow_address: u64 = 5[63:0],
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
        /// The context's ORD is valid.
        ord_valid: bool = 3[42],
        /// The context's TCP part is valid (iWARP).
        tcp_context_valid: bool = 3[43],
        /// The context's cached variables are valid.
        cached_variables_valid: bool = 3[44],
        /// The context gives the queues' addresses as page buffer list indexes.
        queues_virtual: bool = 3[45],
        /// Loop packets back.
        force_loopback: bool = 3[46],
        /// The context's completion queue numbers are valid.
        cq_numbers_valid: bool = 3[47],
        /// Kind of queue pair.
        qp_type: QueuePairType = 3[50:48],
        /// The context's source MAC address is valid.
        mac_valid: bool = 3[51],
        /// Take `new_mss`.
        mss_change: bool = 3[52],
        /// Remove the queue pair from the hash table.
        remove_hash_entry: bool = 3[55],
        /// On termination send no FIN (iWARP).
        do_not_send_fin: bool = 3[56],
        /// On termination send no TERMINATE message (iWARP).
        do_not_send_terminate: bool = 3[57],
        /// Reset the connection (iWARP).
        reset_connection: bool = 3[58],
        /// The context's ARP index is valid.
        arp_index_valid: bool = 3[59],
        /// State to take.
        next_state: QueuePairState = 3[62:60],
    }

    /// Destroys a queue pair.
    /// Source: irdma `ctrl.c`, `irdma_sc_qp_destroy`.
    pub struct DestroyQueuePair {
        /// I/O virtual address of the queue pair context, 256-byte aligned.
        host_context_address: u64 = 2[63:0],
        /// I/O virtual address of the shadow area, 64-byte aligned.
        shadow_address: u64 = 5[63:0],
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
        /// Kind of queue pair.
        qp_type: QueuePairType = 3[50:48],
        /// Destroy it although memory windows are bound.
        ignore_bound_windows: bool = 3[54],
        /// Remove the queue pair from the hash table.
        remove_hash_entry: bool = 3[55],
    }

    /// Flushes the work queues of a queue pair in error, or raises an asynchronous event.
    ///
    /// Answer in the completion's minor code: 0 nothing was pending, 2 receive queue only,
    /// 3 send queue only, 4 both.
    /// Source: irdma `ctrl.c`, `irdma_sc_qp_flush_wqes`, `irdma_sc_gen_ae`.
    pub struct FlushWorkQueues {
        /// Code of the event to raise.
        ae_code: u16 = 1[15:0],
        /// Source of the event to raise.
        ae_source: AeSource = 1[19:16],
        /// Minor code of the receive queue's flush completion.
        rq_minor_code: u16 = 2[15:0],
        /// Major code of the receive queue's flush completion.
        rq_major_code: u16 = 2[31:16],
        /// Minor code of the send queue's flush completion.
        sq_minor_code: u16 = 2[47:32],
        /// Major code of the send queue's flush completion.
        sq_major_code: u16 = 2[63:48],
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
        /// Raise the event.
        generate_ae: bool = 3[59],
        /// Use the codes given here.
        use_given_codes: bool = 3[60],
        /// Flush the send queue.
        flush_sq: bool = 3[61],
        /// Flush the receive queue.
        flush_rq: bool = 3[62],
    }

    /// Suspends a queue pair; the device answers later with asynchronous event 0x0900.
    /// Source: irdma `ctrl.c`, `irdma_sc_suspend_qp`.
    pub struct SuspendQueuePair {
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
    }

    /// Resumes a queue pair on a queue set.
    /// Source: irdma `ctrl.c`, `irdma_sc_resume_qp`.
    pub struct ResumeQueuePair {
        /// Handle of the queue set.
        queue_set_handle: u32 = 2[31:0],
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
    }

    /// Copies a queue pair's context to memory.
    /// Source: irdma `ctrl.c`, `irdma_sc_qp_upload_context`.
    pub struct UploadContext {
        /// I/O virtual address of the buffer.
        buffer_address: u64 = 2[63:0],
        /// Number of the queue pair.
        qp_number: u32 = 3[23:0],
        /// Kind of queue pair.
        qp_type: QueuePairType = 3[51:48],
        /// The device's own format instead of the host's.
        raw_format: bool = 3[61],
        /// Freeze the queue pair.
        freeze_qp: bool = 3[62],
    }
}
