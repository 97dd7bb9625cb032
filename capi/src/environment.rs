//! Variables of the environment, also after the program has cleared it.
//!
//! Daemons remove all variables when they start, and use verbs afterwards.

use std::ffi::OsString;
use std::sync::OnceLock;

/// Those that the library reads after it was loaded.
const NAMES: [&str; 8] = [
    "RINGSIDE_DEVICE",
    "RINGSIDE_CONFIG",
    "RINGSIDE_FILES",
    "RINGSIDE_SHARE_MEMORY",
    "RINGSIDE_SINGLE_THREAD",
    "RINGSIDE_LOG_FORMAT",
    "RUST_LOG",
    "NO_COLOR",
];

/// Their values when the library was loaded, in that order.
static AT_LOAD: OnceLock<[Option<OsString>; NAMES.len()]> = OnceLock::new();

extern "C" fn at_load() {
    let _ = AT_LOAD.set(NAMES.map(std::env::var_os));
}

/// The dynamic linker calls it before the program's `main`.
#[used]
// SAFETY: the loader calls the functions of this section when it has loaded the library.
#[unsafe(link_section = ".init_array")]
static AT_LOAD_IS_CALLED: extern "C" fn() = at_load;

/// The value of a variable of [`NAMES`]: the present one, or that at load if the program has
/// removed the variable since.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).or_else(|| {
        let index = NAMES.iter().position(|known| *known == name)?;
        AT_LOAD.get()?.get(index)?.clone()
    })
}
