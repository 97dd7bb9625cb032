//! Rules on the command line, in the words of `ethtool -N`.

use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind};
use std::fmt::{self, Display, Formatter};
use std::str::{FromStr, SplitWhitespace};

const KINDS: [(&str, RuleKind); 12] = [
    ("tcp4", RuleKind::Flow(FlowKind::TcpV4)),
    ("udp4", RuleKind::Flow(FlowKind::UdpV4)),
    ("sctp4", RuleKind::Flow(FlowKind::SctpV4)),
    ("ip4", RuleKind::Flow(FlowKind::OtherV4)),
    ("frag4", RuleKind::Flow(FlowKind::FragmentV4)),
    ("tcp6", RuleKind::Flow(FlowKind::TcpV6)),
    ("udp6", RuleKind::Flow(FlowKind::UdpV6)),
    ("sctp6", RuleKind::Flow(FlowKind::SctpV6)),
    ("ip6", RuleKind::Flow(FlowKind::OtherV6)),
    ("frag6", RuleKind::Flow(FlowKind::FragmentV6)),
    ("ether", RuleKind::Ethernet),
    ("any", RuleKind::All),
];

/// A rule of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule(pub(crate) FlowRule);

/// The next word as the value of the keyword `word`.
fn value<T: FromStr>(words: &mut SplitWhitespace<'_>, word: &str) -> Result<T, String> {
    let text = words
        .next()
        .ok_or_else(|| format!("'{word}' needs a value after it"))?;
    text.parse()
        .map_err(|_| format!("'{text}' is no value of {word}"))
}

/// The same for a number, which may be hexadecimal.
fn number(words: &mut SplitWhitespace<'_>, word: &str, most: u32) -> Result<u32, String> {
    let text: String = value(words, word)?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed
        .ok()
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("'{text}' is no value of {word}: choose 0 to {most}"))
}

fn target(text: &str) -> Result<FlowTarget, String> {
    let wrong = || format!("'{text}' is no action: name a queue, FIRST-LAST, drop or spread");
    match text {
        "drop" | "-1" => return Ok(FlowTarget::Drop),
        "spread" => return Ok(FlowTarget::Spread),
        _ => {}
    }
    let queue = |text: &str| text.parse::<u16>().map_err(|_| wrong());
    match text.split_once('-') {
        None => Ok(FlowTarget::Queue(queue(text)?)),
        Some((first, last)) => {
            let (first, last) = (queue(first)?, queue(last)?);
            let count = last.checked_sub(first).and_then(|more| more.checked_add(1));
            Ok(FlowTarget::Group {
                first,
                count: count.ok_or_else(wrong)?,
            })
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut kind = words.next().unwrap_or_default();
        if kind == "flow-type" {
            kind = words.next().unwrap_or_default();
        }
        let found = KINDS.iter().find(|(name, _)| *name == kind);
        let Some((_, kind)) = found else {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            return Err(format!("no kind of packets '{kind}': {}", names.join(", ")));
        };
        let mut packets = FlowMatch::of(*kind);
        let (mut wanted, mut mark, mut count) = (None, None, false);
        let most = u32::from(u16::MAX);
        let mut earlier = Vec::new();
        while let Some(word) = words.next() {
            if earlier.contains(&word) {
                return Err(format!(
                    "'{word}' is there twice: a rule takes each word once"
                ));
            }
            earlier.push(word);
            let words = &mut words;
            match word {
                "src-ip" => packets.source = Some(value(words, word)?),
                "dst-ip" => packets.destination = Some(value(words, word)?),
                "src-port" => packets.source_port = Some(number(words, word, most)? as u16),
                "dst-port" => packets.destination_port = Some(number(words, word, most)? as u16),
                "proto" => packets.ether_type = Some(number(words, word, most)? as u16),
                "l4proto" => packets.protocol = Some(number(words, word, 255)? as u8),
                "vlan" => packets.vlan = Some(number(words, word, 4094)? as u16),
                "action" => wanted = Some(target(&value::<String>(words, word)?)?),
                "mark" => mark = Some(number(words, word, u32::MAX)?),
                "count" => count = true,
                other => return Err(format!("no word '{other}' of a rule")),
            }
        }
        let target = wanted.ok_or("a rule needs an action: a queue, FIRST-LAST, drop or spread")?;
        Ok(Self(FlowRule {
            packets,
            target,
            mark,
            count,
        }))
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let FlowRule {
            packets,
            target,
            mark,
            count,
        } = &self.0;
        let kind = KINDS.iter().find(|(_, kind)| *kind == packets.kind);
        write!(f, "{}", kind.map_or("", |(name, _)| name))?;
        let addresses = [("src-ip", packets.source), ("dst-ip", packets.destination)];
        for (word, address) in addresses {
            if let Some(address) = address {
                write!(f, " {word} {address}")?;
            }
        }
        let numbers = [
            ("src-port", packets.source_port.map(u32::from)),
            ("dst-port", packets.destination_port.map(u32::from)),
            ("l4proto", packets.protocol.map(u32::from)),
            ("vlan", packets.vlan.map(u32::from)),
        ];
        for (word, number) in numbers {
            if let Some(number) = number {
                write!(f, " {word} {number}")?;
            }
        }
        if let Some(ether_type) = packets.ether_type {
            write!(f, " proto {ether_type:#06x}")?;
        }
        match target {
            FlowTarget::Queue(queue) => write!(f, " action {queue}")?,
            FlowTarget::Group { first, count } => {
                let last = u32::from(*first) + u32::from(*count) - 1;
                write!(f, " action {first}-{last}")?;
            }
            FlowTarget::Drop => write!(f, " action drop")?,
            FlowTarget::Spread => write!(f, " action spread")?,
        }
        if let Some(mark) = mark {
            write!(f, " mark {mark}")?;
        }
        match count {
            true => write!(f, " count"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_shown_as_it_was_written() {
        for text in [
            "tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1 dst-port 80 action 3",
            "udp6 dst-ip fd00::2 action 4-7 mark 17 count",
            "ip4 l4proto 1 action drop",
            "ether proto 0x0806 action 2",
            "any vlan 100 action spread count",
        ] {
            let rule: Rule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
        let long: Rule = "flow-type udp4 dst-port 0x7 action -1"
            .parse()
            .expect("ethtool's");
        assert_eq!(long.to_string(), "udp4 dst-port 7 action drop");
    }

    #[test]
    fn words_that_are_none_are_named() {
        for (text, named) in [
            ("", "no kind of packets ''"),
            ("tcp5 action 1", "tcp5"),
            ("tcp4 dst-port 80", "needs an action"),
            ("tcp4 dst-port 65536 action 1", "65536"),
            ("tcp4 dst-port", "needs a value"),
            ("tcp4 src-ip 10.0.0 action 1", "10.0.0"),
            ("tcp4 action 7-4", "7-4"),
            ("any vlan 4095 action 1", "4095"),
            ("tcp4 dport 80 action 1", "dport"),
            (
                "udp4 dst-port 1 dst-port 2 action 0",
                "'dst-port' is there twice",
            ),
            ("any action 0 action drop", "'action' is there twice"),
        ] {
            let error = text.parse::<Rule>().expect_err(text);
            assert!(error.contains(named), "{error}");
        }
    }
}
