//! Recipes of the switch: reports the predefined ones and refuses all others.
//!
//! A recipe of a driver would make the switch compare any words of a packet. The model's switch
//! compares the fields of the predefined recipes only. Source: DPDK 25.11 `ice_switch.c`,
//! `ice_get_recp_frm_fw`, `ice_add_sw_recipe`.

use super::command::{Command, Outcome};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::switch::{
    RecipeCommand, RecipeContent, RecipeElement, RecipeId, RecipeLookup, RecipeToProfile, recipe,
};

/// Recipes that every device has. Source: ice `ice_switch.h`, `ice_sw_lkup_type`.
pub(super) const PREDEFINED: [u16; 9] = [
    recipe::ETHERTYPE,
    recipe::MAC,
    recipe::MAC_VLAN,
    recipe::PROMISCUOUS,
    recipe::VLAN,
    recipe::DEFAULT_VSI,
    recipe::ETHERTYPE_MAC,
    recipe::PROMISCUOUS_VLAN,
    recipe::LOGICAL_PORT,
];

/// One recipe and the parts of its chain: a predefined one is one element, the root of itself.
///
/// The words that a predefined recipe compares are not documented: the answer names none. Errors:
/// the
/// recipe does not exist; the buffer has no room for the element.
pub(super) fn get(command: &mut Command) -> Outcome {
    let asked: RecipeCommand = command.parameters();
    let number = asked.index.get();
    if !PREDEFINED.contains(&number) {
        return Err(ReturnCode::NoEntry);
    }
    let mut element = RecipeElement {
        index: number as u8,
        content: RecipeContent {
            recipe: RecipeId::ZERO.with_id(number as u8).with_root(true).0,
            lookups: [RecipeLookup::ZERO.with_ignore(true).0; 5],
            ..RecipeContent::zeroed()
        },
        ..RecipeElement::zeroed()
    };
    element.recipes = (1u64 << number).to_le_bytes();
    command.put(0, &element)?;
    let answer = RecipeCommand {
        count: 1.into(),
        ..asked
    };
    command.answer(&answer)
}

/// Recipes that drivers gave a profile: none. Errors: there is no such profile.
pub(super) fn of_profile(command: &Command) -> Outcome {
    let asked: RecipeToProfile = command.parameters();
    if asked.profile.get() >= PROFILES {
        return Err(ReturnCode::NoEntry);
    }
    command.answer(&RecipeToProfile {
        recipes: 0.into(),
        ..asked
    })
}

/// Profiles of the switch. Source: ice `ice_switch.h`, `ICE_MAX_NUM_PROFILES`.
const PROFILES: u16 = 256;

#[cfg(test)]
mod tests;
