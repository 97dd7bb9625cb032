//! The LAN half: virtual station interface, switch rules, scheduler, link.
