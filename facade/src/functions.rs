//! The functions of the model in this process. Each can be open once at a time.

use crate::error::OpenError;
use ringside_bus::Function;
use ringside_bus::process::Birth;
use ringside_config::{Config, Core};
use ringside_model::{Threaded, WorldSettings};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

/// The model of this process. It ends with the last open function.
struct Shared {
    model: Weak<Threaded>,
    /// the functions that are open, each by one device
    open: BTreeSet<u16>,
    /// the process that opened them
    birth: Option<Birth>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    model: Weak::new(),
    open: BTreeSet::new(),
    birth: None,
});

/// The longest wait for other threads that open or close a function.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// The functions; `None` if they stay locked, as in a child by fork whose parent was opening one.
fn shared() -> Option<MutexGuard<'static, Shared>> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match SHARED.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// One open function of the model of this process. Dropping it lets the function be opened again.
pub(crate) struct OpenFunction {
    index: u16,
    model: Arc<Threaded>,
    birth: Birth,
}

impl Drop for OpenFunction {
    fn drop(&mut self) {
        if self.birth.is_here() {
            let shared = SHARED.lock();
            let mut shared = shared.unwrap_or_else(PoisonError::into_inner);
            shared.open.remove(&self.index);
        }
    }
}

impl OpenFunction {
    /// The model that has the function.
    pub(crate) fn model(&self) -> &Threaded {
        &self.model
    }

    /// Takes the function, and starts the model if no function of it is open.
    pub(crate) fn take(index: u16, config: &Config) -> Result<Self, OpenError> {
        let birth = Birth::now();
        let mut shared = shared().ok_or(OpenError::LockedByParent)?;
        if shared.birth != Some(birth) {
            // In a child by fork: the model's thread stayed with its parent.
            *shared = Shared {
                model: Weak::new(),
                open: BTreeSet::new(),
                birth: Some(birth),
            };
        }
        let model = match shared.model.upgrade() {
            Some(model) => model,
            None => Arc::new(start_model(config)?),
        };
        shared.model = Arc::downgrade(&model);
        if !shared.open.insert(index) {
            return Err(OpenError::Busy { index });
        }
        Ok(Self {
            index,
            model,
            birth,
        })
    }
}

fn start_model(config: &Config) -> Result<Threaded, OpenError> {
    let functions = u16::try_from(config.model.functions).unwrap_or(u16::MAX);
    let core = match config.model.thread_core {
        Core::Pinned(core) => Some(core as usize),
        Core::Any => None,
    };
    let settings = WorldSettings::with_functions(functions);
    Ok(Threaded::start(&settings, core)?)
}

pub(crate) fn model_function(index: u16, model: &Threaded) -> Result<Arc<dyn Function>, OpenError> {
    model.function(index).ok_or_else(|| {
        let functions = (0..u16::MAX).take_while(|&index| model.function(index).is_some());
        OpenError::NoSuchFunction {
            index,
            functions: u16::try_from(functions.count()).unwrap_or(u16::MAX),
        }
    })
}
