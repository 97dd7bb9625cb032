//! `ddp-package`: the package of the packet pipeline is active, or the device is in safe mode.
//!
//! Source: ice `ice_ddp.c`, `ice_init_pkg`.

use crate::admin::commands::{GlobalLock, InstalledPackage};
use crate::admin::{AdminError, AdminQueue};
use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use crate::ddp::{
    FileError, Package, PackageError, PackageFacts, PackageState, candidates, find, read,
};
use ringside_spec::lan::admin::generic::{lock_timeout_ms, resource};
use ringside_spec::lan::package::SUPPORTED_VERSION;
use ringside_spec::lan::registers::reset::{PRE_EXTRACTION_MASK_0, PRE_EXTRACTION_MASK_1};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "ddp-package",
    needs: Needs::Device,
    run,
};

/// The time between two requests for a lock that another function holds.
const LOCK_STEP: Duration = Duration::from_millis(10);

/// Input words of the switch block, 48 bits in two registers.
/// Source: ice `ice_ddp.c`, `ice_init_pkg_regs` (`ICE_SW_BLK_INP_MASK_L`, `_H`).
const INPUT_MASKS: [(u64, u32); 2] = [
    (PRE_EXTRACTION_MASK_0, 0xFFFF_FFFF),
    (PRE_EXTRACTION_MASK_1, 0x0000_FFFF),
];

fn run(context: &mut Context) -> Result<(), StageError> {
    let package = load(context)?;
    match &package.state {
        PackageState::SafeMode(reason) => {
            let text = format!("safe mode, one queue and no RDMA: {reason}");
            if context.config().ddp.require {
                return Err(StageError::Unusable {
                    what: format!("ddp.require is set and no package is active: {reason}"),
                    remedy: "install the package, or set ddp.require to false for safe mode"
                        .to_owned(),
                });
            }
            context.warn(text.clone());
            context.facts.rdma_unavailable = Some(text);
        }
        PackageState::Downloaded | PackageState::AlreadyLoaded => set_input_masks(context)?,
    }
    context.facts.package = Some(package);
    Ok(())
}

fn set_input_masks(context: &mut Context) -> Result<(), StageError> {
    for (offset, wanted) in INPUT_MASKS {
        let found = context.registers().read_quietly(offset)?;
        if found == wanted {
            continue;
        }
        let _ = context.record(Undo::RestoreRegister { offset, found });
        context.registers().write(offset, wanted)?;
    }
    Ok(())
}

/// Sees to it that a package is active, downloading one if need be.
///
/// No package, or one that does not fit, is safe mode and no error; errors are those of the
/// device.
fn load(context: &mut Context) -> Result<PackageFacts, StageError> {
    let admin = context.admin()?;
    let before = admin.installed_packages()?;
    let (file, package) = find_package(context);
    // The flash's own package has the least that a device needs and is not enough for a driver.
    let loaded = |one: &&InstalledPackage| one.active && !one.in_flash;
    let active = |list: &[InstalledPackage]| list.iter().find(loaded).cloned();
    let package = match package {
        Ok(package) => package,
        Err(reason) => {
            let active = active(&before);
            let state = judge(active.as_ref(), &reason, PackageState::AlreadyLoaded);
            return Ok(PackageFacts {
                state,
                active,
                file,
                hash_groups: BTreeMap::new(),
                filter_groups: BTreeMap::new(),
            });
        }
    };
    if let Some(reason) = misfit(&package, &before) {
        return Ok(PackageFacts {
            state: PackageState::SafeMode(reason),
            active: active(&before),
            file,
            hash_groups: BTreeMap::new(),
            filter_groups: BTreeMap::new(),
        });
    }
    let outcome = download_locked(context, &admin, &package)?;
    let active = active(&admin.installed_packages()?);
    let state = match outcome {
        Ok(state) => judge(
            active.as_ref(),
            "the device reports no active package",
            state,
        ),
        Err(reason) => PackageState::SafeMode(reason),
    };
    Ok(PackageFacts {
        state,
        active,
        file,
        hash_groups: package.hash_groups(),
        filter_groups: package.filter_groups(),
    })
}

/// The package file, or in words why there is none.
fn find_package(context: &Context) -> (Option<PathBuf>, Result<Package, String>) {
    let section = &context.config().ddp;
    let serial_number = context
        .facts
        .identity
        .as_ref()
        .and_then(|identity| identity.serial_number);
    let paths = candidates(section, serial_number);
    let Some(path) = find(&paths) else {
        let folders: Vec<_> = section
            .search
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let reason = format!(
            "no package file {} in {}; install the firmware package that holds it (Debian: firmware-intel-misc or firmware-misc-nonfree), or set ddp.search",
            section.file.display(),
            folders.join(", ")
        );
        context.recorder().note(reason.clone());
        return (None, Err(reason));
    };
    context
        .recorder()
        .note(format!("package file {}", path.display()));
    let parsed = read(path)
        .map_err(|error: FileError| error.to_string())
        .and_then(|bytes| {
            Package::parse(bytes)
                .map_err(|error: PackageError| format!("{}: {error}", path.display()))
        });
    (Some(path.clone()), parsed)
}

/// Returns the reason why the package does not fit the one in flash, if so: the format's major
/// version must be the same and the minor version not newer.
fn misfit(package: &Package, installed: &[InstalledPackage]) -> Option<String> {
    let flash = installed.iter().find(|one| one.in_flash)?;
    let [major, minor, ..] = package.segment_format;
    let [flash_major, flash_minor, ..] = flash.version;
    let fits = major == flash_major && minor <= flash_minor;
    (!fits).then(|| {
        format!(
            "the package's format {major}.{minor} does not fit the device's flash ({flash_major}.{flash_minor}); update the device's firmware, or install an older package"
        )
    })
}

/// Returns `state` if this driver supports the version of the active package, otherwise safe mode.
fn judge(active: Option<&InstalledPackage>, reason: &str, state: PackageState) -> PackageState {
    match active {
        Some(active) if (active.version[0], active.version[1]) == SUPPORTED_VERSION => state,
        Some(active) => PackageState::SafeMode(format!(
            "the active package '{}' has version {}.{}, this driver takes {}.{}; reset the whole device and load another",
            active.name,
            active.version[0],
            active.version[1],
            SUPPORTED_VERSION.0,
            SUPPORTED_VERSION.1
        )),
        None => PackageState::SafeMode(reason.to_owned()),
    }
}

/// Takes the global configuration lock and downloads; the inner error is a refusal of the package.
fn download_locked(
    context: &mut Context,
    admin: &Arc<AdminQueue>,
    package: &Package,
) -> Result<Result<PackageState, String>, StageError> {
    let limit = Duration::from_millis(context.config().deadlines.resource_lock_ms);
    let held = context.record(Undo::ReleaseResource {
        resource: resource::GLOBAL_CONFIG,
    });
    let lock = context.wait(limit, LOCK_STEP, || {
        let timeout = lock_timeout_ms::GLOBAL_CONFIG;
        Ok(match admin.request_global_lock(timeout)? {
            GlobalLock::InProgress => None,
            other => Some(other),
        })
    })?;
    match lock {
        Some(GlobalLock::Granted) => {}
        Some(_) => {
            context.discharge(held);
            return Ok(Ok(PackageState::AlreadyLoaded));
        }
        None => {
            context.discharge(held);
            return Err(StageError::Unusable {
                what: format!(
                    "another function has held the global configuration lock for {} ms",
                    limit.as_millis()
                ),
                remedy: "see which driver holds it, or raise deadlines.resource_lock_ms".to_owned(),
            });
        }
    }
    let result = download(admin, package);
    admin.release_resource(resource::GLOBAL_CONFIG)?;
    context.discharge(held);
    match result {
        Ok(()) => Ok(Ok(PackageState::Downloaded)),
        Err(AdminError::Refused { opcode, code }) => {
            Ok(Err(AdminError::Refused { opcode, code }.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

fn download(admin: &AdminQueue, package: &Package) -> Result<(), AdminError> {
    for (buffer, is_last) in package.marked_downloads() {
        admin.download_buffer(buffer, is_last)?;
    }
    Ok(())
}
