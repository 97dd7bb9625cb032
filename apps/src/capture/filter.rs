//! Filters of packets, in the words of tcpdump.

use std::net::IpAddr;
use std::str::FromStr;

/// A filter: the packets that a capture keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    /// type of the payload of Ethernet
    EtherType(u16),
    /// protocol of IP
    Protocol(u8),
    Vlan(Option<u16>),
    Mac(End, [u8; 6]),
    Address(End, IpAddr),
    Port(End, u16),
    AtLeast(usize),
    AtMost(usize),
}

/// The end of a packet's path that a word names: source, destination, or either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
    Either,
}

/// Conditions of a filter: each one behind an `and` or `or` nests it once more.
const MAX_TERMS: usize = 1024;
/// Deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 32;
/// Tags and extension headers that are looked through.
const MAX_HEADERS: usize = 8;

/// The fields of a packet that the filter compares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields {
    macs: Option<([u8; 6], [u8; 6])>,
    vlans: Vec<u16>,
    ether_type: Option<u16>,
    protocol: Option<u8>,
    addresses: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
    length: usize,
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn ipv4(frame: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 4] = frame.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

impl Fields {
    /// Fields of a frame, as far as it goes; `length` is that of the packet.
    fn of(frame: &[u8], length: usize) -> Self {
        let mut fields = Self {
            length,
            ..Self::default()
        };
        // Truncated fields are absent.
        let _ = fields.read(frame);
        fields
    }

    fn read(&mut self, frame: &[u8]) -> Option<()> {
        let mac = |at: usize| -> Option<[u8; 6]> { frame.get(at..at + 6)?.try_into().ok() };
        self.macs = Some((mac(6)?, mac(0)?));
        let mut at = 12;
        let mut ether_type = be16(frame, at)?;
        for _ in 0..MAX_HEADERS {
            if !matches!(ether_type, 0x8100 | 0x88A8 | 0x9100) {
                break;
            }
            self.vlans.push(be16(frame, at + 2)? & 0xFFF);
            at += 4;
            ether_type = be16(frame, at)?;
        }
        self.ether_type = Some(ether_type);
        let header = at + 2;
        let payload = match ether_type {
            0x0800 => self.read_ipv4(frame, header)?,
            0x86DD => self.read_ipv6(frame, header)?,
            // ARP and its reverse: sender and target
            0x0806 | 0x8035 => {
                self.addresses = Some((ipv4(frame, header + 14)?, ipv4(frame, header + 24)?));
                return None;
            }
            _ => return None,
        };
        if matches!(self.protocol, Some(6 | 17 | 132)) {
            self.ports = Some((be16(frame, payload)?, be16(frame, payload + 2)?));
        }
        Some(())
    }

    /// Returns where the payload begins; `None` for a fragment that is not the first.
    fn read_ipv4(&mut self, frame: &[u8], at: usize) -> Option<usize> {
        self.protocol = Some(*frame.get(at + 9)?);
        self.addresses = Some((ipv4(frame, at + 12)?, ipv4(frame, at + 16)?));
        let later = be16(frame, at + 6)? & 0x1FFF != 0;
        (!later).then_some(at + 4 * usize::from(frame.get(at)? & 0xF))
    }

    fn read_ipv6(&mut self, frame: &[u8], at: usize) -> Option<usize> {
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = frame.get(at..at + 16)?.try_into().ok()?;
            Some(octets.into())
        };
        let mut next = *frame.get(at + 6)?;
        self.protocol = Some(next);
        self.addresses = Some((address(at + 8)?, address(at + 24)?));
        let mut header = at + 40;
        for _ in 0..MAX_HEADERS {
            let bytes = match next {
                0 | 43 | 60 => 8 + 8 * usize::from(*frame.get(header + 1)?),
                44 if be16(frame, header + 2)? & 0xFFF8 != 0 => {
                    // A later fragment is of the protocol, and has no ports.
                    self.protocol = Some(*frame.get(header)?);
                    return None;
                }
                44 => 8,
                _ => break,
            };
            next = *frame.get(header)?;
            header += bytes;
            self.protocol = Some(next);
        }
        Some(header)
    }
}

impl End {
    fn fits<T: PartialEq>(self, pair: &Option<(T, T)>, wanted: &T) -> bool {
        let Some((source, destination)) = pair else {
            return false;
        };
        match self {
            Self::Source => source == wanted,
            Self::Destination => destination == wanted,
            Self::Either => source == wanted || destination == wanted,
        }
    }
}

impl Filter {
    /// True if the filter accepts a packet of `length` bytes that begins with `frame`.
    pub(crate) fn wants(&self, frame: &[u8], length: usize) -> bool {
        *self == Self::All || self.fits(&Fields::of(frame, length))
    }

    fn fits(&self, fields: &Fields) -> bool {
        match self {
            Self::All => true,
            Self::Not(inner) => !inner.fits(fields),
            Self::And(left, right) => left.fits(fields) && right.fits(fields),
            Self::Or(left, right) => left.fits(fields) || right.fits(fields),
            Self::EtherType(wanted) => fields.ether_type == Some(*wanted),
            Self::Protocol(wanted) => fields.protocol == Some(*wanted),
            Self::Vlan(None) => !fields.vlans.is_empty(),
            Self::Vlan(Some(wanted)) => fields.vlans.contains(wanted),
            Self::Mac(end, wanted) => end.fits(&fields.macs, wanted),
            Self::Address(end, wanted) => end.fits(&fields.addresses, wanted),
            Self::Port(end, wanted) => end.fits(&fields.ports, wanted),
            Self::AtLeast(bytes) => fields.length >= *bytes,
            Self::AtMost(bytes) => fields.length <= *bytes,
        }
    }
}

/// Words of a filter that are still to be read.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    /// conditions that were read
    terms: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.at += 1;
        word
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn value<T: FromStr>(&mut self, of: &str) -> Result<T, String> {
        let text = self
            .next()
            .ok_or(format!("'{of}' needs a value after it"))?;
        text.parse()
            .map_err(|_| format!("'{text}' is no value of '{of}'"))
    }

    /// Conditions, joined from the left: `and` and `or` have the same precedence. Source:
    /// pcap-filter(7).
    fn all(&mut self, depth: usize) -> Result<Filter, String> {
        let mut left = self.one(depth)?;
        loop {
            let join = match self.peek() {
                Some("and" | "&&") => Filter::And,
                Some("or" | "||") => Filter::Or,
                _ => return Ok(left),
            };
            self.at += 1;
            left = join(Box::new(left), Box::new(self.one(depth)?));
        }
    }

    fn one(&mut self, depth: usize) -> Result<Filter, String> {
        if depth == 0 {
            return Err(format!(
                "more than {MAX_DEPTH} parentheses and 'not' in one another"
            ));
        }
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(format!("more than {MAX_TERMS} conditions"));
        }
        let word = self
            .next()
            .ok_or("the filter ends where a condition should be")?;
        match word {
            "not" | "!" => Ok(Filter::Not(Box::new(self.one(depth - 1)?))),
            "(" => {
                let inner = self.all(depth - 1)?;
                match self.take(")") {
                    true => Ok(inner),
                    false => Err("a parenthesis is not closed".to_owned()),
                }
            }
            "arp" => Ok(Filter::EtherType(0x0806)),
            "ip" => Ok(Filter::EtherType(0x0800)),
            "ip6" => Ok(Filter::EtherType(0x86DD)),
            "tcp" => Ok(Filter::Protocol(6)),
            "udp" => Ok(Filter::Protocol(17)),
            "sctp" => Ok(Filter::Protocol(132)),
            "icmp" => Ok(Filter::Protocol(1)),
            "icmp6" => Ok(Filter::Protocol(58)),
            "vlan" => {
                let id = self.peek().and_then(|word| word.parse::<u16>().ok());
                self.at += usize::from(id.is_some());
                match id {
                    Some(id @ 4095..) => Err(format!("VLAN {id}: choose 0 to 4094")),
                    id => Ok(Filter::Vlan(id)),
                }
            }
            "greater" => Ok(Filter::AtLeast(self.value(word)?)),
            "less" => Ok(Filter::AtMost(self.value(word)?)),
            "ether" => self.ether(),
            "host" | "port" => self.end(End::Either, word),
            "src" | "dst" => {
                let end = match word {
                    "src" => End::Source,
                    _ => End::Destination,
                };
                match self.peek() {
                    Some(what @ ("host" | "port")) => {
                        self.at += 1;
                        self.end(end, what)
                    }
                    _ => self.end(end, "host"),
                }
            }
            other => Err(format!(
                "no word '{other}' of a filter; `ringside capture --help` lists them"
            )),
        }
    }

    fn end(&mut self, end: End, what: &str) -> Result<Filter, String> {
        match what {
            "port" => Ok(Filter::Port(end, self.value(what)?)),
            _ => Ok(Filter::Address(end, self.value(what)?)),
        }
    }

    fn ether(&mut self) -> Result<Filter, String> {
        let end = match self.next() {
            Some("host") => End::Either,
            Some("src") => End::Source,
            Some("dst") => End::Destination,
            Some("proto") => {
                let text: String = self.value("ether proto")?;
                return Ok(Filter::EtherType(ether_type(&text)?));
            }
            _ => return Err("after 'ether' comes host, src, dst or proto".to_owned()),
        };
        let text: String = self.value("ether")?;
        let octets = text
            .split(':')
            .map(|pair| u8::from_str_radix(pair, 16).ok());
        let octets: Option<Vec<u8>> = octets.collect();
        let mac = octets.and_then(|octets| octets.try_into().ok());
        let mac = mac.ok_or_else(|| format!("'{text}' is no MAC address: 02:00:00:00:00:01"))?;
        Ok(Filter::Mac(end, mac))
    }
}

/// A decimal number, or a hexadecimal one. One that begins with 0 is octal to tcpdump: refused, as
/// it was hardly meant so.
fn ether_type(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => None,
        None => text.parse().ok(),
    };
    number.ok_or_else(|| {
        format!("'{text}' is no type: a decimal number, such as 2048, or 0x and hexadecimal digits")
    })
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spaced = text
            .replace('(', " ( ")
            .replace(')', " ) ")
            .replace('!', " ! ");
        let mut words = Words {
            words: spaced.split_whitespace().collect(),
            at: 0,
            terms: 0,
        };
        if words.words.is_empty() {
            return Ok(Self::All);
        }
        let filter = words.all(MAX_DEPTH)?;
        match words.next() {
            None => Ok(filter),
            Some(word) => Err(format!("'{word}' where 'and', 'or' or the end should be")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(tag: Option<u16>) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if let Some(tag) = tag {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 4, 0, 0, 8, 0, 0]);
        frame
    }

    fn wants(filter: &str, frame: &[u8]) -> bool {
        let filter: Filter = filter.parse().expect(filter);
        filter.wants(frame, frame.len())
    }

    #[test]
    fn filters_take_what_they_name_and_nothing_else() {
        for (filter, wanted) in [
            ("", true),
            ("udp", true),
            ("tcp", false),
            ("ip", true),
            ("ip6", false),
            ("arp or udp", true),
            ("not udp", false),
            ("!udp", false),
            ("host 10.0.0.1", true),
            ("src 10.0.0.1 and dst 10.0.0.2", true),
            ("src host 10.0.0.2", false),
            ("port 53", true),
            ("src port 53 and dst port 1024", true),
            ("dst port 53", false),
            ("vlan", false),
            ("ether src 02:00:00:00:00:01", true),
            ("ether dst 02:00:00:00:00:01", false),
            ("ether proto 0x0800", true),
            ("greater 43", false),
            ("less 42", true),
            ("ether proto 2048", true),
            ("ether proto 800", false),
            ("tcp or udp and port 54", false),
            // joined from the left
            ("udp or ip and port 54", false),
            ("udp or (ip and port 54)", true),
            ("tcp and port 53 or udp", true),
            ("not tcp or ip and port 54", false),
            ("(tcp or udp) and port 53", true),
            ("not (tcp or arp) and udp", true),
        ] {
            assert_eq!(wants(filter, &udp(None)), wanted, "{filter}");
        }
        let tagged = udp(Some(5 << 13 | 100));
        assert!(wants("vlan 100 and udp and port 53", &tagged));
        assert!(wants("vlan", &tagged) && !wants("vlan 101", &tagged));
    }

    #[test]
    fn a_host_is_found_in_address_resolution_too() {
        let mut frame = vec![0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1];
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        for kind in [[8, 6], [0x80, 0x35]] {
            frame[12..14].copy_from_slice(&kind);
            for (filter, wanted) in [
                ("host 10.0.0.1", true),
                ("host 10.0.0.2", true),
                ("src 10.0.0.1 and dst 10.0.0.2", true),
                ("dst 10.0.0.1", false),
                ("host 10.0.0.3", false),
                ("port 53 or ip", false),
            ] {
                assert_eq!(wants(filter, &frame), wanted, "{filter}");
            }
        }
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut frame = udp(None);
        frame[20] = 0x00;
        frame[21] = 0x10;
        assert!(wants("udp", &frame) && !wants("port 53", &frame));
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 16, 44, 64]);
        frame.extend([0xFD; 32]);
        // A header of a fragment: UDP, the eighth byte and on, and more of them.
        frame.extend([17, 0, 0, 9, 0, 0, 0, 1, 0, 53, 0, 53, 0, 8, 0, 0]);
        assert!(wants("udp", &frame) && !wants("port 53", &frame));
        assert!(!wants("not udp", &frame) && !wants("tcp", &frame));
    }

    #[test]
    fn any_cut_of_a_frame_is_looked_at_without_a_panic() {
        let filter: Filter = "port 53 or host ::1 or vlan 4".parse().unwrap();
        for frame in [udp(None), udp(Some(4))] {
            for end in 0..frame.len() {
                filter.wants(&frame[..end], frame.len());
            }
        }
    }

    #[test]
    fn filters_that_make_no_sense_are_refused_by_word() {
        let deep = "not ".repeat(MAX_DEPTH + 1) + "udp";
        let many = |word: &str| format!("ip {word} ").repeat(240_000) + "udp";
        let (ors, ands) = (many("or"), many("and"));
        for (filter, named) in [
            ("udpp", "udpp"),
            ("udp port", "where 'and'"),
            ("port", "needs a value"),
            ("port 65536", "65536"),
            ("host 10.0.0", "10.0.0"),
            ("(udp", "not closed"),
            ("udp)", "')'"),
            ("udp and", "ends where"),
            ("vlan 4095", "4095"),
            ("ether host", "needs a value"),
            ("ether 1", "host, src, dst or proto"),
            ("ether proto 0800", "'0800' is no type"),
            ("ether proto 86dd", "0x and hexadecimal"),
            ("ether proto 65536", "65536"),
            (&deep, "more than 32"),
            (&ors, "more than 1024"),
            (&ands, "more than 1024"),
        ] {
            let shown = filter.get(..80).unwrap_or(filter);
            let error = filter.parse::<Filter>().expect_err(shown);
            assert!(error.contains(named), "{shown}: {error}");
        }
    }
}
