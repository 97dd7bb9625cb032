//! Commands from standard input, in testpmd's words.

use super::mode::Mode;
use super::running::Running;
use super::statistics::Shared;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::stdout;
use crate::rule::Rule;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use ringside_pmd::lan::port::RuleNumber;
use ringside_pmd::lan::{PortError, Vsi};
use serde_json::{Value, json};
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

pub(super) const HELP: &str = "\
start                       begin to forward
start tx_first [BURSTS]     send BURSTS bursts (1 without it) on every queue, then begin to forward
stop                        pause
set fwd MODE                io, macswap, mac, rxonly, txonly, icmp-echo, flowgen
set burst COUNT             packets of a burst, 1 to 64
set promisc PORT on|off     all packets of the wire, or those for the port
set allmulti PORT on|off    all packets to groups, or those that the port asked for
port stop|start PORT        stop the queues of a port and of its VSIs, or start them
rx_vlan add|rm ID PORT      let a VLAN in, or shut it out; vlan is the same
mac_addr add|remove PORT A  let packets to one more address in, or shut it out
rule add PORT RULE          steer packets: tcp4 dst-port 80 action 3; `ringside port --help` has all words
rule list PORT              rules of a port, with what they counted
rule remove PORT NUMBER     take a rule back
show fwd stats all          what was forwarded; show port stats PORT is the same for one port
show port xstats PORT       every counter of the port, or of the VSI
show port info PORT         address, VSI, link
show config fwd             modes, pairs of ports, queues and threads
clear fwd stats all         begin to count anew; clear port stats PORT is the same for one port
quit                        end
A further VSI of a port is named in place of PORT: 0.1 is the first one of port 0. set promisc, set allmulti, \
port, show port stats, show port xstats and show port info take \"all\" for all ports.";

/// Longest wait for the threads to stop or start the queues of a port.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// The pause of that wait.
const SETTLE_PAUSE: Duration = Duration::from_millis(1);
/// Packets of a burst at most.
const MAX_PACKETS: u8 = ringside_lan::MAX_BURST as u8;

/// Bursts of `start tx_first` at most.
const MAX_FIRST_BURSTS: u32 = 4096;

/// The step after a line of input.
enum Next {
    Go,
    Quit,
}

/// The reason why a line was not carried out.
enum Wrong {
    /// The line, or the port's error: the user is informed, and the session continues.
    Line(String),
    /// Output is no longer possible.
    Output(io::Error),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<PortError> for Wrong {
    fn from(error: PortError) -> Self {
        Self::Line(error.to_string())
    }
}

type Done<T = ()> = Result<T, Wrong>;

/// Obeys lines until one of them, their end, a signal or the time ends it. Errors: a line of a
/// script was refused; the output is closed.
///
/// With `json` there are no prompts: each answer is an object, on a line of its own.
pub(super) fn run(
    shared: &Shared,
    running: &mut Running<'_>,
    end: Option<Instant>,
    json: bool,
) -> Result<(), Failure> {
    let mut refused = 0_u64;
    obey(shared, running, end, json, &mut refused)?;
    match refused {
        0 => Ok(()),
        _ if io::stdin().is_terminal() => Ok(()),
        count => Err(Failure::operation(anyhow!(
            "{count} of the lines of standard input were refused"
        ))),
    }
}

/// Counts the lines that are refused.
fn obey(
    shared: &Shared,
    running: &mut Running<'_>,
    end: Option<Instant>,
    json: bool,
    refused: &mut u64,
) -> Result<(), Failure> {
    let lines = lines().context("starting the thread that reads standard input")?;
    prompt(json)?;
    while !interrupt::seen() && end.is_none_or(|end| Instant::now() < end) {
        running.supervise()?;
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                match command(&line, shared, running, json) {
                    Ok(Next::Quit) => return Ok(()),
                    Ok(Next::Go) => {}
                    Err(Wrong::Line(text)) => {
                        *refused += 1;
                        let object = json!({"kind": "error", "text": text});
                        tell(json, &format!("{text}\n"), &object)?;
                    }
                    Err(Wrong::Output(error)) => return Err(error.into()),
                }
                prompt(json)?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
    Ok(())
}

/// Lines of standard input. A read cannot be interrupted: a thread of its own waits for them, and
/// ends with the process.
fn lines() -> io::Result<Receiver<String>> {
    let (sender, lines) = sync_channel::<String>(1);
    let thread = std::thread::Builder::new().name("commands".into());
    thread.spawn(move || {
        // A line that is no text is an unknown command, and not the end.
        for line in std::io::stdin().lock().split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    })?;
    Ok(lines)
}

fn prompt(json: bool) -> io::Result<()> {
    if json {
        return stdout().flush();
    }
    write!(stdout(), "ringside> ")?;
    stdout().flush()
}

/// Shows an answer: lines of text, or an object on a line of its own.
fn tell(json: bool, text: &str, object: &Value) -> io::Result<()> {
    match json {
        true => writeln!(stdout(), "{object}"),
        false => write!(stdout(), "{text}"),
    }
}

fn command(line: &str, shared: &Shared, running: &mut Running<'_>, json: bool) -> Done<Next> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] => {}
        ["help"] => {
            let object = json!({"kind": "help", "text": HELP});
            tell(json, &format!("{HELP}\n"), &object)?;
        }
        ["quit"] => return Ok(Next::Quit),
        ["start"] => running.start(0),
        ["start", "tx_first"] => running.start(1),
        ["start", "tx_first", bursts] => running.start(first_bursts(bursts)?),
        ["stop"] => running.pause(),
        ["set", "fwd", mode] => {
            let wrong = |_| Wrong::Line(format!("no mode {mode}: one of {}", modes()));
            shared.set_mode(Mode::from_str(mode, true).map_err(wrong)?);
        }
        ["set", "burst", count] => set_burst(count, shared)?,
        ["set", what @ ("promisc" | "allmulti"), port, state] => {
            for (_, port) in find_all(running, port)? {
                set(what, port, state)?;
            }
        }
        ["port", action, port] => run_port(action, port, shared, running)?,
        ["vlan" | "rx_vlan", action, vlan, port] => set_vlan(action, vlan, find(running, port)?)?,
        ["mac_addr", action, port, mac] => set_address(action, find(running, port)?, mac)?,
        ["rule", action, port, words @ ..] => rule(action, find(running, port)?, words, json)?,
        ["show", "port" | "fwd", "stats", name] => {
            find_all(running, name)?;
            running.report.totals_of(name)?;
        }
        ["show", "port", "xstats", port] => show_counters(&find_all(running, port)?, json)?,
        ["show", "port", "info", port] => show_info(&find_all(running, port)?, json)?,
        ["show", "config", "fwd"] => show_config(shared, json)?,
        ["clear", "port" | "fwd", "stats", name] => {
            find_all(running, name)?;
            running.report.clear(name);
        }
        ["set", what, ..] => return Err(Wrong::Line(nothing_to_set(what, line))),
        _ => {
            let text = format!("no command '{line}'; \"help\" lists them");
            return Err(Wrong::Line(text));
        }
    }
    Ok(Next::Go)
}

fn set(what: &str, port: &Vsi, state: &str) -> Done {
    let wanted = match state {
        "on" => true,
        "off" => false,
        other => return Err(Wrong::Line(format!("{other} is neither on nor off"))),
    };
    match what {
        "promisc" => port.set_promiscuous(wanted)?,
        _ => port.set_all_multicast(wanted)?,
    }
    Ok(())
}

/// The message for a line of `set` that is not understood.
fn nothing_to_set(what: &str, line: &str) -> String {
    let form = match what {
        "fwd" => "set fwd MODE",
        "burst" => "set burst COUNT",
        "promisc" | "allmulti" => return format!("'{line}' is not set {what} PORT on|off"),
        _ => return format!("nothing '{what}' to set: fwd, burst, promisc or allmulti"),
    };
    format!("'{line}' is not {form}")
}

/// Bursts before forwarding begins.
fn first_bursts(count: &str) -> Done<u32> {
    let bursts = count.parse().ok();
    let bursts = bursts.filter(|bursts| (1..=MAX_FIRST_BURSTS).contains(bursts));
    let text = || format!("{count} is no number of bursts: 1 to {MAX_FIRST_BURSTS}");
    bursts.ok_or_else(|| Wrong::Line(text()))
}

fn set_burst(count: &str, shared: &Shared) -> Done {
    let packets = count.parse().ok();
    let Some(packets) = packets.filter(|packets| (1..=MAX_PACKETS).contains(packets)) else {
        let text = format!("{count} is no number of packets: 1 to {MAX_PACKETS}");
        return Err(Wrong::Line(text));
    };
    shared.set_burst(packets);
    Ok(())
}

/// Stops or starts the queues of a port, and waits until the threads have done it.
fn run_port(action: &str, name: &str, shared: &Shared, running: &Running<'_>) -> Done {
    let stopped = match action {
        "stop" => true,
        "start" => false,
        other => return Err(Wrong::Line(format!("{other} is neither start nor stop"))),
    };
    let ports: Vec<usize> = match name {
        "all" => (0..running.count()).collect(),
        name => {
            find(running, name)?;
            let number = name.parse();
            vec![number.map_err(|_| Wrong::Line(format!("{name} is no port but a VSI")))?]
        }
    };
    for port in ports {
        shared.set_stopped(port, stopped);
        let begin = Instant::now();
        while !shared.has_settled(port) {
            if begin.elapsed() > SETTLE_LIMIT {
                let text =
                    format!("a queue of port {port} did not {action}: show port info {port}");
                return Err(Wrong::Line(text));
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
    }
    Ok(())
}

fn set_vlan(action: &str, vlan: &str, port: &Vsi) -> Done {
    let number = vlan.parse();
    let number = number.map_err(|_| Wrong::Line(format!("{vlan} is no VLAN: 0 to 4094")))?;
    match action {
        "add" => port.add_vlan(number)?,
        "rm" if !port.remove_vlan(number)? => {
            return Err(Wrong::Line(format!("VLAN {number} was not added")));
        }
        "rm" => {}
        other => return Err(Wrong::Line(format!("{other} is neither add nor rm"))),
    }
    Ok(())
}

fn set_address(action: &str, port: &Vsi, mac: &str) -> Done {
    let address: crate::mac::Mac = mac.parse().map_err(Wrong::Line)?;
    match action {
        "add" => port.add_address(address.0)?,
        "remove" if !port.remove_address(address.0)? => {
            return Err(Wrong::Line(format!("address {mac} was not added")));
        }
        "remove" => {}
        other => return Err(Wrong::Line(format!("{other} is neither add nor remove"))),
    }
    Ok(())
}

fn rule(action: &str, port: &Vsi, words: &[&str], json: bool) -> Done {
    match (action, words) {
        ("add", words) => {
            let rule: Rule = words.join(" ").parse().map_err(Wrong::Line)?;
            let number = port.add_rule(&rule.0)?;
            let object = json!({"kind": "rule", "number": number.0});
            tell(json, &format!("rule {}\n", number.0), &object)?;
        }
        ("list", []) => list_rules(port, json)?,
        ("remove", [number]) => {
            let wrong = |_| Wrong::Line(format!("{number} is no number of a rule"));
            let number = RuleNumber(number.parse().map_err(wrong)?);
            if !port.remove_rule(number)? {
                return Err(Wrong::Line(format!("no rule {}", number.0)));
            }
        }
        _ => {
            let text = "rule add PORT RULE, rule list PORT, or rule remove PORT NUMBER";
            return Err(Wrong::Line(text.to_owned()));
        }
    }
    Ok(())
}

fn list_rules(port: &Vsi, json: bool) -> Done {
    let (mut text, mut objects) = (String::new(), Vec::new());
    for (number, rule) in port.rules() {
        let packets = port.rule_hits(number)?;
        let counted = packets.map(|packets| format!(", {packets} packets"));
        let counted = counted.unwrap_or_default();
        let (number, rule) = (number.0, Rule(rule).to_string());
        text += &format!("rule {number}: {rule}{counted}\n");
        objects.push(json!({"number": number, "rule": rule, "packets": packets}));
    }
    Ok(tell(
        json,
        &text,
        &json!({"kind": "rules", "rules": objects}),
    )?)
}

fn show_counters(ports: &[(String, &Vsi)], json: bool) -> Done {
    let (mut text, mut objects) = (String::new(), Vec::new());
    for (name, port) in ports {
        if ports.len() > 1 {
            text += &format!("port {name}:\n");
        }
        let mut counters = serde_json::Map::new();
        for one in port.statistics()? {
            text += &format!("{}: {}\n", one.name, one.value);
            counters.insert(one.name.to_string(), one.value.into());
        }
        objects.push(json!({"name": name, "counters": counters}));
    }
    Ok(tell(
        json,
        &text,
        &json!({"kind": "xstats", "ports": objects}),
    )?)
}

fn show_info(ports: &[(String, &Vsi)], json: bool) -> Done {
    let (mut text, mut objects) = (String::new(), Vec::new());
    for (name, vsi) in ports {
        let link = vsi.port().link()?;
        let (mac, number) = (crate::mac::Mac(vsi.mac()).to_string(), vsi.number());
        text += &match name.contains('.') {
            true => format!("VSI {name}: address {mac}, number {number}\n"),
            false => format!("port {name}: address {mac}, VSI {number}\n"),
        };
        let speed = link.megabits_per_second.filter(|_| link.up);
        text += &match speed {
            Some(speed) => format!("link up, {speed} Mb/s\n"),
            None if link.up => "link up\n".to_owned(),
            None => "link down\n".to_owned(),
        };
        objects.push(json!({
            "name": name, "address": mac, "vsi": number,
            "link_up": link.up, "megabits_per_second": speed,
        }));
    }
    Ok(tell(
        json,
        &text,
        &json!({"kind": "info", "ports": objects}),
    )?)
}

/// The way of packets: for each port or VSI its mode, the one that its packets leave by, and the
/// thread of each queue.
fn show_config(shared: &Shared, json: bool) -> Done {
    let layout = shared.layout();
    let (stations, threads) = (layout.stations(), layout.threads());
    let mut text = format!("{threads} threads, {} packets a burst\n", shared.burst());
    let mut objects = Vec::new();
    for (index, station) in stations.iter().enumerate() {
        let what = if station.place == 0 { "port" } else { "VSI" };
        let pair = stations.get(station.pair).map(|pair| pair.name());
        let of_queue = |queue| format!("{queue} on thread {}", layout.thread_of(queue));
        let queues: Vec<_> = (0..station.queues).map(of_queue).collect();
        let of = |queue| layout.thread_of(queue);
        let (name, device) = (station.name(), layout.device(index));
        let (mode, pair) = (shared.mode(station.port).name(), pair.unwrap_or_default());
        let queues = queues.join(", ");
        text += &format!("{what} {name} ({device}): {mode}, to {pair}; queue {queues}\n");
        objects.push(json!({
            "name": name, "device": device, "mode": mode, "to": pair,
            "threads_of_queues": (0..station.queues).map(of).collect::<Vec<_>>(),
        }));
    }
    let object = json!({
        "kind": "config", "threads": threads, "burst": shared.burst(), "ports": objects,
    });
    Ok(tell(json, &text, &object)?)
}

fn modes() -> String {
    Mode::ALL.map(Mode::name).join(", ")
}

fn find<'r>(running: &'r Running<'_>, name: &str) -> Done<&'r Vsi> {
    running.find(name).map_err(Wrong::Line)
}

/// The port or VSI of a name, or all ports.
fn find_all<'r>(running: &'r Running<'_>, name: &str) -> Done<Vec<(String, &'r Vsi)>> {
    let names: Vec<String> = match name {
        "all" => (0..running.count()).map(|port| port.to_string()).collect(),
        name => vec![name.to_owned()],
    };
    let found = names.into_iter().map(|name| {
        let vsi = find(running, &name)?;
        Ok((name, vsi))
    });
    found.collect()
}
