use super::super::switch::FIRMWARE_VSI;
use super::*;

/// A list may have hundreds of members, and thousands of rules may name it.
#[test]
fn rules_of_one_list_share_its_members() {
    let (vsis, mut rules) = (Vsis::new(), Rules::default());
    for kind in [ListKind::Replication, ListKind::Prune] {
        rules.lists.insert((kind, 5), [FIRMWARE_VSI].into());
    }
    rules.lists.insert((ListKind::Replication, 6), [700].into());
    let list = |kind, number| {
        let action = SingleAction::ZERO.with_kind(kind).with_is_list(true);
        action.with_vsi(number)
    };
    let mut known = KnownLists::default();
    let mut targets = |action| rules.targets(action, &vsis, &mut known);
    let first = targets(list(action::FORWARD, 5));
    assert_eq!(first[..], [FIRMWARE_VSI]);
    assert!(Arc::ptr_eq(&first, &targets(list(action::FORWARD, 5))));
    assert!(!Arc::ptr_eq(&first, &targets(list(action::PRUNE, 5))));
    assert_eq!(targets(list(action::FORWARD, 6))[..], [0; 0]);
    assert_eq!(targets(list(action::FORWARD, 7))[..], [0; 0]);
    let one = SingleAction::ZERO.with_vsi(FIRMWARE_VSI.into());
    assert_eq!(targets(one)[..], [FIRMWARE_VSI]);
    assert_eq!(rules.list_lets_rdma_in(6, &vsis), None);
    assert_eq!(rules.list_lets_rdma_in(5, &vsis), Some(false));
}
