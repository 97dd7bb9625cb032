//! `ringside config`: checks configuration files, and shows samples and the schema.

use crate::failure::Failure;
use crate::output::stdout;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use ringside_config::{Config, SAMPLE, SAMPLES, json_schema};
use std::io::Write;
use std::path::PathBuf;

/// Options of `ringside config`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Check a configuration file: prints every error with its line and column
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print the JSON schema, for editors and other tools
    Schema,
    /// Print a commented sample: all (every key at its default), appliance, benchmark, low-latency
    Sample {
        /// Name of the sample
        #[arg(default_value = "all")]
        name: String,
    },
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Check { file } => {
            Config::load(file).map_err(Failure::usage)?;
            writeln!(stdout(), "{}: valid", file.display())?;
        }
        Command::Schema => writeln!(stdout(), "{}", json_schema())?,
        Command::Sample { name } => write!(stdout(), "{}", sample(name)?)?,
    }
    Ok(())
}

fn sample(name: &str) -> Result<&'static str, Failure> {
    if name == "all" {
        return Ok(SAMPLE);
    }
    let found = SAMPLES.iter().find(|(sample, _)| *sample == name);
    let text = found.map(|(_, text)| *text);
    text.ok_or_else(|| {
        let names: Vec<&str> = SAMPLES.iter().map(|(name, _)| *name).collect();
        Failure::usage(anyhow!(
            "there is no sample {name}: all, {}",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Cores, model_function, start_model};
    use ringside_config::{Core, HugePages};
    use ringside_pmd::{BringUpOptions, Device};

    #[test]
    fn every_sample_is_found_and_others_are_named() {
        for name in ["all", "appliance", "benchmark", "low-latency"] {
            assert!(sample(name).is_ok_and(|text| Config::from_toml_str(text).is_ok()));
        }
        let refused = sample("fast").map(str::len);
        let text = format!("{:?}", refused.err());
        assert!(
            text.contains("all, appliance, benchmark, low-latency"),
            "{text}"
        );
    }

    #[test]
    fn a_device_comes_up_with_every_sample() {
        let samples = SAMPLES.into_iter().chain([("all", SAMPLE)]);
        for (name, text) in samples {
            let mut config = Config::from_toml_str(text).unwrap();
            // What the machine has: huge pages, cores.
            config.memory.hugepages = HugePages::None;
            config.worker.cores = Vec::new();
            config.model.thread_core = Core::Any;
            let cores = Cores {
                driver: None,
                model: None,
            };
            let model = start_model(&config, cores).unwrap();
            let function = model_function(&model, 0).unwrap();
            let device = Device::bring_up(function, &config, BringUpOptions::default());
            let device = device.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(device.shutdown().failures, [], "{name}");
        }
    }

    #[test]
    fn a_file_with_faults_is_refused_with_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lazy.toml");
        std::fs::write(&file, "[worker]\npolling = \"lazy\"\nidle_us = -1\n").unwrap();
        let refused = run(&Options {
            command: Command::Check { file },
        });
        let text = format!("{:?}", refused.err());
        assert!(text.contains("line 2, column 11: worker.polling"), "{text}");
        assert!(text.contains("line 3, column 11: worker.idle_us"), "{text}");
    }
}
