//! The files of `--hgrm`: the latency distributions of tests.

use super::latencies::Latencies;
use super::plan::plans;
use crate::cli::{Bench, Measure, Operation};
use crate::failure::Failure;
use crate::outfile::{OutFile, not_written};
use anyhow::anyhow;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The name of a test, and its latencies.
pub(crate) type Distribution = (String, Latencies);

/// The name of a test.
pub(super) fn title(operation: Operation, measure: Measure, size: u64) -> String {
    format!("{} {} {size} B", operation.title(), measure.title())
}

/// The name of each test that the flags request and the file of its latencies: `path` for a single
/// test, else files beside it. Errors: wrong flags; several tests and a path that is no name of a
/// file.
pub(super) fn files(options: &Bench, path: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let plans = plans(options).map_err(Failure::usage)?;
    let titles = plans
        .iter()
        .filter(|plan| plan.measure == Measure::Lat)
        .flat_map(|plan| {
            let sizes = plan.sizes.iter();
            sizes.map(|&size| title(plan.operation, plan.measure, size))
        });
    let titles: Vec<String> = titles.collect();
    if titles.len() <= 1 {
        let only = titles.into_iter().map(|title| (title, path.to_owned()));
        return Ok(only.collect());
    }
    let stem = path.file_stem().filter(|_| is_new_or_file(path));
    let stem = stem.ok_or_else(|| {
        Failure::usage(anyhow!(
            "--hgrm {}: {} tests are measured, each has a file, and the names begin with this one, which is \
             no ordinary file; name a file, or choose one operation and size",
            path.display(),
            titles.len()
        ))
    })?;
    let beside = |title: String| {
        let mut name = OsString::from(stem);
        name.push(format!("-{}.hgrm", title.to_lowercase().replace(' ', "-")));
        (title, path.with_file_name(name))
    };
    Ok(titles.into_iter().map(beside).collect())
}

fn is_new_or_file(path: &Path) -> bool {
    path.metadata().map_or(true, |found| found.is_file())
}

/// Writes each distribution to the file of its test. Errors: the first file that failed; the others
/// are written.
pub(super) fn write(
    options: &Bench,
    path: &Path,
    measured: &[Distribution],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if measured.is_empty() {
        writeln!(
            out,
            "warning: --hgrm has nothing to write: no latency was measured"
        )?;
        return Ok(());
    }
    let files = files(options, path)?;
    let mut written = Ok(());
    for (title, times) in measured {
        let file = files.iter().find(|(of, _)| of == title);
        let path = file.map_or(path, |(_, path)| path);
        match OutFile::create(path).and_then(|mut file| times.write_percentiles(&mut file)) {
            Ok(()) => writeln!(out, "distribution of {title} in {}", path.display())?,
            Err(error) => {
                written = written.and(Err(not_written("a distribution", path, error)));
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn bench(flags: &str) -> Bench {
        let words = ["ringside", "bench"].into_iter().chain(flags.split(' '));
        match Cli::try_parse_from(words).unwrap().command {
            Command::Bench(bench) => *bench,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_test_has_the_named_file_and_several_have_files_beside_it() {
        let path = Path::new("/no/x.txt");
        let one = files(&bench("write lat -s 64"), path).unwrap();
        assert_eq!(one, [("RDMA_Write Latency 64 B".into(), path.into())]);
        let three = files(&bench("-s 64"), path).unwrap();
        let three: Vec<_> = three
            .iter()
            .map(|(_, path)| path.to_str().unwrap())
            .collect();
        let named = ["rdma_write", "rdma_read", "send"];
        assert_eq!(
            three,
            named.map(|name| format!("/no/x-{name}-latency-64-b.hgrm"))
        );
    }

    #[test]
    fn names_that_are_no_text_stay_as_they_are() {
        let path = Path::new(OsStr::from_bytes(b"/no/\xFF.hgrm"));
        let all = files(&bench("read lat -a"), path).unwrap();
        let begins = b"/no/\xFF-rdma_read-latency-";
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().starts_with(begins);
        assert!(all.len() == 23 && all.iter().all(|(_, path)| bytes(path)));
    }

    #[test]
    fn several_tests_into_what_is_no_file_are_refused() {
        for path in ["/dev/null", "/tmp", "/no/.."] {
            let refused = files(&bench("read lat -a"), Path::new(path)).unwrap_err();
            assert!(refused.is_usage() && refused.text().contains("23 tests"));
            files(&bench("read lat"), Path::new(path)).unwrap();
        }
    }
}
