use super::*;

fn query() -> FpmQuery {
    FpmQuery {
        first_segment: 0,
        max_segments: 64,
        max_ceqs: 64,
        hash_multiplier: 2,
        timer_bucket: 512,
        transmit_fifo_block: 4,
        inbound_read_block: 4,
        read_response_block: 4,
        out_of_order_block: 0,
        objects: PerObject::from_fn(|object| match (object, object.size()) {
            (ObjectType::PortBitVector, _) => ObjectLimit {
                max_count: 1,
                size_bytes: 8192,
            },
            (ObjectType::OutOfOrder, _) => ObjectLimit {
                max_count: 0,
                size_bytes: 1,
            },
            (ObjectType::OutOfOrderFreeList, _) => ObjectLimit {
                max_count: 0,
                size_bytes: 4,
            },
            (_, ObjectSize::Fixed(bytes)) => ObjectLimit {
                max_count: 256,
                size_bytes: u64::from(bytes),
            },
            (_, ObjectSize::Reported) => ObjectLimit {
                max_count: 1024,
                size_bytes: 64,
            },
        }),
    }
}

#[test]
fn an_answer_reads_back_as_it_was_written() {
    assert_eq!(FpmQuery::decode(&query().encode()), Ok(query()));
}

#[test]
fn a_size_exponent_that_no_object_can_have_is_refused() {
    let mut words = query().encode();
    words[4] = QueryObject(words[4]).with_size(32).0;
    let object = ObjectType::HashTableEntry;
    assert_eq!(
        FpmQuery::decode(&words),
        Err(FpmQueryError::SizeExponent {
            object,
            exponent: 32
        })
    );
}

#[test]
fn a_block_size_of_zero_is_refused_only_where_blocks_are_used() {
    let mut broken = query();
    broken.inbound_read_block = 0;
    assert_eq!(
        FpmQuery::decode(&broken.encode()),
        Err(FpmQueryError::BlockSizeZero(
            ObjectType::InboundReadFreeList
        ))
    );
    assert_eq!(query().out_of_order_block, 0);
}

#[test]
fn any_buffer_is_decoded_without_panic() {
    for word in 0..BUFFER_WORDS {
        let mut words = query().encode();
        words[word] = u64::MAX;
        let _ = FpmQuery::decode(&words);
        let commit = FpmCommit::decode(&words);
        assert_eq!(commit.0[ObjectType::PortBitVector].count, 1);
    }
}

#[test]
fn kinds_of_objects_are_in_the_order_of_their_numbers() {
    let numbers = ObjectType::ALL.map(ObjectType::index);
    assert!(numbers.is_sorted());
    assert_eq!((numbers[2], numbers[19]), (3, 20), "2 is reserved");
}
