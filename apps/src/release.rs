//! The host's request for the device, as of a driver that is unbound or a card that is taken out.
//!
//! The request ends a command as Ctrl-C does: results are shown, queues are stopped, the device is
//! shut down. Until the command ends, the host waits.

use crate::failure::Failure;
use crate::patience::SEEN;
use anyhow::Context;
use ringside_pmd::Device;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Has the command end when the host asks for its device. Does nothing if the backend has no such
/// request, or if the command catches no signals.
pub(crate) fn watch(device: &Device) -> Result<(), Failure> {
    let Some(seen) = SEEN.get().cloned() else {
        return Ok(());
    };
    let address = device.function().address().to_string();
    end_with(device, move || {
        eprintln!("{address}: the host asks for the device; this command ends");
        seen.store(true, Ordering::Relaxed);
    })
}

fn end_with(device: &Device, end: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let Some(request) = device.release_request() else {
        return Ok(());
    };
    let request = request
        .try_clone_to_owned()
        .context("duplicating the descriptor of the host's requests")?;
    let thread = std::thread::Builder::new().name("release".into());
    let started = thread.spawn(move || {
        if is_asked(&request) {
            end();
        }
    });
    started.context("starting a thread for the host's requests")?;
    Ok(())
}

/// Waits until the host asks. The driver may take the request first: the host repeats it.
fn is_asked(request: &OwnedFd) -> bool {
    loop {
        match poll(&mut [PollFd::new(request, PollFlags::IN)], None) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(error) => {
                eprintln!("requests of the host for the device are not seen: {error}");
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_config::Config;
    use ringside_model::{Threaded, WorldSettings};
    use ringside_pmd::BringUpOptions;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_request_of_the_host_ends_the_command_and_nothing_else_does() {
        let model = Threaded::start(&WorldSettings::with_functions(1), None).expect("a model");
        let function = model.function(0).expect("its function");
        let device = Device::bring_up(function, &Config::default(), BringUpOptions::default());
        let device = device.expect("in service");
        let (tell, told) = channel();
        end_with(&device, move || tell.send(()).expect("the test waits")).expect("a thread");
        assert!(told.recv_timeout(Duration::from_millis(100)).is_err());
        assert!(
            model
                .with(|world| world.request_release(0))
                .expect("it runs")
        );
        told.recv_timeout(Duration::from_secs(20)).expect("asked");
        drop(device);
        model.stop();
    }
}
