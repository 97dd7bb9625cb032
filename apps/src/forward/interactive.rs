//! Commands from standard input, in testpmd's words.

use super::mode::Mode;
use super::statistics::{Report, Shared};
use crate::failure::Failure;
use clap::ValueEnum;
use ringside_pmd::lan::Port;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

const HELP: &str = "\
start                     begin to forward
stop                      pause
set fwd MODE              io, macswap, mac, rxonly, txonly, icmp-echo, flowgen
set promisc PORT on|off   all packets of the wire, or those for the port
vlan add|rm ID PORT       let a VLAN in, or shut it out
show port stats all       what was forwarded
show port xstats PORT     every counter of the port
show port info PORT       address, link
clear port stats all      begin to count anew
quit                      end";

/// The result of a line.
enum Next {
    Go,
    Quit,
}

pub(super) fn run(
    shared: &Arc<Shared>,
    ports: &[&Port],
    report: &mut Report,
    interrupted: &AtomicBool,
) -> Result<(), Failure> {
    // A read cannot be interrupted: a thread of its own waits for lines, and ends with the process.
    let (sender, lines) = sync_channel::<String>(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    prompt();
    while !interrupted.load(Ordering::Relaxed) {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => match command(&line, shared, ports, report) {
                Ok(Next::Quit) => return Ok(()),
                Ok(Next::Go) => prompt(),
                Err(text) => {
                    println!("{text}");
                    prompt();
                }
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
    Ok(())
}

fn prompt() {
    print!("ringside> ");
    // A terminal that is gone is noticed by the end of its input.
    let _ = std::io::stdout().flush();
}

fn command(
    line: &str,
    shared: &Arc<Shared>,
    ports: &[&Port],
    report: &mut Report,
) -> Result<Next, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] => {}
        ["help"] => println!("{HELP}"),
        ["quit"] => return Ok(Next::Quit),
        ["start"] => shared.forwarding.store(true, Ordering::Release),
        ["stop"] => shared.forwarding.store(false, Ordering::Release),
        ["set", "fwd", mode] => {
            let mode = Mode::from_str(mode, true)
                .map_err(|_| format!("no mode {mode}: one of {}", modes()))?;
            shared.set_mode(mode);
        }
        ["set", "promisc", port, state] => {
            let wanted = match *state {
                "on" => true,
                "off" => false,
                other => return Err(format!("{other} is neither on nor off")),
            };
            let port = find(ports, port)?;
            port.set_promiscuous(wanted)
                .map_err(|error| error.to_string())?;
        }
        ["vlan", action, vlan, port] => {
            let port = find(ports, port)?;
            let vlan = vlan
                .parse()
                .map_err(|_| format!("{vlan} is no VLAN: 0 to 4094"))?;
            let done = match *action {
                "add" => port.add_vlan(vlan),
                "rm" => port.remove_vlan(vlan).map(|_| ()),
                other => return Err(format!("{other} is neither add nor rm")),
            };
            done.map_err(|error| error.to_string())?;
        }
        ["show", "port", "stats", "all"] => report.last(),
        ["show", "port", "xstats", port] => {
            let statistics = find(ports, port)?.statistics();
            for one in statistics.map_err(|error| error.to_string())? {
                println!("{}: {}", one.name, one.value);
            }
        }
        ["show", "port", "info", number] => {
            show_info(number, find(ports, number)?)?;
        }
        ["clear", "port", "stats", "all"] => report.clear(),
        _ => return Err(format!("no command '{line}'; \"help\" lists them")),
    }
    Ok(Next::Go)
}

/// Prints address, VSI and link of a port.
fn show_info(number: &str, port: &Port) -> Result<(), String> {
    let link = port.link().map_err(|error| error.to_string())?;
    let mac = port.mac().map(|byte| format!("{byte:02x}"));
    println!(
        "port {number}: address {}, VSI {}",
        mac.join(":"),
        port.vsi()
    );
    match link.megabits_per_second {
        Some(speed) if link.up => println!("link up, {speed} Mb/s"),
        _ if link.up => println!("link up"),
        _ => println!("link down"),
    }
    Ok(())
}

fn modes() -> String {
    Mode::ALL.map(Mode::name).join(", ")
}

fn find<'a>(ports: &[&'a Port], number: &str) -> Result<&'a Port, String> {
    let index: Option<usize> = number.parse().ok();
    let port = index.and_then(|index| ports.get(index));
    port.copied()
        .ok_or_else(|| format!("no port {number}: there are {}", ports.len()))
}
