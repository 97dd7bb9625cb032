//! `ringside model serve`: the software model for other processes.

use crate::failure::Failure;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use ringside_bus::pinning::pin_to;
use ringside_model::World;
use ringside_model::vfio_user::{Server, ServerSettings};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct Model {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ModelCommand {
    /// Serve functions of the model over vfio-user until stopped
    Serve(Serve),
}

const SERVE_HELP: &str = "\
All functions that one server serves are on one switch. A client that goes away, or dies, leaves
its function reset and ready for the next.

Examples:
  ringside model serve --socket /run/a.sock --socket /run/b.sock --doorbell-page
  ringside bring-up --device vfio-user:/run/a.sock
  qemu-system-x86_64 ... -object memory-backend-memfd,id=mem0,size=2G,share=on -numa node,memdev=mem0 \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/a.sock\"}}'";

#[derive(Args, Debug)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct Serve {
    /// Where to serve a function; once for each function, the first is function 0
    #[arg(long = "socket", value_name = "PATH", required = true)]
    pub(crate) sockets: Vec<PathBuf>,
    /// Let clients map the doorbell page; otherwise each doorbell is a message
    #[arg(long)]
    pub(crate) doorbell_page: bool,
    /// Accept memory that its owner can cut while it is mapped: a client that does so kills the server
    #[arg(long)]
    pub(crate) accept_shrinkable_memory: bool,
    /// Core for the model's thread
    #[arg(long, value_name = "CORE")]
    pub(crate) core: Option<usize>,
    /// Microseconds without work before the server sleeps between looks
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200)]
    pub(crate) spin_us: u64,
}

pub(crate) fn run(options: &Model) -> Result<(), Failure> {
    match &options.command {
        ModelCommand::Serve(options) => serve(options),
    }
}

fn serve(options: &Serve) -> Result<(), Failure> {
    if u16::try_from(options.sockets.len()).is_err() {
        return Err(Failure::usage(anyhow!("more than 65535 sockets")));
    }
    let mut settings = ServerSettings::new(options.sockets.clone());
    settings.doorbell_page = options.doorbell_page;
    settings.accept_shrinkable_memory = options.accept_shrinkable_memory;
    settings.spin = Duration::from_micros(options.spin_us);
    if let Some(core) = options.core {
        pin_to(core).map_err(Failure::usage)?;
    }
    let mut server = Server::bind(&settings).map_err(Failure::operation)?;
    for (index, path) in options.sockets.iter().enumerate() {
        println!("function {index} on {}", path.display());
    }
    let mut told = vec![0; options.sockets.len()];
    // Ends when the process is stopped; a socket left behind is replaced by the next server.
    server.run(&AtomicBool::new(false), |world| {
        for (index, told) in told.iter_mut().enumerate() {
            tell_breaches(world, index, told);
        }
    });
    Ok(())
}

/// Says which rules of the interface a driver has broken, whenever there is more to say.
fn tell_breaches(world: &World, index: usize, told: &mut u64) {
    let breaches = world.breaches(index);
    let count = breaches.iter().map(|breach| breach.count).sum();
    if count == *told {
        return;
    }
    *told = count;
    println!("function {index}: the driver broke the interface {count} times");
    for breach in breaches {
        println!("  {} x {}: {}", breach.count, breach.kind, breach.first);
    }
}
