use super::*;

#[test]
fn an_ipv6_route_is_read_from_the_first_byte() {
    let mut bytes = [0; GLOBAL_ROUTE_BYTES];
    bytes[..8].copy_from_slice(&[0x6A, 0xB1, 0x23, 0x45, 0, 20, 17, 63]);
    bytes[8..24].copy_from_slice(&[0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes[24..].copy_from_slice(&[0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let route = Route {
        source: "fe80::1".parse().unwrap(),
        destination: "ff02::2".parse().unwrap(),
        traffic_class: 0xAB,
        flow_label: 0x1_2345,
        hop_limit: 63,
    };
    assert_eq!(Route::parse(&bytes, false), Some(route));
    assert_eq!(Route::parse(&bytes, true), None);
}

#[test]
fn an_ipv4_route_is_read_from_byte_20_and_the_bytes_before_it_mean_nothing() {
    let mut bytes = [0x61; GLOBAL_ROUTE_BYTES];
    bytes[20..].copy_from_slice(&[
        0x45, 0x0C, 0, 60, 1, 2, 0x40, 0, 62, 17, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    let route = Route {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        traffic_class: 0x0C,
        flow_label: 0,
        hop_limit: 62,
    };
    assert_eq!(Route::parse(&bytes, true), Some(route));
}

#[test]
fn bytes_that_are_no_header_of_the_version_are_no_route() {
    assert_eq!(Route::parse(&[0; GLOBAL_ROUTE_BYTES], true), None);
    assert_eq!(Route::parse(&[0; GLOBAL_ROUTE_BYTES], false), None);
    assert_eq!(Route::parse(&[0xFF; GLOBAL_ROUTE_BYTES], true), None);
}
