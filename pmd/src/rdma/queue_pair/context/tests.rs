use super::*;

fn attributes() -> Attributes {
    Attributes {
        kind: QueuePairType::RoceReliableConnected,
        queue_key: 0,
        protection_domain: 0x2_0001,
        completion_context: CompletionContext::new(5, 1),
        send_address: 0x1_0000_0000,
        receive_address: 0x1_0001_0000,
        send_size_code: 4,
        receive_size_code: 3,
        receive_element_code: 0,
        send_queue_number: 7,
        receive_queue_number: 8,
        local_address: "10.0.0.1".parse().unwrap(),
        mac: [2, 0, 0, 0, 0, 1],
        path_mtu: 4096,
        vlan_tag: None,
        start_psn: 0x12_3456,
        retries: 7,
        receiver_not_ready_retries: 6,
        retransmission_timeout: 5,
        outbound_reads: 32,
        inbound_reads: 32,
        access: crate::rdma::Access::ALL,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        queue_set_handle: 9,
    }
}

fn peer(address: &str) -> Endpoint {
    Endpoint {
        queue_pair: 77,
        start_psn: 0x65_4321,
        address: address.parse().unwrap(),
        mac: [2, 0, 0, 0, 0, 2],
        path_mtu: 1024,
    }
}

#[test]
fn the_path_mtu_is_the_smaller_one_and_sequence_numbers_go_where_they_belong() {
    let path = Path {
        peer: peer("10.0.0.2"),
        arp_index: 3,
    };
    let context = attributes().context(5, Some(&path));
    assert_eq!(context.send_mss, 1024);
    assert_eq!(context.psn_next, 0x12_3456);
    assert_eq!(context.psn_unacknowledged, 0x12_3456);
    assert_eq!(context.expected_psn, 0x65_4321);
    assert_eq!(context.destination_qp, 77);
    assert_eq!((context.arp_index, context.remote_endpoint_index), (3, 3));
    assert_eq!(context.destination_ip, 0x0A00_0002);
    assert!(context.ipv4);
}

#[test]
fn the_context_of_datagrams_names_no_path() {
    let mut attributes = Attributes {
        vlan_tag: Some(0x6005),
        traffic_class: 0x20,
        flow_label: 0x1_2345,
        ..attributes()
    };
    let connected = attributes.context(5, None);
    attributes.kind = QueuePairType::RoceUnreliableDatagram;
    for local in ["10.0.0.1", "fe80::1"] {
        attributes.local_address = local.parse().unwrap();
        let datagrams = attributes.context(5, None);
        // Every other field is that of a connection.
        let expected = RoceQueuePairContext {
            local_ip: 0,
            ipv4: false,
            insert_vlan: false,
            vlan_tag: 0,
            ttl: 0,
            tos: 0,
            flow_label: 0,
            source_port: 0xC000,
            ..connected
        };
        assert_eq!(datagrams, expected, "{local}");
    }
}

#[test]
fn the_encoded_context_has_no_undefined_bits() {
    let path = Path {
        peer: peer("10.0.0.2"),
        arp_index: 3,
    };
    let words = attributes().context(5, Some(&path)).encode();
    assert_eq!(RoceQueuePairContext::reserved_bits(&words), [0; 32]);
}

#[test]
fn a_peer_of_the_other_address_family_is_refused() {
    let error = attributes().check_peer(&peer("fe80::2")).unwrap_err();
    assert!(matches!(error, RdmaError::AddressFamily { .. }), "{error}");
}

#[test]
fn a_peer_with_an_impossible_mtu_is_refused() {
    let peer = Endpoint {
        path_mtu: 1500,
        ..peer("10.0.0.2")
    };
    let error = attributes().check_peer(&peer).unwrap_err();
    assert_eq!(error, RdmaError::Mtu { given: 1500 });
}

#[test]
fn source_ports_are_in_the_dynamic_range_and_differ_between_connections() {
    let ports: std::collections::BTreeSet<u16> =
        (3..40).map(|number| source_port(0, number, 91)).collect();
    assert!(ports.iter().all(|port| *port >= 0xC000));
    assert!(ports.len() > 30);
    // The published value of flow label 1.
    assert_eq!(source_port(1, 0, 0), 0xC001);
}
