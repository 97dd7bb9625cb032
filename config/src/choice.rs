//! Values that are one of a few words or a number.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The page size behind the memory that the device reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum HugePages {
    /// The largest size of which pages are free: 1 GiB, then 2 MiB, then ordinary pages with a
    /// warning.
    #[serde(rename = "auto")]
    Auto,
    /// 1 GiB pages; bring-up fails without them.
    #[serde(rename = "1GiB")]
    OneGib,
    /// 2 MiB pages; bring-up fails without them.
    #[serde(rename = "2MiB")]
    TwoMib,
    /// Ordinary 4 KiB pages.
    #[serde(rename = "none")]
    None,
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::OneGib => "1GiB",
            Self::TwoMib => "2MiB",
            Self::None => "none",
        })
    }
}

/// The RDMA transport of the function. The E810 runs one of two at a time; ringside supports
/// RoCEv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// RoCEv2: InfiniBand transport over UDP port 4791.
    #[serde(rename = "roce")]
    Roce,
}

/// The requested speed of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum LinkSpeed {
    /// The speed that both ends negotiate.
    #[serde(rename = "auto")]
    Auto,
    /// 10 Gbit/s.
    #[serde(rename = "10G")]
    Gigabits10,
    /// 25 Gbit/s.
    #[serde(rename = "25G")]
    Gigabits25,
    /// 50 Gbit/s.
    #[serde(rename = "50G")]
    Gigabits50,
    /// 100 Gbit/s.
    #[serde(rename = "100G")]
    Gigabits100,
}

impl LinkSpeed {
    /// Megabits a second, or `None` for [`LinkSpeed::Auto`].
    #[must_use]
    pub fn megabits_per_second(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Gigabits10 => Some(10_000),
            Self::Gigabits25 => Some(25_000),
            Self::Gigabits50 => Some(50_000),
            Self::Gigabits100 => Some(100_000),
        }
    }
}

/// The payload of one RoCEv2 packet: one of the five sizes that InfiniBand defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum PathMtu {
    /// 256 bytes.
    Bytes256,
    /// 512 bytes.
    Bytes512,
    /// 1024 bytes.
    Bytes1024,
    /// 2048 bytes.
    Bytes2048,
    /// 4096 bytes.
    Bytes4096,
}

impl PathMtu {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [
        Self::Bytes256,
        Self::Bytes512,
        Self::Bytes1024,
        Self::Bytes2048,
        Self::Bytes4096,
    ];

    /// The number of bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bytes256 => 256,
            Self::Bytes512 => 512,
            Self::Bytes1024 => 1024,
            Self::Bytes2048 => 2048,
            Self::Bytes4096 => 4096,
        }
    }
}

impl TryFrom<u32> for PathMtu {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        match bytes {
            256 => Ok(Self::Bytes256),
            512 => Ok(Self::Bytes512),
            1024 => Ok(Self::Bytes1024),
            2048 => Ok(Self::Bytes2048),
            4096 => Ok(Self::Bytes4096),
            _ => Err(format!(
                "{bytes} is not a path MTU: allowed are 256, 512, 1024, 2048 and 4096"
            )),
        }
    }
}

impl JsonSchema for PathMtu {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PathMtu".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Largest payload of one packet, in bytes.",
            "enum": [256, 512, 1024, 2048, 4096],
        })
    }
}

impl From<PathMtu> for u32 {
    fn from(mtu: PathMtu) -> Self {
        mtu.bytes()
    }
}

/// The way a polling core waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Polling {
    /// Polls all the time: the shortest latency, but it occupies a core.
    #[serde(rename = "busy")]
    Busy,
    /// Polls all the time, and yields to other threads once it has been idle for `idle_us`.
    #[serde(rename = "busy-then-yield")]
    BusyThenYield,
    /// Sleeps until the device's interrupt once it has been idle for `idle_us`.
    #[serde(rename = "busy-then-sleep")]
    BusyThenSleep,
}

/// Decodes either the word `word` or a number that fits 32 bits.
struct WordOrNumber {
    word: &'static str,
    what: &'static str,
}

impl Visitor<'_> for WordOrNumber {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or \"{}\"", self.what, self.word)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<u32>, E> {
        if text == self.word {
            Ok(None)
        } else {
            Err(E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Option<u32>, E> {
        u32::try_from(number)
            .map(Some)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Option<u32>, E> {
        u32::try_from(number)
            .map(Some)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }
}

macro_rules! word_or_number {
    ($name:ident, $word_variant:ident = $word:literal, $number_variant:ident, $what:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let visitor = WordOrNumber {
                    word: $word,
                    what: $what,
                };
                let number = deserializer.deserialize_any(visitor)?;
                Ok(number.map_or(Self::$word_variant, Self::$number_variant))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::$word_variant => serializer.serialize_str($word),
                    Self::$number_variant(number) => serializer.serialize_u32(*number),
                }
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": concat!($what, ", or \"", $word, "\""),
                    "anyOf": [
                        { "const": $word },
                        { "type": "integer", "minimum": 0, "maximum": 1023 },
                    ],
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::$word_variant => f.write_str($word),
                    Self::$number_variant(number) => number.fmt(f),
                }
            }
        }
    };
}

/// The NUMA node that memory for the device is allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumaNode {
    /// The node that the device is attached to; no preference if the machine does not report it.
    Auto,
    /// This node.
    Node(u32),
}
word_or_number!(NumaNode, Auto = "auto", Node, "the number of a NUMA node");

/// The core that a thread of ringside runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// Any core, chosen by the scheduler.
    Any,
    /// This logical CPU, by the operating system's number.
    Pinned(u32),
}
word_or_number!(Core, Any = "any", Pinned, "the number of a logical CPU");
