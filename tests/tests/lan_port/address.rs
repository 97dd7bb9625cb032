//! Another MAC address for a port that is open.

use crate::rig::{End, Rig, plain_frame, settings};
use crate::vsis::snapshot;
use ringside_model::Fault;
use ringside_pmd::lan::PortError;
use ringside_spec::lan::admin::{Opcode, ReturnCode};

const ONE: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 1];
const TWO: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 2];

/// True if a frame to `to` comes to `b`.
fn comes(rig: &mut Rig, to: [u8; 6]) -> bool {
    let frame = plain_frame(to, rig.a.mac(), 100, 1);
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    for _ in 0..50 {
        if let Some((_, packet)) = rig.b.poll().pop() {
            assert_eq!(packet.to_vec(), frame);
            return true;
        }
        rig.pass();
    }
    false
}

/// The address that the firmware of `b` has, if it is not the function's own.
fn firmware(rig: &Rig) -> Option<[u8; 6]> {
    rig.world.with(|world| {
        let space = world.space(1).expect("space 1");
        let function = world.function(1).expect("function 1");
        function.snapshot(space).firmware.mac
    })
}

#[test]
fn packets_to_the_new_address_arrive_and_those_to_the_one_before_no_longer() {
    let mut rig = Rig::new();
    let found = rig.b.mac();
    let port = rig.b.open.port.clone();
    assert!(!comes(&mut rig, ONE));
    port.set_address(ONE).expect("possible");
    assert_eq!((port.mac(), firmware(&rig)), (ONE, Some(ONE)));
    assert!(comes(&mut rig, ONE));
    assert!(comes(&mut rig, found), "RDMA goes on using it");
    // The rule of a further address becomes that of the own one.
    port.add_address(TWO).expect("room");
    port.set_address(TWO).expect("possible");
    assert_eq!((port.mac(), firmware(&rig)), (TWO, Some(TWO)));
    assert!(comes(&mut rig, TWO) && !comes(&mut rig, ONE));
    assert_eq!(port.remove_address(TWO), Ok(true), "it was added, too");
    assert_eq!(port.remove_address(TWO), Ok(false), "it is the port's own");
    assert!(comes(&mut rig, TWO));
    port.set_address(found).expect("possible");
    assert_eq!((port.mac(), firmware(&rig)), (found, None));
    assert!(comes(&mut rig, found) && !comes(&mut rig, TWO));
    port.set_address(ONE).expect("possible");
    drop(port);
    // The device has its own address again once the port is closed.
    let Rig { world, a, b } = rig;
    let End { open, device } = b;
    let pool = open.pool.clone();
    drop(open);
    assert_eq!(pool.usage().in_use, 0);
    let open = device.open_port(&settings()).expect("closed before");
    let rig = Rig {
        world,
        a,
        b: End { open, device },
    };
    assert_eq!((rig.b.mac(), firmware(&rig)), (found, None));
    rig.finish();
}

/// An address that the program added stays its own concern, independent of the port's address.
#[test]
fn an_added_address_stays_when_the_port_takes_and_leaves_it() {
    let mut rig = Rig::new();
    let found = rig.b.mac();
    let port = rig.b.open.port.clone();
    for added_first in [true, false] {
        if added_first {
            port.add_address(ONE).expect("room");
            port.set_address(ONE).expect("possible");
        } else {
            port.set_address(ONE).expect("possible");
            port.add_address(ONE).expect("it is in already");
        }
        let setup = port.setup();
        assert_eq!((setup.vsi.addresses, setup.address), (vec![ONE], Some(ONE)));
        port.set_address(TWO).expect("possible");
        assert_eq!(port.setup().vsi.addresses, [ONE]);
        assert!(comes(&mut rig, ONE) && comes(&mut rig, TWO));
        port.set_address(found).expect("possible");
        assert!(comes(&mut rig, ONE) && !comes(&mut rig, TWO));
        assert_eq!(port.remove_address(ONE), Ok(true));
        assert!(!comes(&mut rig, ONE));
    }
    drop(port);
    rig.finish();
}

#[test]
fn an_address_that_is_refused_is_named_and_the_port_keeps_its_own() {
    let mut rig = Rig::new();
    let found = rig.b.mac();
    let port = rig.b.open.port.clone();
    for wrong in [[0; 6], [0xFF; 6], [0x01, 0, 0x5E, 0, 0, 1]] {
        let refused = port.set_address(wrong);
        assert!(matches!(
            refused,
            Err(PortError::Invalid {
                what: "MAC address",
                ..
            })
        ));
    }
    let fault = Fault::AdminCommandFails {
        opcode: Opcode::WriteMac.code(),
        code: ReturnCode::NotPermitted.code().into(),
    };
    rig.world.with(|world| world.inject(1, fault));
    let error = port.set_address(ONE).expect_err("not permitted");
    assert!(matches!(error, PortError::Address { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("02:aa:00:00:00:01") && text.contains("0x0108"),
        "{text}"
    );
    assert_eq!((port.mac(), firmware(&rig)), (found, None));
    assert!(!comes(&mut rig, ONE), "its rule is gone");
    assert!(comes(&mut rig, found));
    rig.world.with(|world| world.clear_faults(1));
    port.set_address(ONE).expect("possible");
    assert!(comes(&mut rig, ONE));
    drop(port);
    rig.finish();
}

#[test]
fn the_address_is_asked_for_again_after_a_recovery_and_goes_when_the_device_closes() {
    let mut rig = Rig::new();
    let own = rig.b.mac();
    rig.b.open.port.set_address(ONE).expect("possible");
    rig.b.device.give_up().expect("in service");
    let setup = rig.b.open.port.setup();
    assert_eq!(setup.address, Some(ONE));
    rig.b.device.recover().expect("back in service");
    let new = rig.b.device.open_port(&settings()).expect("in service");
    drop(std::mem::replace(&mut rig.b.open, new));
    assert_eq!(rig.b.mac(), own, "its own, until another one is asked for");
    rig.b.open.port.restore(&setup).expect("as before");
    assert_eq!(rig.b.mac(), ONE);
    assert!(comes(&mut rig, ONE));
    assert!(comes(&mut rig, own), "RDMA goes on using it");
    let Rig { world, a, b } = rig;
    b.close();
    a.close();
    let left = world.with(|world| {
        let space = world.space(1).expect("space 1");
        world
            .function(1)
            .expect("there")
            .snapshot(space)
            .firmware
            .mac
    });
    assert_eq!(left, None, "the device has its own address again");
}

#[test]
fn the_rule_of_the_address_goes_with_the_port_and_with_the_address() {
    let rig = Rig::new();
    let before = snapshot(&rig);
    let Rig { world, a, mut b } = rig;
    let (port, own) = (b.open.port.clone(), b.mac());
    port.set_address(ONE).expect("possible");
    port.set_address(own).expect("its own");
    assert_eq!(port.setup().address, None);
    port.set_address(ONE).expect("possible");
    drop(port);
    // A port opened again after the former one was closed: nothing of that is left.
    let End { open, device } = b;
    drop(open);
    let open = device.open_port(&settings()).expect("closed before");
    b = End { open, device };
    let rig = Rig { world, a, b };
    assert_eq!(snapshot(&rig).rules, before.rules);
    rig.finish();
}
