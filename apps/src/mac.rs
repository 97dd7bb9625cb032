//! MAC addresses on the command line.

/// A MAC address, as 02:00:00:00:00:01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl std::str::FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').collect();
        let octets: Option<Vec<_>> = parts
            .iter()
            .map(|part| {
                u8::from_str_radix(part, 16)
                    .ok()
                    .filter(|_| part.len() == 2)
            })
            .collect();
        let mac = octets.and_then(|octets| <[u8; 6]>::try_from(octets).ok());
        mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6])
            .map(Self)
            .ok_or_else(|| "a MAC address of one card is six pairs of hexadecimal digits such as 02:00:00:00:00:01, and not that of a group".into())
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
