//! Sockets of the kernel that name a port of the model.
//!
//! Programs exchange numbers over TCP before they use RDMA, and the kernel does not have the
//! addresses of the model's ports. `ringside-files.so` (`capi/preload/addresses.c`) has sockets
//! use the loopback interface instead; this variable of the environment tells it the addresses.

use clap::ValueEnum;
use ringside_model::FunctionSettings;
use ringside_pmd::rdma::address::private_address;
use std::net::Ipv4Addr;
use std::ops::Range;

/// The variable that names the program's own address, the first port's, and the number of ports.
pub(super) const VARIABLE: &str = "RINGSIDE_LOOPBACK";

/// The condition on which sockets of the kernel reach ports of the model.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loopback {
    /// Unless the kernel has the address itself, or a route to it besides the default one
    Auto,
    /// Also if the kernel has the address, or a route to it
    Always,
    /// Sockets are left to the kernel
    Never,
}

impl Loopback {
    /// The value of the variable for the program on `port`; nothing if sockets are left alone.
    pub(super) fn value(self, port: u16, ports: &Range<u16>) -> Option<String> {
        let end = match self {
            Self::Auto => "",
            Self::Always => ",always",
            Self::Never => return None,
        };
        let (own, first) = (address(port), address(ports.start));
        Some(format!("{own},{first},{}{end}", ports.len()))
    }
}

/// The address of a port of the model, unless the configuration gives it others.
fn address(port: u16) -> Ipv4Addr {
    private_address(FunctionSettings::numbered(port).mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_ports_and_the_condition_are_named() {
        let value = |loopback: Loopback, port| loopback.value(port, &(248..256));
        let auto = value(Loopback::Auto, 255);
        assert_eq!(auto.as_deref(), Some("10.0.1.0,10.0.0.249,8"));
        let always = value(Loopback::Always, 248);
        assert_eq!(always.as_deref(), Some("10.0.0.249,10.0.0.249,8,always"));
        assert_eq!(value(Loopback::Never, 248), None);
    }
}
