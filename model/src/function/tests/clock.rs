//! The device's clock, driven by hand.

use crate::firmware::tests::client::Client;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::neighbour::{NeighbourRequest, READ_BYTES, operation};
use ringside_spec::lan::registers::clock::{
    EXECUTE, NOMINAL_INCREMENT, TIMER_COMMAND, TIMER_ENABLE, TIMER_EXECUTE, TIMER_INCREMENT,
    TIMER_NEW_INCREMENT, TIMER_SEMAPHORE, TIMER_TIME, phy,
};
use ringside_spec::lan::registers::reset::{RESET_TRIGGER, ResetTrigger};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Sets the increment.
const SET_INCREMENT: u32 = 2;

/// Adjusts the time.
const ADJUST: u32 = 4;

pub(super) fn write(client: &mut Client, register: u32, value: u32) -> Result<u32, ReturnCode> {
    let message = NeighbourRequest::to_phy(operation::WRITE, register, value);
    client.ask_neighbour(message.as_bytes())
}

pub(super) fn read(client: &mut Client, register: u32) -> Result<u32, ReturnCode> {
    let message = NeighbourRequest::to_phy(operation::READ, register, 0);
    client.ask_neighbour(&message.as_bytes()[..READ_BYTES])
}

/// Prepares the increment in source timer and PHY, both enabled.
fn prepare(client: &mut Client) {
    client.write(TIMER_ENABLE.at(0), 1);
    let [low, high] = TIMER_NEW_INCREMENT;
    client.write(low.at(0), NOMINAL_INCREMENT as u32);
    client.write(high.at(0), (NOMINAL_INCREMENT >> 32) as u32);
    client.write(TIMER_COMMAND, SET_INCREMENT);
    write(client, phy::enable(0), 1).unwrap();
    write(client, phy::new_increment_low(0), NOMINAL_INCREMENT as u32).unwrap();
    write(client, phy::new_increment_high(0), 1).unwrap();
    write(client, phy::COMMAND, SET_INCREMENT).unwrap();
}

/// Starts source timer and PHY at the nominal pace.
pub(super) fn start(client: &mut Client) {
    prepare(client);
    execute(client);
}

/// Has source timer and PHY carry out their commands, under the semaphore.
fn execute(client: &Client) {
    assert_eq!(client.read(TIMER_SEMAPHORE), 0, "taken");
    client.write(TIMER_EXECUTE, EXECUTE);
    client.write(TIMER_SEMAPHORE, 0);
}

pub(super) fn time(client: &Client) -> u32 {
    client.read(TIMER_TIME[1].at(0))
}

#[test]
fn a_timer_runs_once_its_command_was_executed_and_a_reset_of_the_device_stops_it() {
    let mut client = Client::ready();
    prepare(&mut client);
    assert_eq!(read(&mut client, phy::new_increment_high(0)), Ok(1));
    client.pass(Duration::from_millis(1));
    assert_eq!(time(&client), 0, "only prepared");
    assert_eq!(client.read(TIMER_SEMAPHORE), 0, "taken");
    assert_eq!(client.read(TIMER_SEMAPHORE), 1, "by this function");
    client.write(TIMER_EXECUTE, EXECUTE);
    client.write(TIMER_SEMAPHORE, 0);
    assert_eq!(client.read(TIMER_INCREMENT[1].at(0)), 1);
    let before = time(&client);
    client.pass(Duration::from_millis(1));
    assert!((900_000..1_100_000).contains(&(time(&client) - before)));
    assert_eq!(client.breach_names(), [""; 0]);
    client.write(RESET_TRIGGER, ResetTrigger::ZERO.with_core(true).0);
    client.pass(Duration::from_millis(10));
    assert_eq!(client.read(TIMER_ENABLE.at(0)), 0);
    assert_eq!(time(&client), 0);
}

#[test]
fn source_timer_and_phy_are_adjusted_as_linux_does_it() {
    let mut client = Client::ready();
    start(&mut client);
    client.pass(Duration::from_millis(700));
    for nanoseconds in [1_000_000, -500_000_000_i32] {
        let before = time(&client);
        let [low, high] = TIMER_NEW_INCREMENT;
        client.write(low.at(0), 0);
        client.write(high.at(0), nanoseconds as u32);
        write(&mut client, phy::new_increment_low(0), 0).unwrap();
        write(&mut client, phy::new_increment_high(0), nanoseconds as u32).unwrap();
        client.write(TIMER_COMMAND, ADJUST);
        write(&mut client, phy::COMMAND, ADJUST).unwrap();
        execute(&client);
        let moved = time(&client).wrapping_sub(before) as i32;
        assert!((moved - nanoseconds).abs() < 1_000_000, "{moved}");
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn a_driver_reads_and_clears_the_stamps_of_its_own_port_only() {
    let mut client = Client::ready();
    let last = phy::TRANSMIT_STAMPS - 1;
    assert_eq!(read(&mut client, phy::transmit_stamp_high(0, last)), Ok(0));
    assert_eq!(write(&mut client, phy::transmit_stamp_low(0, 0), 0), Ok(0));
    assert_eq!(client.breach_names(), [""; 0]);
    for beyond in [
        phy::transmit_stamp_low(0, last + 1),
        phy::transmit_stamp_low(1, 0),
        phy::transmit_stamp_low(0, 0) + 1,
    ] {
        assert_eq!(read(&mut client, beyond), Err(ReturnCode::Invalid));
    }
}

/// As DPDK starts and sets its clock.
#[test]
fn timer_commands_without_the_semaphore_are_remarked() {
    let mut client = Client::ready();
    prepare(&mut client);
    client.write(TIMER_EXECUTE, EXECUTE);
    client.pass(Duration::from_millis(1));
    assert!(time(&client) > 0, "it runs");
    assert_eq!(client.breach_names(), [""; 0]);
    let remarks = client.world.with(|world| world.remarks(0));
    let kinds: Vec<_> = remarks.iter().map(|remark| remark.kind).collect();
    assert_eq!(kinds, ["timer command without the semaphore"]);
}

#[test]
fn a_timer_command_without_preparation_is_a_breach() {
    let client = Client::ready();
    assert_eq!(client.read(TIMER_SEMAPHORE), 0);
    client.write(TIMER_COMMAND, SET_INCREMENT);
    client.write(TIMER_EXECUTE, EXECUTE);
    let expected = ["timer command that cannot be carried out"];
    assert_eq!(client.breach_names(), expected);
}

/// Drivers add four bytes for the number of their function, or do not.
#[test]
fn a_function_reaches_the_semaphore_at_the_offset_of_any() {
    let mut client = Client::ready();
    for function in 0..8 {
        let own = TIMER_SEMAPHORE + 4 * function;
        assert_eq!(client.read(own), 0, "{function}");
        assert_eq!(client.read(TIMER_SEMAPHORE), 1);
        assert_eq!(client.read(own), 1);
        prepare(&mut client);
        client.write(TIMER_EXECUTE, EXECUTE);
        client.write(own, 0);
    }
    assert_eq!(client.read(TIMER_SEMAPHORE + 4 * 8), 0, "none");
    assert_eq!(client.read(TIMER_SEMAPHORE + 4 * 8), 0, "none");
    assert_eq!(client.breach_names(), [""; 0]);
    assert_eq!(client.world.with(|world| world.remarks(0)), []);
}

#[test]
fn messages_to_the_phy_that_are_not_possible_are_refused() {
    let mut client = Client::ready();
    let sound = NeighbourRequest::to_phy(operation::WRITE, phy::COMMAND, 0);
    let wrong = [
        NeighbourRequest {
            destination: 9,
            ..sound
        },
        NeighbourRequest {
            operation: 7,
            ..sound
        },
        NeighbourRequest::to_phy(operation::WRITE, 0x0300_0000, 0),
    ];
    for message in &wrong {
        assert_eq!(
            client.ask_neighbour(message.as_bytes()),
            Err(ReturnCode::Invalid)
        );
    }
    assert_eq!(
        client.ask_neighbour(&sound.as_bytes()[..READ_BYTES]),
        Err(ReturnCode::Invalid),
        "a write without a value"
    );
    assert_eq!(client.ask_neighbour(sound.as_bytes()), Ok(0));
    let expected = ["message to the PHY that is not possible"];
    assert_eq!(client.breach_names(), expected);
}
