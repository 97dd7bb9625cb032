//! Reads a configuration from a file or a text, and collects every fault.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::fault::{ConfigError, Fault, Position};
use crate::sections::Config;

/// The longest file that is read.
const LIMIT_BYTES: u64 = 1 << 20;

/// The most faults that are reported.
const FAULTS: usize = 50;

impl Config {
    /// Reads, parses and validates a file.
    ///
    /// Errors: [`ConfigError::Unreadable`], [`ConfigError::TooLong`], and [`ConfigError::Invalid`]
    /// with every fault in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        parse(&read(path)?).map_err(|faults| invalid(path, faults))
    }

    /// Reads a file as [`Config::load`] does; keys that it does not name have the values of
    /// `others`, not the defaults.
    ///
    /// Errors: as [`Config::load`]. A combination that is not possible is refused whether the file
    /// names both values or one of them; values of `others` have no position.
    pub fn load_over(path: impl AsRef<Path>, others: &Self) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = read(path)?;
        let table = read_table(&text).map_err(|faults| invalid(path, faults))?;
        let (_, faults) = read_all(&text, table.clone());
        if !faults.is_empty() {
            return Err(invalid(path, sorted(faults)));
        }
        let whole = |error: &dyn std::fmt::Display| {
            let message = error.to_string();
            let (position, key) = (None, None);
            invalid(
                path,
                vec![Fault {
                    position,
                    key,
                    message,
                }],
            )
        };
        let mut merged = toml::Table::try_from(others).map_err(|error| whole(&error))?;
        merge(
            &mut merged,
            text.parse()
                .map_err(|error: toml::de::Error| whole(&error))?,
        );
        let config = Self::deserialize(merged).map_err(|error| whole(&error))?;
        let faults = located(&text, &table, config.faults());
        match faults.is_empty() {
            true => Ok(config),
            false => Err(invalid(path, sorted(faults))),
        }
    }

    /// Parses and validates a text.
    ///
    /// Errors: [`ConfigError::Invalid`] with every fault in it.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        parse(text).map_err(|faults| ConfigError::Invalid {
            origin: None,
            faults,
        })
    }

    /// Validates a configuration that was made or changed in code.
    ///
    /// Errors: [`ConfigError::Invalid`] with every fault in it, without positions.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let faults = self.faults();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(ConfigError::Invalid {
                origin: None,
                faults,
            })
        }
    }

    /// Returns the configuration as TOML text, with every key.
    ///
    /// Errors: the serializer's message; a configuration that validates has none.
    pub fn to_toml_string(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

fn invalid(path: &Path, faults: Vec<Fault>) -> ConfigError {
    ConfigError::Invalid {
        origin: Some(path.to_owned()),
        faults,
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let length_bytes = file.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    file.take(LIMIT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let read_bytes = bytes.len() as u64;
    if read_bytes > LIMIT_BYTES {
        return Err(ConfigError::TooLong {
            path: path.to_owned(),
            length_bytes: length_bytes.max(read_bytes),
            limit_bytes: LIMIT_BYTES,
        });
    }
    String::from_utf8(bytes)
        .map_err(|error| unreadable(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

/// Puts the keys of `over` into `under`, section by section.
fn merge(under: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

fn parse(text: &str) -> Result<Config, Vec<Fault>> {
    let table = read_table(text)?;
    let (config, mut faults) = read_all(text, table.clone());
    if let Some(config) = config {
        faults.extend(located(text, &table, config.faults()));
        if faults.is_empty() {
            return Ok(config);
        }
    }
    Err(sorted(faults))
}

fn read_table(text: &str) -> Result<Spanned<DeTable<'_>>, Vec<Fault>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(table);
    }
    let faults = errors.iter().take(FAULTS);
    Err(faults.map(|error| syntax_fault(text, error)).collect())
}

fn sorted(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by_key(|fault| fault.position);
    faults
}

/// Reads the table into a configuration. A key with a fault is recorded and removed, and the rest
/// is read again, so that later faults are reported too.
fn read_all(text: &str, mut table: Spanned<DeTable<'_>>) -> (Option<Config>, Vec<Fault>) {
    let mut faults = lists_of_sections(text, table.get_mut());
    let has_lists = !faults.is_empty();
    while faults.len() < FAULTS {
        match Config::deserialize(Deserializer::from(table.clone())) {
            Ok(config) => return (Some(config).filter(|_| !has_lists), faults),
            Err(error) => {
                let key = error
                    .span()
                    .and_then(|span| take_out(table.get_mut(), &span));
                let gone = key.is_some();
                faults.push(type_fault(text, &error, key));
                if !gone {
                    break;
                }
            }
        }
    }
    (None, faults)
}

/// Removes sections that are lists, `[[rdma]]` among them: their values would be taken by position.
fn lists_of_sections(text: &str, table: &mut DeTable<'_>) -> Vec<Fault> {
    let sections = toml::Table::try_from(Config::default()).unwrap_or_default();
    let lists = table.iter().filter_map(|(section, value)| {
        let name = section.get_ref();
        if !value.get_ref().is_array() || !sections.contains_key(&**name) {
            return None;
        }
        Some((name.to_string(), value.span().start))
    });
    let mut faults = Vec::new();
    for (name, offset) in lists.collect::<Vec<_>>() {
        table.remove(name.as_str());
        faults.push(Fault {
            position: Some(Position::of_offset(text, offset)),
            message: format!(": invalid type: list, expected the table [{name}]"),
            key: Some(name),
        });
    }
    faults
}

/// Removes the entry that contains `span`, or of a list the element, and returns the dotted key.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let inside = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    let entry_of = |section: &Spanned<DeValue<'_>>| {
        let mut entries = section.get_ref().as_table()?.iter();
        let found = entries.find(|(key, value)| inside(key.span()) || inside(value.span()));
        found.map(|(key, _)| key.get_ref().to_string())
    };
    let nested = table
        .iter()
        .find_map(|(section, value)| Some((section, Some(entry_of(value)?))));
    let whole = || {
        table
            .iter()
            .find(|(section, value)| inside(section.span()) || inside(value.span()))
            .map(|(section, _)| (section, None))
    };
    let (section, entry) = nested.or_else(whole)?;
    let section = section.get_ref().to_string();
    let Some(entry) = entry else {
        table.remove(section.as_str());
        return Some(section);
    };
    if let DeValue::Table(entries) = table.get_mut(section.as_str())?.get_mut() {
        match entries.get_mut(entry.as_str()).map(Spanned::get_mut) {
            // The faults of other elements are reported too.
            Some(DeValue::Array(list)) if list.iter().any(|one| inside(one.span())) => {
                let others = list.iter().filter(|one| !inside(one.span()));
                *list = others.cloned().collect();
            }
            _ => {
                entries.remove(entry.as_str());
            }
        }
    }
    Some(format!("{section}.{entry}"))
}

/// The form of numbers in messages about a key.
const NUMBERS: [(&str, &str); 4] = [
    ("u8", "0 to 255"),
    ("u16", "0 to 65535"),
    ("u32", "0 to 4294967295"),
    ("u64", "0 on"),
];

fn syntax_fault(text: &str, error: &toml::de::Error) -> Fault {
    Fault {
        position: error
            .span()
            .map(|span| Position::of_offset(text, span.start)),
        key: None,
        message: error.message().replace('\n', ", "),
    }
}

fn type_fault(text: &str, error: &toml::de::Error, key: Option<String>) -> Fault {
    let mut fault = syntax_fault(text, error);
    for (kind, meaning) in NUMBERS {
        let expected = format!(", expected {kind}");
        if let Some(said) = fault.message.strip_suffix(&expected) {
            fault.message = format!("{said}, expected a whole number from {meaning}");
        }
    }
    if key.is_some() {
        fault.key = key;
        fault.message.insert_str(0, ": ");
    }
    fault
}

/// Adds the positions of values in the text to faults of validation.
fn located(text: &str, table: &Spanned<DeTable<'_>>, mut faults: Vec<Fault>) -> Vec<Fault> {
    for fault in &mut faults {
        fault.position = fault.key.as_deref().and_then(|key| {
            let (section, name) = key.split_once('.')?;
            let span = table.get_ref().get(section)?.get_ref().get(name)?.span();
            Some(Position::of_offset(text, span.start))
        });
    }
    faults
}
