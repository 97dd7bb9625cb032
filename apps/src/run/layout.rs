//! The properties of a model that later programs have to agree with.

use super::options::{PORTS, Run};
use crate::failure::Failure;
use crate::outfile::check_no_output;
use crate::users::{Peers, not_made};
use anyhow::{Context, anyhow};
use std::path::{Path, PathBuf};

/// First word of the line that names the capture.
const CAPTURE: &str = "capture ";

/// True for the names of this process's standard streams, which the model's server does not share.
fn is_standard_output(file: &Path) -> bool {
    let names = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];
    let numbers = ["/dev/fd", "/proc/self/fd"];
    let is_number = |folder| (0..=2).any(|number| file == Path::new(&format!("{folder}/{number}")));
    names.iter().any(|name| file == Path::new(name)) || numbers.into_iter().any(is_number)
}

/// The properties that distinguish the model of one folder from others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) first: u16,
    pub(super) wires: Vec<String>,
    /// File that takes every frame on the wire.
    pub(super) pcap: Option<PathBuf>,
}

impl Layout {
    /// The layout that a program asks for.
    pub(super) fn wanted(options: &Run) -> Result<Self, Failure> {
        check_no_output("--pcap", options.pcap.as_deref())?;
        let pcap = options.pcap.as_deref().map(std::path::absolute);
        let pcap = pcap.transpose().context("finding the capture's folder")?;
        if let Some(file) = &pcap
            && file.as_os_str().as_encoded_bytes().contains(&b'\n')
        {
            return Err(Failure::usage(anyhow!(
                "the capture's name {file:?} has a line break: choose another --pcap"
            )));
        }
        if let Some(file) = &pcap
            && is_standard_output(file)
        {
            return Err(Failure::usage(anyhow!(
                "--pcap {}: the model's server writes the capture, and has no terminal; name a file, or a \
                 pipe made by `mkfifo`",
                file.display()
            )));
        }
        Ok(Self {
            first: options.first.unwrap_or(0),
            wires: options.wires.iter().map(ToString::to_string).collect(),
            pcap,
        })
    }

    pub(super) fn ports(&self) -> std::ops::Range<u16> {
        self.first..self.first.saturating_add(PORTS)
    }

    /// The places of its programs' peers.
    pub(super) const fn peers(&self) -> Peers {
        Peers::of(self.wires.as_slice())
    }

    fn path(folder: &Path) -> PathBuf {
        folder.join("model.layout")
    }

    /// Notes it for later programs.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let mut text = format!("{}\n", self.first).into_bytes();
        for wire in &self.wires {
            text.extend_from_slice(wire.as_bytes());
            text.push(b'\n');
        }
        if let Some(file) = &self.pcap {
            text.extend_from_slice(CAPTURE.as_bytes());
            text.extend_from_slice(file.as_os_str().as_encoded_bytes());
            text.push(b'\n');
        }
        let written = std::fs::write(Self::path(folder), text);
        written.map_err(|error| not_made("noting the model's layout", error).into())
    }

    pub(super) fn read(folder: &Path) -> Self {
        use std::ffi::OsString;
        use std::os::unix::ffi::OsStringExt;
        let bytes = std::fs::read(Self::path(folder)).unwrap_or_default();
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        let first = lines.next().and_then(|line| text(line).parse().ok());
        let (mut wires, mut pcap) = (Vec::new(), None);
        for line in lines.filter(|line| !line.is_empty()) {
            match line.strip_prefix(CAPTURE.as_bytes()) {
                Some(file) => pcap = Some(OsString::from_vec(file.to_vec()).into()),
                None => wires.push(text(line)),
            }
        }
        let first = first.unwrap_or(0);
        Self { first, wires, pcap }
    }

    /// A program that says nothing takes the model as it is.
    pub(super) fn check(&self, options: &Run) -> Result<(), Failure> {
        let wanted = Self::wanted(options)?;
        let same_first = options.first.is_none() || wanted.first == self.first;
        let same_wires = wanted.wires.is_empty() || wanted.wires == self.wires;
        if !same_first || !same_wires {
            let wires = match self.wires.as_slice() {
                [] => "no wire".to_owned(),
                wires => wires.join(" and "),
            };
            return Err(Failure::usage(anyhow!(
                "the model runs with {wires} and ports from {} on: leave --wire and --first away, or \
                 end its programs first",
                self.first
            )));
        }
        if wanted.pcap.is_some() && wanted.pcap != self.pcap {
            let capture = match &self.pcap {
                Some(file) => format!("captures to {}", file.display()),
                None => "runs without a capture".to_owned(),
            };
            return Err(Failure::usage(anyhow!(
                "the model {capture}: leave --pcap away, or end its programs first"
            )));
        }
        Ok(())
    }
}
