//! Serves functions of the model over vfio-user, one on each socket.
//!
//! `model-serve [--doorbell-page] [--accept-shrinkable-memory] [--no-package] [--record FILE]
//! --socket PATH [--socket PATH]...`

use ringside_model::Fault;
use ringside_model::record::Recorder;
use ringside_model::vfio_user::{Server, ServerSettings};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let mut settings = ServerSettings::new(Vec::new());
    let mut no_package = false;
    let mut record = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--doorbell-page" => settings.doorbell_page = true,
            "--no-package" => no_package = true,
            "--accept-shrinkable-memory" => settings.accept_shrinkable_memory = true,
            "--record" if arguments.len() > 0 => record = arguments.next(),
            "--socket" if arguments.len() > 0 => {
                settings.sockets.extend(arguments.next().map(Into::into));
            }
            other => {
                eprintln!("'{other}' is not understood; see the first lines of this program");
                return ExitCode::from(2);
            }
        }
    }
    settings.world = ServerSettings::new(settings.sockets.clone()).world;
    let mut server = match Server::bind(&settings) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(path) = record {
        match std::fs::File::create(&path) {
            Ok(file) => server.world().record(&Recorder::to_writer(Box::new(file))),
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if no_package {
        for index in 0..settings.sockets.len() {
            server.world().inject(index, Fault::NoPackageLoaded);
        }
    }
    println!("serving {} functions", settings.sockets.len());
    let mut seen = vec![0; settings.sockets.len()];
    server.run(&AtomicBool::new(false), |world| {
        for (index, seen) in seen.iter_mut().enumerate() {
            let breaches = world.breaches(index);
            let count: u64 = breaches.iter().map(|breach| breach.count).sum();
            if count != *seen {
                *seen = count;
                for breach in breaches {
                    println!(
                        "function {index}: breach {} x {}: {}",
                        breach.kind, breach.count, breach.first
                    );
                }
            }
        }
    });
    ExitCode::SUCCESS
}
