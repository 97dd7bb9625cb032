//! The capabilities of each side, negotiated once as JSON.

mod json;

use super::message::MAX_TRANSFER_BYTES;
use json::Value;

/// The most descriptors accepted with one message; QEMU accepts no larger offer.
pub const MAX_MESSAGE_DESCRIPTORS: u32 = 16;

/// The longest capabilities that are read.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Capabilities of one side. Source: vfio-user.rst, `VFIO_USER_VERSION`, "Capabilities".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Descriptors that it accepts with one message.
    pub message_descriptors: u32,
    /// Data bytes that it accepts in one message.
    pub transfer_bytes: u32,
    /// DMA mappings that it holds at once.
    pub dma_mappings: u32,
    /// Page sizes for DMA, or'ed together; bytes.
    pub page_sizes: u64,
}

impl Default for Capabilities {
    /// The protocol's defaults for values that are not given.
    fn default() -> Self {
        Self {
            message_descriptors: 1,
            transfer_bytes: 1 << 20,
            dma_mappings: 65_535,
            page_sizes: 4096,
        }
    }
}

/// The capabilities are not JSON, or not numbers where numbers are required.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("capabilities of the other side: {reason}")]
pub struct CapabilitiesError {
    /// The error.
    pub reason: String,
}

impl Capabilities {
    /// The offer of this implementation, on either side.
    pub const OURS: Self = Self {
        message_descriptors: MAX_MESSAGE_DESCRIPTORS,
        transfer_bytes: MAX_TRANSFER_BYTES,
        dma_mappings: 65_535,
        page_sizes: 4096,
    };

    /// As JSON.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let text = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{},\"max_data_xfer_size\":{},\
             \"max_dma_maps\":{},\"pgsizes\":{}}}}}",
            self.message_descriptors, self.transfer_bytes, self.dma_mappings, self.page_sizes
        );
        text.into_bytes()
    }

    /// Decodes JSON. A missing value has the protocol's default; unknown values are ignored.
    pub fn from_text(text: &[u8]) -> Result<Self, CapabilitiesError> {
        let mut found = Self::default();
        if text.is_empty() {
            return Ok(found);
        }
        let refuse = |reason: String| CapabilitiesError { reason };
        if text.len() > MAX_TEXT_BYTES {
            return Err(refuse(format!("{} bytes are too many", text.len())));
        }
        let text = std::str::from_utf8(text).map_err(|error| refuse(error.to_string()))?;
        let value = json::parse(text).map_err(refuse)?;
        let Some(members) = value.member("capabilities") else {
            return Ok(found);
        };
        if !matches!(members, Value::Object(_)) {
            return Err(refuse("\"capabilities\" is no object".into()));
        }
        let number = |name: &str, default: u64| match members.member(name) {
            None => Ok(default),
            Some(Value::Number(value)) if *value > 0 => Ok(*value),
            Some(_) => Err(refuse(format!("{name} is no positive whole number"))),
        };
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        found.message_descriptors = narrow(number("max_msg_fds", 1)?);
        found.transfer_bytes = narrow(number("max_data_xfer_size", 1 << 20)?);
        found.dma_mappings = narrow(number("max_dma_maps", 65_535)?);
        found.page_sizes = number("pgsizes", 4096)?;
        Ok(found)
    }

    /// The smallest page for DMA, bytes; no smaller than this machine's.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        let lowest = 1u64.checked_shl(self.page_sizes.trailing_zeros());
        lowest.unwrap_or(4096).max(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_capabilities_decode_to_the_same_values() {
        let ours = Capabilities::OURS;
        assert_eq!(Capabilities::from_text(&ours.to_text()), Ok(ours));
    }

    #[test]
    fn missing_values_have_the_defaults_of_the_protocol() {
        for text in ["", "{}", r#"{"capabilities":{}}"#, r#"{"x":1}"#] {
            let found = Capabilities::from_text(text.as_bytes());
            assert_eq!(found, Ok(Capabilities::default()), "{text}");
        }
        let text = r#"{"capabilities":{"max_msg_fds":8,"migration":{"pgsize":4096}}}"#;
        let found = Capabilities::from_text(text.as_bytes()).unwrap();
        assert_eq!(found.message_descriptors, 8);
        assert_eq!(found.page_bytes(), 4096);
    }

    #[test]
    fn invalid_capabilities_are_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for text in [
            "{",
            "\u{0}",
            r#"{"capabilities":[]}"#,
            r#"{"capabilities":{"max_msg_fds":"8"}}"#,
            r#"{"capabilities":{"max_msg_fds":-1}}"#,
            r#"{"capabilities":{"pgsizes":0}}"#,
            deep.as_str(),
        ] {
            assert!(
                Capabilities::from_text(text.as_bytes()).is_err(),
                "{text:.40}"
            );
        }
        let long = vec![b' '; MAX_TEXT_BYTES + 1];
        assert!(Capabilities::from_text(&long).is_err());
    }
}
