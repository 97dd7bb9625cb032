//! The scheduler's tree and its leaves.

use super::client::{Answered, Client, none};
use super::switching::add_vsi_of;
use ringside_spec::lan::admin::lldp::LldpSetLocalMib;
use ringside_spec::lan::admin::queues::{
    AddRdmaQueueSets, AddTransmitQueues, DisableTransmitQueues, DisabledQueue, MoveTransmitQueues,
    RdmaQueueSet, RdmaQueueSetGroup, TransmitQueue, TransmitQueueGroup,
};
use ringside_spec::lan::admin::scheduler::{
    Element, ElementCommand, ElementType, GetTopology, GroupHeader, NO_NODE, Node, PortEts,
    QueryPortEts, RateLimitCommand, RateLimitProfile, SchedulerResources, TopologyBranch,
};
use ringside_spec::lan::admin::vsi::kind;
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::transmit::{TransmitContext, owner};
use zerocopy::IntoBytes;

fn elements(count: u16) -> ElementCommand {
    ElementCommand {
        requested: count.into(),
        ..ElementCommand::zeroed()
    }
}

fn default_tree(client: &mut Client) -> Vec<Node> {
    let answer = client
        .ask(Opcode::GetDefaultTopology, &GetTopology::zeroed(), 4096)
        .ok();
    assert_eq!(
        answer.descriptor.parameters::<GetTopology>().branch_count,
        1
    );
    let branch: TopologyBranch = answer.item(0);
    branch.nodes[..branch.header.count.get().into()].to_vec()
}

pub(super) fn add_nodes(client: &mut Client, parent: u32, count: usize) -> Answered {
    let header = GroupHeader {
        parent: parent.into(),
        count: (count as u16).into(),
        reserved: 0.into(),
    };
    let mut bytes = header.as_bytes().to_vec();
    for _ in 0..count {
        bytes.extend(Node::generic_under(parent).as_bytes());
    }
    client.give(Opcode::AddSchedulerElements, &elements(1), &bytes)
}

fn add_node(client: &mut Client, parent: u32) -> u32 {
    let answer = add_nodes(client, parent, 1).ok();
    assert_eq!(
        answer
            .descriptor
            .parameters::<ElementCommand>()
            .answered
            .get(),
        1
    );
    answer.item::<Node>(GroupHeader::SIZE).node.get()
}

fn delete_node(client: &mut Client, parent: u32, node: u32) -> ReturnCode {
    let mut bytes = parent.to_le_bytes().to_vec();
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(node.to_le_bytes());
    client
        .give(Opcode::DeleteSchedulerElements, &elements(1), &bytes)
        .descriptor
        .return_code()
}

/// Nodes below the entry point, down to the layer of queue groups.
pub(crate) fn branch(client: &mut Client) -> Vec<u32> {
    let mut path = vec![default_tree(client)[2].node.get()];
    for _ in 3..=7 {
        let parent = *path.last().unwrap();
        path.push(add_node(client, parent));
    }
    path
}

#[test]
fn default_tree_is_port_class_entry_and_each_node_can_be_asked_for() {
    let mut client = Client::ready();
    let tree = default_tree(&mut client);
    let kinds: Vec<_> = tree.iter().map(|node| node.element.kind()).collect();
    assert_eq!(
        kinds,
        [
            ElementType::RootPort,
            ElementType::TrafficClass,
            ElementType::EntryPoint
        ]
    );
    assert_eq!(tree[0].parent.get(), NO_NODE);
    for node in &tree {
        let asked = client
            .give(
                Opcode::QuerySchedulerElements,
                &elements(1),
                node.as_bytes(),
            )
            .ok();
        assert_eq!(asked.item::<Node>(0), *node);
    }
    let ets = QueryPortEts {
        port_node: tree[0].node,
        ..QueryPortEts::zeroed()
    };
    let ets: PortEts = client.ask(Opcode::QueryPortEts, &ets, 64).ok().item(0);
    assert_eq!(ets.class_nodes[0], tree[1].node);
    assert_eq!(ets.class_nodes[1].get(), NO_NODE);
    let resources = client
        .ask(Opcode::QuerySchedulerResources, &none(), 320)
        .ok();
    let resources: SchedulerResources = resources.item(0);
    assert_eq!(resources.properties.logical_levels.get(), 9);
    assert!(
        resources
            .layers
            .iter()
            .all(|layer| layer.siblings_max.get() < 128)
    );
}

/// A MIB that gives each priority a class: TLVs for the recommendation, then the configuration.
fn mib(priorities: [u8; 4], shares: [u8; 8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (subtype, priorities) in [(10, [0x77; 4]), (9, priorities)] {
        bytes.extend([127 << 1, 25, 0x00, 0x80, 0xC2, subtype, 8]);
        bytes.extend(priorities);
        bytes.extend(shares);
        bytes.extend([2; 8]);
    }
    bytes
}

fn set_mib(client: &mut Client, bytes: &[u8]) -> ReturnCode {
    let parameters = LldpSetLocalMib {
        length_bytes: (bytes.len() as u16).into(),
        ..LldpSetLocalMib::zeroed()
    };
    let answered = client.give(Opcode::LldpSetLocalMib, &parameters, bytes);
    answered.descriptor.return_code()
}

fn port_ets(client: &mut Client) -> PortEts {
    let root = default_tree(client)[0].node;
    let asked = QueryPortEts {
        port_node: root,
        ..QueryPortEts::zeroed()
    };
    client.ask(Opcode::QueryPortEts, &asked, 64).ok().item(0)
}

#[test]
fn classes_of_the_local_mib_have_nodes_under_which_a_driver_adds_its_own() {
    let mut client = Client::ready();
    let tree = default_tree(&mut client);
    let shares = [40, 0, 60, 0, 0, 0, 0, 0];
    let two = mib([0x00, 0x02, 0x20, 0x00], shares);
    assert_eq!(set_mib(&mut client, &two), ReturnCode::Ok);
    let ets = port_ets(&mut client);
    assert_eq!((ets.valid_classes, ets.share), (0b101, shares));
    let nodes = ets.class_nodes.map(|node| node.get());
    assert_eq!(nodes[0], tree[1].node.get());
    assert!(nodes[2] != NO_NODE && nodes[2] != nodes[0]);
    for class in [1, 3, 4, 5, 6, 7] {
        assert_eq!(nodes[class], NO_NODE, "class {class}");
    }
    let wanted = Node {
        node: nodes[2].into(),
        ..Node::zeroed()
    };
    let found: Node = client
        .give(
            Opcode::QuerySchedulerElements,
            &elements(1),
            wanted.as_bytes(),
        )
        .ok()
        .item(0);
    assert_eq!(found.element.kind(), ElementType::TrafficClass);
    assert_eq!(found.parent, tree[0].node);
    let child = add_node(&mut client, nodes[2]);

    // One class again; the other one stays while it has children, and the driver cannot remove it.
    let one = mib([0; 4], [100, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(set_mib(&mut client, &one), ReturnCode::Ok);
    assert_eq!(port_ets(&mut client).valid_classes, 1);
    assert_eq!(delete_node(&mut client, nodes[2], child), ReturnCode::Ok);
    assert_eq!(set_mib(&mut client, &two), ReturnCode::Ok);
    assert_eq!(port_ets(&mut client).class_nodes[2].get(), nodes[2]);
    assert_eq!(client.breaches(), []);

    let mut cut = two.clone();
    cut.truncate(40);
    assert_eq!(set_mib(&mut client, &cut), ReturnCode::Invalid);
    let beyond = mib([0x09, 0, 0, 0], shares);
    assert_eq!(set_mib(&mut client, &beyond), ReturnCode::Invalid);
    assert_eq!(port_ets(&mut client).valid_classes, 0b101);
}

/// Intel's own records: each eight DSCPs are a class. Five bytes are before the shares.
#[test]
fn classes_of_the_dscp_have_nodes() {
    let mut client = Client::ready();
    let mut bytes = vec![127 << 1, 148, 0xFF, 0xFF, 0xFF, 0x41];
    for last in [80, 64] {
        let map = (0..last).map(|dscp| if dscp < 64 { dscp / 8 } else { 0 });
        bytes.extend(map);
    }
    bytes.extend([127 << 1, 132, 0xFF, 0xFF, 0xFF, 0x42]);
    bytes.extend([0; 128]);
    bytes.extend([127 << 1, 25, 0xFF, 0xFF, 0xFF, 0x43, 8, 0, 0, 0, 0]);
    let shares = [16, 12, 12, 12, 12, 12, 12, 12];
    bytes.extend(shares);
    bytes.extend([2; 8]);
    bytes.extend([127 << 1, 6, 0xFF, 0xFF, 0xFF, 0x44, 8, 0]);
    assert_eq!(set_mib(&mut client, &bytes), ReturnCode::Ok);
    let ets = port_ets(&mut client);
    assert_eq!((ets.valid_classes, ets.share), (0xFF, shares));
    let mut nodes = ets.class_nodes.map(|node| node.get());
    nodes.sort_unstable();
    assert!(
        nodes.windows(2).all(|pair| pair[0] != pair[1]),
        "{nodes:x?}"
    );
    assert!(!nodes.contains(&NO_NODE));

    // A class whose DSCPs all went to another one keeps its share, and its node.
    let mut moved = bytes.clone();
    for class in &mut moved[6..150] {
        *class = if *class == 5 { 4 } else { *class };
    }
    assert_eq!(set_mib(&mut client, &moved), ReturnCode::Ok);
    assert_eq!(port_ets(&mut client).valid_classes, 0xFF);

    moved[6] = 8;
    assert_eq!(set_mib(&mut client, &moved), ReturnCode::Invalid);
    moved.truncate(100);
    assert_eq!(set_mib(&mut client, &moved), ReturnCode::Invalid);
    let one = mib([0; 4], [100, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(set_mib(&mut client, &one), ReturnCode::Ok);
    assert_eq!(port_ets(&mut client).valid_classes, 1);
    assert_eq!(client.breaches(), []);
}

#[test]
fn a_rate_limit_is_kept_and_remarked() {
    let limits: [fn(&mut Element, u16); 3] = [
        |element, profile| element.committed.profile = profile.into(),
        |element, profile| element.excess.profile = profile.into(),
        |element, profile| element.shared_limit = profile.into(),
    ];
    for limit in limits {
        remark_of_a_rate_limit(limit);
    }
}

fn remark_of_a_rate_limit(limit: fn(&mut Element, u16)) {
    let mut client = Client::ready();
    let root = default_tree(&mut client)[0].node;
    let mut node = default_tree(&mut client)[1];
    let configured = |client: &mut Client, node: &Node| {
        client
            .give(
                Opcode::ConfigureSchedulerElements,
                &elements(1),
                node.as_bytes(),
            )
            .ok();
        client.world.with(|world| world.remarks(0))
    };
    assert_eq!(configured(&mut client, &node), []);
    let one = RateLimitCommand {
        count: 1.into(),
        ..RateLimitCommand::zeroed()
    };
    let wanted = RateLimitProfile {
        level: 2,
        encoded: 5.into(),
        ..RateLimitProfile::zeroed()
    };
    let made: RateLimitProfile = client
        .give(Opcode::AddRateLimitProfiles, &one, wanted.as_bytes())
        .ok()
        .item(0);
    limit(&mut node.element, made.profile.get());
    let [remark] = &configured(&mut client, &node)[..] else {
        panic!("one remark");
    };
    assert_eq!(
        remark.kind,
        "transmit rate limit that the model keeps and does not apply"
    );
    assert_eq!(client.breaches(), []);
    assert_eq!(node.parent, root);
}

#[test]
fn nodes_are_added_counted_in_groups_and_deleted_from_the_leaves_up() {
    let mut client = Client::ready();
    let found = client
        .world
        .with(|world| world.snapshot(0))
        .unwrap()
        .firmware
        .scheduler_nodes;
    let path = branch(&mut client);
    let two = add_nodes(&mut client, path[0], 2).ok();
    assert_eq!(
        two.descriptor.parameters::<ElementCommand>().answered.get(),
        1,
        "groups, not nodes"
    );
    for at in [0, 1] {
        let node = two
            .item::<Node>(GroupHeader::SIZE + at * Node::SIZE)
            .node
            .get();
        assert_eq!(delete_node(&mut client, path[0], node), ReturnCode::Ok);
    }
    for pair in path.windows(2).rev() {
        assert_eq!(delete_node(&mut client, pair[0], pair[1]), ReturnCode::Ok);
    }
    assert_eq!(
        client
            .world
            .with(|world| world.snapshot(0))
            .unwrap()
            .firmware
            .scheduler_nodes,
        found
    );
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn wrong_changes_of_the_tree_are_refused_and_named() {
    let mut client = Client::ready();
    let path = branch(&mut client);
    assert_eq!(
        delete_node(&mut client, path[0], path[1]),
        ReturnCode::Invalid
    );
    assert_eq!(
        delete_node(&mut client, path[1], path[1]),
        ReturnCode::NoEntry
    );
    assert_eq!(
        add_nodes(&mut client, 0xDEAD, 1).descriptor.return_code(),
        ReturnCode::NoEntry
    );
    assert_eq!(
        add_nodes(&mut client, path[0], 20).descriptor.return_code(),
        ReturnCode::NoSpace
    );
    let expected = [
        "scheduler node removed that is not under its parent",
        "scheduler node removed while it has children",
        "scheduler node under a parent that does not exist",
    ];
    assert_eq!(client.breach_names(), expected);
}

#[test]
fn queue_sets_and_queues_get_nodes_and_give_them_back() {
    let mut client = Client::ready();
    let path = branch(&mut client);
    let before = client
        .world
        .with(|world| world.snapshot(0))
        .unwrap()
        .firmware;
    let parent = *path.last().unwrap();
    let group = RdmaQueueSetGroup {
        parent: parent.into(),
        count: 1.into(),
        reserved: [0; 2],
    };
    let set = RdmaQueueSet {
        queue_set: 5.into(),
        element: Element::unlimited(),
        ..RdmaQueueSet::zeroed()
    };
    let bytes = [group.as_bytes(), set.as_bytes()].concat();
    let one = AddRdmaQueueSets {
        group_count: 1,
        ..AddRdmaQueueSets::zeroed()
    };
    let answer = client.give(Opcode::AddRdmaQueueSets, &one, &bytes).ok();
    let node = answer
        .item::<RdmaQueueSet>(RdmaQueueSetGroup::SIZE)
        .node
        .get();
    let asked = Node {
        node: node.into(),
        ..Node::zeroed()
    };
    let leaf: Node = client
        .give(
            Opcode::QuerySchedulerElements,
            &elements(1),
            asked.as_bytes(),
        )
        .ok()
        .item(0);
    assert_eq!(
        (leaf.parent.get(), leaf.element.kind()),
        (parent, ElementType::Leaf)
    );
    let group = TransmitQueueGroup {
        parent: parent.into(),
        count: 1,
        reserved: [0; 3],
    };
    let queue = TransmitQueue {
        queue: 0.into(),
        element: Element::unlimited(),
        context: TransmitContext {
            ring_length: 64,
            vsi: 1,
            ..TransmitContext::zeroed()
        }
        .encode(),
        ..TransmitQueue::zeroed()
    };
    let bytes = [group.as_bytes(), queue.as_bytes()].concat();
    let one = AddTransmitQueues {
        group_count: 1,
        ..AddTransmitQueues::zeroed()
    };
    client.give(Opcode::AddTransmitQueues, &one, &bytes).ok();
    let one = DisableTransmitQueues {
        group_count: 1,
        ..DisableTransmitQueues::zeroed()
    };
    let set_number = DisabledQueue::ZERO.with_number(5).with_rdma_queue_set(true);
    for number in [set_number, DisabledQueue::ZERO] {
        let mut bytes = parent.to_le_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend(number.0.to_le_bytes());
        client
            .give(Opcode::DisableTransmitQueues, &one, &bytes)
            .ok();
    }
    let mut after = client
        .world
        .with(|world| world.snapshot(0))
        .unwrap()
        .firmware;
    after.rings = before.rings.clone();
    assert_eq!(after, before);
    // No RDMA engine gave that number.
    let foreign = "RDMA queue set that WORK_SCHED_NODE did not give";
    assert_eq!(client.breach_names(), [foreign]);
}

/// Adds a transmit queue under a node and returns its leaf.
fn add_queue(client: &mut Client, parent: u32, number: u16) -> u32 {
    let context = TransmitContext {
        ring_length: 64,
        vsi: 1,
        ..TransmitContext::zeroed()
    };
    give_queue(client, parent, number, context)
        .ok()
        .item::<TransmitQueue>(TransmitQueueGroup::SIZE)
        .node
        .get()
}

pub(super) fn give_queue(
    client: &mut Client,
    parent: u32,
    number: u16,
    context: TransmitContext,
) -> Answered {
    let group = TransmitQueueGroup {
        parent: parent.into(),
        count: 1,
        reserved: [0; 3],
    };
    let queue = TransmitQueue {
        queue: number.into(),
        element: Element::unlimited(),
        context: context.encode(),
        ..TransmitQueue::zeroed()
    };
    let one = AddTransmitQueues {
        group_count: 1,
        ..AddTransmitQueues::zeroed()
    };
    let bytes = [group.as_bytes(), queue.as_bytes()].concat();
    client.give(Opcode::AddTransmitQueues, &one, &bytes)
}

/// Linux, `Documentation/networking/devlink/ice.rst`: 8 in a tree of nine layers.
#[test]
fn a_group_takes_eight_queues_as_the_firmware_says() {
    let mut client = Client::ready();
    let path = branch(&mut client);
    let [.., above, group] = path[..] else {
        panic!("a branch");
    };
    for number in 0..8 {
        add_queue(&mut client, group, number);
    }
    let context = TransmitContext {
        vsi: 1,
        ..TransmitContext::zeroed()
    };
    let ninth = give_queue(&mut client, group, 8, context);
    assert_eq!(ninth.descriptor.return_code(), ReturnCode::NoSpace);
    let another = add_node(&mut client, above);
    add_queue(&mut client, another, 8);
    let resources = client
        .ask(Opcode::QuerySchedulerResources, &none(), 320)
        .ok();
    let resources: SchedulerResources = resources.item(0);
    let [.., groups, queues] = resources.layers.map(|layer| layer.siblings_max.get());
    assert_eq!((groups, queues), (8, 8));
    assert_eq!(client.breach_names(), [""; 0]);
}

/// As ice fills the contexts of its VSIs of the types PF, VMDQ2 and VF.
#[test]
fn a_transmit_queue_belongs_to_the_owner_that_its_vsi_is_of() {
    const WRONG: &str = "transmit queue that does not fit the type of its VSI";
    let owners = [
        (kind::VIRTUAL_FUNCTION, owner::VIRTUAL_FUNCTION),
        (kind::VIRTUAL_MACHINE, owner::VIRTUAL_MACHINE),
        (kind::PHYSICAL_FUNCTION, owner::PHYSICAL_FUNCTION),
    ];
    for (kind, expected) in owners {
        for (_, owner) in owners {
            for time_stamp_enable in [false, true] {
                let mut client = Client::ready();
                let group = *branch(&mut client).last().unwrap();
                let context = TransmitContext {
                    ring_length: 64,
                    vsi: add_vsi_of(&mut client, kind),
                    owner,
                    time_stamp_enable,
                    ..TransmitContext::zeroed()
                };
                give_queue(&mut client, group, 7, context).ok();
                let stamps = time_stamp_enable && kind == kind::VIRTUAL_FUNCTION;
                let wrong = owner != expected || stamps;
                let breaches = if wrong { vec![WRONG] } else { vec![] };
                assert_eq!(client.breach_names(), breaches, "{kind} {owner}");
            }
        }
    }
}

#[test]
fn a_transmit_queue_moves_to_another_node_and_is_disabled_there() {
    let mut client = Client::ready();
    let path = branch(&mut client);
    let [.., above, from] = path[..] else {
        panic!("a branch");
    };
    let to = add_node(&mut client, above);
    let leaf = add_queue(&mut client, from, 7);
    // As DPDK encodes it: move, one queue, 5 ms; source, destination; queue, class, leaf.
    let asked = MoveTransmitQueues {
        flags: 1,
        count: 1,
        timeout: 50 << 2,
        ..MoveTransmitQueues::zeroed()
    };
    let mut shift = |from: u32, to: u32| {
        let numbers = [from, to, 7, leaf];
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        let answer = client.give(Opcode::MoveTransmitQueues, &asked, &bytes);
        let moved: MoveTransmitQueues = answer.descriptor.parameters();
        (answer.descriptor.return_code(), moved.count)
    };
    assert_eq!(shift(from, to), (ReturnCode::Ok, 1));
    assert_eq!(shift(to, above).0, ReturnCode::Invalid, "another layer");
    let asked = Node {
        node: leaf.into(),
        ..Node::zeroed()
    };
    let query = Opcode::QuerySchedulerElements;
    let found = client.give(query, &elements(1), asked.as_bytes()).ok();
    assert_eq!(found.item::<Node>(0).parent.get(), to);
    let one = DisableTransmitQueues {
        group_count: 1,
        ..DisableTransmitQueues::zeroed()
    };
    let [a, b, c, d] = to.to_le_bytes();
    let bytes = [a, b, c, d, 1, 0, 7, 0];
    client
        .give(Opcode::DisableTransmitQueues, &one, &bytes)
        .ok();
    assert_eq!(client.breach_names(), [""; 0]);
}
