//! The control queue pair and its completion queue: commands to the RDMA engine.
