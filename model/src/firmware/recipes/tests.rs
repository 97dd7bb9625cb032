//! Asked as DPDK does: for each of 64 recipes, for each profile, then for a recipe of its own.

use super::super::tests::client::{Client, none};
use super::*;
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::switch::{AllocateResource, Resource};

/// Recipes that may exist. Source: ice `ICE_MAX_NUM_RECIPES`.
const RECIPES: u16 = 64;

/// Room for all of them, as DPDK gives.
const ROOM: u16 = 4096;

fn about(index: u16) -> RecipeCommand {
    RecipeCommand {
        index: index.into(),
        ..RecipeCommand::zeroed()
    }
}

#[test]
fn each_predefined_recipe_is_the_root_of_itself_and_looks_up_no_word_that_a_driver_knows() {
    let mut client = Client::ready();
    for number in 0..RECIPES {
        let answer = client.ask(Opcode::GetRecipe, &about(number), ROOM);
        if !PREDEFINED.contains(&number) {
            assert_eq!(answer.descriptor.return_code(), ReturnCode::NoEntry);
            continue;
        }
        let answer = answer.ok();
        let head: RecipeCommand = answer.descriptor.parameters();
        assert_eq!(head.count.get(), 1, "recipe {number}");
        let element: RecipeElement = answer.item(0);
        assert_eq!(u16::from(element.index), number);
        assert_eq!(u16::from(element.content.recipe), number | 0x80);
        assert_eq!(element.content.lookups, [0x80; 5]);
        assert_eq!(u64::from_le_bytes(element.recipes), 1 << number);
    }
    let small = client.ask(Opcode::GetRecipe, &about(recipe::MAC), 63);
    assert_eq!(small.descriptor.return_code(), ReturnCode::NoMemory);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn no_profile_has_recipes_of_drivers() {
    let mut client = Client::ready();
    let about = |profile: u16| RecipeToProfile {
        profile: profile.into(),
        recipes: u64::MAX.into(),
        ..RecipeToProfile::zeroed()
    };
    for profile in [0, 255] {
        let answer = client.direct(Opcode::GetRecipeToProfile, &about(profile));
        let head: RecipeToProfile = answer.ok().descriptor.parameters();
        assert_eq!((head.profile.get(), head.recipes.get()), (profile, 0));
    }
    let beyond = client.direct(Opcode::GetRecipeToProfile, &about(256));
    assert_eq!(beyond.descriptor.return_code(), ReturnCode::NoEntry);
}

/// A rule that the switch would not obey must fail before the driver believes in it, and leave
/// nothing behind.
#[test]
fn a_recipe_of_a_driver_is_refused_and_nothing_of_it_is_held() {
    let mut client = Client::ready();
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    // Shared by the functions of the device, one of them.
    let kind = Resource::Recipe.code() as u8 | 0x80;
    let number = client.give(Opcode::AllocateResource, &one, &[kind, 0, 1, 0, 0, 0]);
    assert_eq!(number.descriptor.return_code(), ReturnCode::NoSpace);
    let element = RecipeElement {
        index: 11,
        ..RecipeElement::zeroed()
    };
    let asked = RecipeCommand {
        count: 1.into(),
        ..RecipeCommand::zeroed()
    };
    let bytes = zerocopy::IntoBytes::as_bytes(&element);
    let added = client.give(Opcode::AddRecipe, &asked, bytes);
    assert_eq!(added.descriptor.return_code(), ReturnCode::NotImplemented);
    let to_profile = client.direct(Opcode::RecipeToProfile, &none());
    assert_eq!(
        to_profile.descriptor.return_code(),
        ReturnCode::NotImplemented
    );
    let left = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(left.firmware.resources, found.firmware.resources);
    assert_eq!(client.breach_names(), [""; 0]);
}
