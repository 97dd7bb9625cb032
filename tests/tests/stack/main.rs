//! IP on the driver's own queues: two functions of the embedded model, in virtual time. One end
//! runs the driver's stack; the other is another stack, smoltcp on plain queues, or frames made by
//! hand.

mod addresses;
mod advertisements;
mod backlog;
mod bed;
mod dhcp;
mod dhcp_exchange;
mod dhcp_server;
mod frames;
mod full;
mod groups;
mod leases;
mod membership;
mod ping;
mod queriers;
mod rdma;
mod sleeps;
mod strays;
mod tcp;
mod vlans;
