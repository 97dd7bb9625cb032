//! LED, pause frames, error correction, module.

use crate::rig::Rig;
use ringside_pmd::lan::PortError;
use ringside_pmd::lan::port::{ErrorCorrection, Pause};

#[test]
fn the_module_is_read_from_its_memory() {
    let rig = Rig::new();
    let module = rig.a.open.port.module().expect("readable").expect("there");
    assert_eq!(
        (
            module.identifier,
            module.vendor.as_str(),
            module.part_number.as_str()
        ),
        (0x11, "ringside", "MODEL-100G-SR4")
    );
    assert_eq!(module.serial_number, "0001");
    assert_eq!(module.temperature_celsius, Some(35.5));
    assert_eq!(module.supply_volts, Some(3.3));
    rig.finish();
}

#[test]
fn pause_frames_are_as_asked_and_go_back_with_the_port() {
    let rig = Rig::new();
    let port = rig.a.open.port.clone();
    let found = port.pause().expect("readable");
    let wanted = Pause {
        transmit: !found.transmit,
        receive: found.receive,
    };
    port.set_pause(wanted).expect("possible");
    assert_eq!(port.pause(), Ok(wanted));
    let other = Pause {
        transmit: found.transmit,
        receive: !found.receive,
    };
    port.set_pause(other).expect("possible");
    assert_eq!(port.pause(), Ok(other));
    drop(port);
    // Shutdown reports no failure, and the device is as it was found.
    rig.finish();
}

#[test]
fn error_correction_is_as_asked_and_a_missing_code_is_refused_by_name() {
    let rig = Rig::new();
    let port = rig.a.open.port.clone();
    assert_eq!(port.error_correction(), Ok(ErrorCorrection::Automatic));
    for wanted in [
        ErrorCorrection::ReedSolomon,
        ErrorCorrection::Off,
        ErrorCorrection::Automatic,
    ] {
        port.set_error_correction(wanted).expect("possible");
        assert_eq!(port.error_correction(), Ok(wanted));
    }
    let refused = port.set_error_correction(ErrorCorrection::BaseR);
    let Err(PortError::Invalid { value, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(value, "BaseR");
    assert_eq!(port.error_correction(), Ok(ErrorCorrection::Automatic));
    drop(port);
    rig.finish();
}

#[test]
fn the_led_blinks_until_it_is_told_otherwise() {
    let rig = Rig::new();
    let port = rig.a.open.port.clone();
    port.identify(true).expect("an LED");
    port.identify(false).expect("an LED");
    port.identify(true).expect("an LED");
    drop(port);
    rig.finish();
}
