//! Errors cross threads, name the remedy, and stay short in `{:?}`.

use ringside::prelude::*;
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(OpenError: Send, Sync, std::error::Error);
assert_impl_all!(ringside::driver::rdma::RdmaError: Send, Sync, std::error::Error);
assert_impl_all!(ringside::driver::rdma::PostError: Send, Sync, std::error::Error);
assert_impl_all!(ringside::driver::rdma::ConnectError: Send, Sync, std::error::Error);
assert_impl_all!(ringside::driver::rdma::RegisterError: Send, Sync, std::error::Error);
assert_impl_all!(ringside::driver::rdma::DeregisterError: Send, Sync, std::error::Error);
assert_impl_all!(Device: Send, Sync);

#[test]
fn a_text_that_is_no_address_is_refused_with_the_three_forms() {
    let refused = ringside::open("eth0", &Config::default())
        .unwrap_err()
        .to_string();
    for form in ["eth0", "0000:3b:00.0", "vfio-user:", "model:N"] {
        assert!(refused.contains(form), "{refused}");
    }
}

#[test]
fn a_function_beyond_the_model_is_refused_with_both_numbers() {
    let refused = ringside::open("model:7", &Config::default())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("model:7"), "{refused}");
    assert!(refused.contains("2 functions"), "{refused}");
    assert!(refused.contains("at least 8"), "{refused}");
}

/// Code may not set values that a file may not set.
#[test]
fn a_configuration_made_in_code_is_refused_by_key() {
    type Change = fn(&mut Config);
    let cases: [(&str, Change); 8] = [
        ("link.mtu = 0", |config| config.link.mtu = 0),
        ("link.mtu = 100000", |config| config.link.mtu = 100_000),
        ("link.mtu = 1500: rdma.path_mtu = 4096", |config| {
            config.link.mtu = 1500;
        }),
        ("rdma.queue_pairs = 4294967295", |config| {
            config.rdma.queue_pairs = u32::MAX;
        }),
        ("model.functions = 0", |config| config.model.functions = 0),
        ("network.addresses = 9 addresses", |config| {
            let all = (1..=9).map(|host| format!("10.5.0.{host}/24").parse().unwrap());
            config.network.addresses = all.collect();
        }),
        ("network.addresses = 10.5.0.1/24", |config| {
            config.network.addresses = vec!["10.5.0.1/24".parse().unwrap(); 2];
        }),
        ("network.gateways = 10.5.0.3", |config| {
            config.network.addresses = vec!["10.5.0.1/24".parse().unwrap()];
            let both = ["10.5.0.2", "10.5.0.3"];
            config.network.gateways = both.map(|one| one.parse().unwrap()).into();
        }),
    ];
    for (key, change) in cases {
        let mut config = Config::default();
        config.rdma.path_mtu = ringside::config::PathMtu::Bytes4096;
        config.link.mtu = 9000;
        change(&mut config);
        // A function that no other test opens: a case that is not refused would be busy at most.
        let error = ringside::open("model:0", &config).unwrap_err();
        assert!(matches!(error, OpenError::Config(_)), "{key}: {error}");
        assert!(error.to_string().contains(key), "{key}: {error}");
    }
}

#[test]
fn a_socket_that_is_not_there_is_refused_with_its_path() {
    let refused = ringside::open("vfio-user:/nowhere/e810.sock", &Config::default());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("/nowhere/e810.sock"), "{refused}");
}

/// One test, because a function of this process's model has one owner at a time.
#[test]
fn functions_share_one_model_have_one_owner_and_open_again() {
    for _ in 0..2 {
        let left = ringside::open("model:0", &Config::default()).unwrap();
        let right = ringside::open("model:1", &Config::default()).unwrap();
        let (one, two) = (left.model().unwrap(), right.model().unwrap());
        assert!(std::ptr::eq(one, two));
        let refused = ringside::open("model:0", &Config::default())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("model:0 is open already"), "{refused}");
        assert!(left.shutdown().failures.is_empty());
        assert!(right.shutdown().failures.is_empty());
    }
    let mut config = Config::default();
    config.rdma.queue_pairs = 262_141;
    config.rdma.completion_queues = 524_285;
    config.rdma.memory_regions = 8_388_607;
    let error = ringside::open("model:0", &config).unwrap_err();
    assert!(matches!(error, OpenError::BringUp(_)), "{error}");
    let shown = format!("{error:?}");
    assert!(shown.len() <= 2000, "{} characters: {shown}", shown.len());
    assert!(ringside::open("model:0", &Config::default()).is_ok());
}

// A queue belongs to one core at a time: it may move to another thread, and is not shared.
assert_impl_all!(ringside::lan::ReceiveQueue: Send);
assert_impl_all!(ringside::lan::TransmitQueue: Send);
assert_not_impl_any!(ringside::lan::ReceiveQueue: Sync);
assert_not_impl_any!(ringside::lan::TransmitQueue: Sync);
assert_impl_all!(ringside::driver::rdma::QueuePair: Send);
assert_not_impl_any!(ringside::driver::rdma::QueuePair: Sync);
assert_impl_all!(ringside::driver::rdma::CompletionQueue: Send);
assert_not_impl_any!(ringside::driver::rdma::CompletionQueue: Sync);
