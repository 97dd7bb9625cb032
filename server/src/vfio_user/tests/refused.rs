//! Accesses outside of what a client has mapped.

use super::*;
use ringside_bus::Iova;
use ringside_bus::vfio_user::message::{DmaTransfer, KIND_COMMAND, RegionAccess};

/// Sets bus mastering in the command register.
fn may_touch_memory(raw: &mut Raw) {
    let access = RegionAccess {
        offset: 4,
        region: 7,
        count: 2,
        data: &[4, 0],
    };
    raw.ask(Command::RegionWrite.code(), &access.encode(), &[])
        .unwrap();
}

/// A read and a write of the function at unmapped addresses.
fn access(rig: &Rig) {
    let refused = rig.with(|world| {
        let space = world.space(0).unwrap();
        let read = space.read(Iova(0x4_0000), &mut [0; 16]);
        (
            read.is_err(),
            space.write(Iova(0x5_0010), b"written").is_err(),
        )
    });
    assert_eq!(refused, (true, true));
}

#[test]
fn refused_accesses_are_repeated_through_the_client_if_requested() {
    let rig = Rig::start(1, |settings| settings.refused_through_client = true);
    let mut raw = rig.negotiated(0);
    may_touch_memory(&mut raw);
    for round in 0..2 {
        access(&rig);
        for (command, address, count, data) in [
            (Command::DmaRead, 0x4_0000, 4, &b""[..]),
            (Command::DmaWrite, 0x5_0010, 7, b"written"),
        ] {
            let question = raw.reply();
            let header = question.header;
            assert_eq!(header.flags.kind(), KIND_COMMAND, "{command:?}");
            assert_eq!(header.command, command.code());
            let expected = DmaTransfer {
                address,
                count,
                data: data.to_vec(),
            };
            assert_eq!(DmaTransfer::decode(&question.body).unwrap(), expected);
            // Refused as by an IOMMU, or answered: neither has an effect.
            let answer = match round {
                0 => header.refusal(14),
                _ => header.reply(&question.body),
            };
            raw.send(answer, &[]);
        }
    }
    // The limit for one client.
    for _ in 0..300 {
        access(&rig);
    }
    let first = raw.reply();
    assert_eq!(first.header.command, Command::DmaRead.code());
    let mut more = 1;
    let question = RegionAccess {
        offset: 0,
        region: 7,
        count: 2,
        data: &[],
    };
    raw.send(
        Header::command(9, Command::RegionRead, false, &question.encode()),
        &[],
    );
    while raw.reply().header.command != Command::RegionRead.code() {
        more += 1;
    }
    assert!((1..=252).contains(&more), "{more} more");
}

#[test]
fn refused_accesses_are_not_sent_to_clients_by_default() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    may_touch_memory(&mut raw);
    access(&rig);
    // The next message is the answer to this.
    may_touch_memory(&mut raw);
}
