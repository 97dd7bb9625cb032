use crate::faults::Fault;
use crate::{Stepped, WorldSettings};
use ringside_bus::Function;
use ringside_spec::lan::registers::interrupts::{
    CauseControl, OTHER_CAUSES, OTHER_CAUSES_CONTROL, OTHER_CAUSES_ENABLE, VECTOR_CONTROL,
    VectorControl,
};
use ringside_spec::lan::registers::reset::{self, FunctionControl};
use ringside_spec::rdma::registers::{
    CRITICAL_ERROR, CRITICAL_ERROR_Q1_RESOURCE, HMC_ERROR_DATA, HMC_ERROR_INFO, HmcErrorInfo,
    OtherCauses,
};
use std::sync::Arc;

const OBJECT: u8 = 12;

fn scene() -> (Stepped, Arc<dyn Function>) {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let function = world.function(0).unwrap();
    (world, function)
}

fn read(function: &Arc<dyn Function>, offset: u64) -> u32 {
    function.read32(0, offset).unwrap()
}

fn hmc_error(data: u32) -> Fault {
    Fault::HmcError {
        kind: 3,
        object: OBJECT,
        data,
    }
}

#[test]
fn an_error_of_the_host_memory_cache_is_kept_and_its_cause_raised_once() {
    let (world, function) = scene();
    let enabled = OtherCauses::ZERO
        .with_hmc_error(true)
        .with_critical_error(true);
    function.write32(0, OTHER_CAUSES_ENABLE, enabled.0).unwrap();
    let control = CauseControl::ZERO.with_vector(1).with_enable(true);
    function
        .write32(0, OTHER_CAUSES_CONTROL, control.0)
        .unwrap();
    let vector = VectorControl::ZERO.with_enable(true);
    function.write32(0, VECTOR_CONTROL.at(1), vector.0).unwrap();
    let before = world.with(|world| world.function(0).unwrap().interrupts_fired(1));
    world.with(|world| world.inject(0, hmc_error(0x1234)));
    let fired = world.with(|world| world.function(0).unwrap().interrupts_fired(1));
    assert_eq!(fired, before + 1);
    let info = HmcErrorInfo(read(&function, HMC_ERROR_INFO));
    assert!(info.detected());
    assert_eq!((info.error_type(), info.object_type()), (3, OBJECT.into()));
    assert_eq!(read(&function, HMC_ERROR_DATA), 0x1234);
    let causes = OtherCauses(read(&function, OTHER_CAUSES));
    assert!(causes.hmc_error() && !causes.critical_error());
    assert!(
        !OtherCauses(read(&function, OTHER_CAUSES)).hmc_error(),
        "cleared by reading"
    );
    // The first one stays until it is cleared.
    world.with(|world| world.inject(0, hmc_error(0x5678)));
    assert_eq!(read(&function, HMC_ERROR_DATA), 0x1234);
    function.write32(0, HMC_ERROR_INFO, 0).unwrap();
    world.with(|world| world.inject(0, hmc_error(0x5678)));
    assert_eq!(read(&function, HMC_ERROR_DATA), 0x5678);
    assert!(world.with(|world| world.breaches(0)).is_empty());
}

#[test]
fn a_critical_error_says_its_code_and_a_reset_of_the_function_takes_it_back() {
    let (world, function) = scene();
    let code = CRITICAL_ERROR_Q1_RESOURCE;
    world.with(|world| world.inject(0, Fault::CriticalError { code }));
    world.with(|world| world.inject(0, hmc_error(1)));
    assert_eq!(read(&function, CRITICAL_ERROR), code);
    let causes = OtherCauses(read(&function, OTHER_CAUSES));
    assert!(causes.critical_error() && causes.hmc_error());
    let trigger = FunctionControl::ZERO.with_software_reset(true);
    function
        .write32(0, reset::FUNCTION_CONTROL, trigger.0)
        .unwrap();
    assert_eq!(
        (
            read(&function, CRITICAL_ERROR),
            read(&function, HMC_ERROR_INFO)
        ),
        (0, 0)
    );
}
