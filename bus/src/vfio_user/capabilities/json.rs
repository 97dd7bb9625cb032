//! The subset of JSON that capabilities need: all of the text is parsed and checked, objects and
//! whole numbers are kept.
//!
//! Not serde_json, because that crate compares its values with every kind of number, and so makes
//! `assert_eq!(numbers, [])` ambiguous in each crate that depends on this one.

/// Deeper nesting than any capabilities have is refused, to bound the use of the stack.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Members in their order.
    Object(Vec<(String, Value)>),
    /// A whole number that fits.
    Number(u64),
    /// Anything else.
    Other,
}

impl Value {
    /// The last member of that name, if this is an object that has one.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                let found = members.iter().rev().find(|(found, _)| found == name);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

/// Parses one value with nothing after it. The error names what was expected, and where.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader {
        bytes: text.as_bytes(),
        at: 0,
        depth: 0,
    };
    let value = reader.value()?;
    reader.space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.expected("the end")),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expected(&self, what: &str) -> String {
        format!("{what} expected at byte {} of their JSON", self.at)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes `byte` if it comes next, behind any space.
    fn takes(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Value, String> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(|_| Value::Other),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.expected("a value")),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) -> Result<Value, String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of nesting"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut members = Vec::new();
        if self.takes(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            if !self.takes(b':') {
                return Err(self.expected("a colon"));
            }
            members.push((name, self.value()?));
            if self.takes(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.takes(b',') {
                return Err(self.expected("a comma or the end of the object"));
            }
        }
    }

    fn array(&mut self) -> Result<Value, String> {
        if self.takes(b']') {
            return Ok(Value::Other);
        }
        loop {
            self.value()?;
            if self.takes(b']') {
                return Ok(Value::Other);
            }
            if !self.takes(b',') {
                return Err(self.expected("a comma or the end of the array"));
            }
        }
    }

    /// Parses a string. Escapes have no meaning for capabilities: each becomes a question mark.
    fn string(&mut self) -> Result<String, String> {
        let mut bytes = Vec::new();
        if self.next() != Some(b'"') {
            return Err(self.expected("a string"));
        }
        loop {
            match self.next() {
                Some(b'"') => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                Some(b'\\') => {
                    self.escape()?;
                    bytes.push(b'?');
                }
                Some(byte) if byte >= 0x20 => bytes.push(byte),
                _ => return Err(self.expected("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let digits = match self.next() {
            Some(b'u') => 4,
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 0,
            _ => return Err(self.expected("an escape")),
        };
        for _ in 0..digits {
            if !self.next().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                return Err(self.expected("a hexadecimal digit"));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        let text = self.bytes.get(start..self.at).unwrap_or(&[]);
        let text = std::str::from_utf8(text).unwrap_or("");
        // A sign is no part of a whole number here, and Rust's parser would take one.
        match text.parse().ok().filter(|_| !text.starts_with('+')) {
            Some(number) => Ok(Value::Number(number)),
            None if text.parse::<f64>().is_ok() => Ok(Value::Other),
            None => Err(self.expected("a number")),
        }
    }

    fn word(&mut self, word: &str) -> Result<Value, String> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        if !rest.starts_with(word.as_bytes()) {
            return Err(self.expected(word));
        }
        self.at += word.len();
        Ok(Value::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_whole_numbers_are_kept_and_the_rest_is_read() {
        let text = r#" {"a": 7, "b": {"c": 18446744073709551615}, "d": [1, {}, "x\u00e9\n"],
            "e": true, "f": null, "g": -1, "h": 1.5e3, "i": [], "a": 8} "#;
        let value = parse(text).unwrap();
        assert_eq!(
            value.member("a"),
            Some(&Value::Number(8)),
            "the last one counts"
        );
        let inner = value.member("b").and_then(|inner| inner.member("c"));
        assert_eq!(inner, Some(&Value::Number(u64::MAX)));
        for name in ["d", "e", "f", "g", "h", "i"] {
            assert_eq!(value.member(name), Some(&Value::Other), "{name}");
        }
        assert_eq!(value.member("z"), None);
    }

    #[test]
    fn invalid_json_is_refused_with_the_position() {
        for text in [
            "",
            "{",
            "}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "[1,]",
            "[1 2]",
            "tru",
            "nul",
            "1 2",
            "--1",
            "1e",
            "+1",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\u{1}\"",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("expected at byte"), "{text}: {error}");
        }
        assert!(parse(&"[".repeat(100_000)).unwrap_err().contains("nesting"));
    }
}
