//! The end of a driver's admin queue, and resets before its beginning.

use super::client::{Client, none};
use crate::faults::Fault;
use crate::reset_kind::ResetKind;
use ringside_spec::lan::admin::generic::DriverVersion;
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::registers::control_queues::ADMIN_SEND;
use ringside_spec::lan::registers::reset;
use std::time::Duration;

/// A doorbell of a queue pair that does not exist.
const STRAY: u64 = ringside_spec::rdma::registers::WQE_ALLOCATE;

/// A client after a reset that it has not noticed yet.
fn after(reset: ResetKind) -> Client {
    let client = Client::ready();
    client.inject(Fault::Reset(reset));
    client.pass(Duration::from_millis(20));
    client
}

/// Sets the admin queue up anew: the client is excused until it clears its configuration.
fn assert_excused_until_it_begins_anew(mut client: Client) {
    client.restart_rings();
    client.direct(Opcode::GetVersion, &none()).ok();
    client.write(STRAY, 5);
    assert_eq!(client.breach_names(), [""; 0]);
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    client.write(STRAY, 5);
    let breach = "doorbell of a queue pair that does not exist";
    assert_eq!(client.breach_names(), [breach]);
}

/// Linux's driver does no reset of the function after one of the firmware.
#[test]
fn a_driver_is_excused_after_a_reset_of_the_firmware_until_it_begins_anew() {
    let client = after(ResetKind::Firmware);
    client.write(ADMIN_SEND.length, 0);
    assert_excused_until_it_begins_anew(client);
}

#[test]
fn a_driver_that_has_set_its_queue_up_anew_knows_of_the_reset_before() {
    let mut client = after(ResetKind::Core);
    // Sent before it noticed.
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    client.write(STRAY, 5);
    assert_eq!(client.breach_names(), [""; 0]);
    client.stop_rings();
    assert_excused_until_it_begins_anew(client);
}

/// All drivers reset the function before they set the queue up.
#[test]
fn a_goodbye_is_due_from_a_driver_that_was_served() {
    let reset = |client: &Client| {
        let control = reset::FunctionControl::ZERO.with_software_reset(true);
        client.write(reset::FUNCTION_CONTROL, control.0);
        client.pass(Duration::from_millis(20));
    };
    for refused in [Opcode::GetVersion, Opcode::DriverVersion] {
        let mut client = Client::claimed();
        reset(&client);
        client.start_rings();
        let opcode = refused.code();
        client.inject(Fault::AdminCommandFails { opcode, code: 5 });
        let version = client.direct(Opcode::GetVersion, &none());
        if version.descriptor.return_code() == ReturnCode::Ok {
            client.give(Opcode::DriverVersion, &DriverVersion::zeroed(), b"1");
        }
        client.write(ADMIN_SEND.length, 0);
        assert_eq!(client.breach_names(), [""; 0], "it gives up");
    }
    let mut client = Client::claimed();
    reset(&client);
    client.start_rings();
    client.direct(Opcode::GetVersion, &none()).ok();
    client.write(ADMIN_SEND.length, 0);
    let breach = "admin queue switched off without a queue shutdown";
    assert_eq!(client.breach_names(), [breach]);
}
