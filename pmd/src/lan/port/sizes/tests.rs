use super::*;

fn with(queues: usize, descriptors: u16, buffers: u32) -> PortSettings {
    PortSettings {
        receive_queues: queues,
        receive_descriptors: descriptors,
        pool: PoolSettings {
            buffers,
            ..PoolSettings::default()
        },
        ..PortSettings::default()
    }
}

fn refusal(settings: &PortSettings) -> String {
    check(settings).expect_err("refused").to_string()
}

#[test]
fn a_pool_too_small_for_the_receive_queues_is_refused_with_what_it_takes() {
    assert_eq!(check(&with(4, 1024, 256)), Ok(()));
    assert_eq!(
        refusal(&with(4, 1024, 255)),
        "a pool of 255 buffers is too small for 4 receive queues: set PortSettings::pool.buffers to \
         256 or more, or choose fewer receive_queues"
    );
    assert!(refusal(&with(1, 64, 5)).contains("to 64 or more"));
}

#[test]
fn a_pool_that_does_not_fill_the_rings_is_divided_among_them() {
    // A quarter is left to send from, or a transmit ring.
    assert_eq!(share(&with(4, 1024, 300)), (300 - 75) / 4);
    assert_eq!(share(&with(1, 1024, 64)), 48);
    assert_eq!(share(&with(8, 1024, 8191)), (8191 - 1024) / 8);
    let short = PortSettings {
        transmit_descriptors: 64,
        ..with(4, 1024, 300)
    };
    assert_eq!(share(&short), (300 - 64) / 4);
}

#[test]
fn the_default_pool_fills_the_rings_of_any_number_of_queues() {
    for (receive_queues, transmit_queues) in
        (1..=64).flat_map(|one| [(one, 1), (one, one), (1, one)])
    {
        let settings = PortSettings {
            receive_queues,
            transmit_queues,
            ..PortSettings::default()
        };
        let share = share(&settings);
        assert!(
            share >= settings.receive_descriptors,
            "{receive_queues}: {share}"
        );
    }
}

#[test]
fn the_default_pool_grows_with_the_rings_and_one_that_was_chosen_does_not() {
    let default = PoolSettings::default();
    let few = PortSettings::default();
    assert_eq!(pool(&few), default);
    let many = PortSettings {
        receive_queues: 16,
        transmit_queues: 16,
        ..PortSettings::default()
    };
    assert_eq!(check(&many), Ok(()));
    assert_eq!(pool(&many).buffers, 2 * 16 * 1024 + 16 * 128 + 1024);
    assert_eq!(pool(&with(4, 64, 300)).buffers, 300);
}

#[test]
fn sizes_out_of_range_are_named_with_their_range() {
    let none = PortSettings {
        receive_queues: 0,
        ..PortSettings::default()
    };
    assert_eq!(refusal(&none), "receive queues 0: choose 1 to 64");
    for wrong in [0, 32, 65, 8192] {
        let settings = PortSettings {
            transmit_descriptors: wrong,
            ..PortSettings::default()
        };
        let text = format!("transmit descriptors {wrong}: choose a multiple of 32, 64 to 8160");
        assert_eq!(refusal(&settings), text);
        assert!(refusal(&with(1, wrong, 8192)).starts_with("receive descriptors"));
    }
}
