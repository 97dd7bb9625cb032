//! Verbs: protection domains, memory regions, queue pairs, completion queues.

/// Why an RDMA stage of bring-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmaStageError {
    /// The RDMA engine cannot be used, or not like this.
    #[error("{what}; {remedy}")]
    Unusable {
        /// What it said, and what is wrong with it.
        what: String,
        /// What to do about it.
        remedy: String,
    },
}
