use super::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

const MAC: MacAddress = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

#[test]
fn link_local_address_turns_the_universal_bit_and_inserts_fffe() {
    assert_eq!(
        link_local(MAC),
        "fe80::11:22ff:fe33:4455".parse::<Ipv6Addr>().unwrap()
    );
}

#[test]
fn an_ipv4_address_is_the_low_word() {
    assert_eq!(as_number(IpAddr::V4(private_address(MAC))), 0x0A33_4455);
}

#[test]
fn the_automatic_address_is_none_of_the_ends_of_its_network() {
    for (last, own) in [(0, "10.0.0.1"), (0xFF, "10.255.255.254")] {
        let address = private_address([2, 0, 0, last, last, last]);
        assert_eq!(address.to_string(), own);
    }
}

#[test]
fn an_entry_is_told_once_and_taken_back_with_its_last_user() {
    let mut random = StdRng::seed_from_u64(1);
    let mut table = ArpTable::new(4);
    let ArpChange::Tell(index) = table.take(MAC, &mut random).unwrap() else {
        panic!("a new address has to be told");
    };
    assert_ne!(index, 0);
    assert_eq!(
        table.take(MAC, &mut random).unwrap(),
        ArpChange::Nothing(index)
    );
    assert_eq!(table.give(MAC), Some(ArpChange::Nothing(index)));
    assert_eq!(table.give(MAC), Some(ArpChange::Tell(index)));
    assert_eq!(table.give(MAC), None);
}

#[test]
fn a_mac_address_follows_from_a_link_local_address_made_of_it() {
    let mac = [0xB0, 0xEE, 0x00, 0x11, 0x22, 0x33];
    let address = link_local(mac);
    assert_eq!(mac_of_link_local(address), Some(mac));
    assert_eq!(mac_of_link_local("fe80::1".parse().unwrap()), None);
    assert_eq!(
        mac_of_link_local("2001:db8::b2ee:ff:fe11:2233".parse().unwrap()),
        None
    );
}
