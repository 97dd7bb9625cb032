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

#[test]
fn a_dead_function_reads_all_ones_and_comes_back_as_after_power_on() {
    let (world, function) = scene();
    let register = reset::FUNCTION_REQUESTER_ID;
    let before = read(&function, register);
    world.with(|world| world.inject(0, Fault::FunctionDead));
    assert_eq!(read(&function, register), u32::MAX);
    let mut bytes = [0; 2];
    function.config_read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0xFF; 2]);
    function.write32(0, register, 0).unwrap();
    world.with(|world| world.clear_faults(0));
    assert_eq!(read(&function, register), before);
    let status = reset::ResetStatus(read(&function, reset::RESET_STATUS));
    assert_eq!(status.firmware_count(), 1);
    assert_eq!(world.with(|world| world.breaches(0)), []);
}

#[test]
fn a_reset_by_somebody_else_excuses_what_the_driver_cannot_know_until_it_resets_itself() {
    let (world, function) = scene();
    let stray = ringside_spec::rdma::registers::WQE_ALLOCATE;
    let kind = crate::function::ResetKind::Function;
    world.with(|world| world.inject(0, Fault::Reset(kind)));
    function.write32(0, stray, 5).unwrap();
    assert_eq!(world.with(|world| world.breaches(0)), []);
    world.clock().pause(std::time::Duration::from_millis(1));
    let control = FunctionControl::ZERO.with_software_reset(true);
    function
        .write32(0, reset::FUNCTION_CONTROL, control.0)
        .unwrap();
    for _ in 0..10 {
        world.clock().pause(std::time::Duration::from_millis(1));
    }
    function.write32(0, stray, 5).unwrap();
    assert_eq!(world.with(|world| world.breaches(0)).len(), 1);
}

#[test]
fn no_more_memory_is_mapped_than_a_fault_allows() {
    use ringside_bus::function::DmaAccess;
    use ringside_bus::{Iova, Memory, PageSize};
    let (world, function) = scene();
    world.with(|world| world.inject(0, Fault::MappedMemoryAtMost { bytes: 8192 }));
    let memory = Memory::allocate(8192, PageSize::FourKiB, None).unwrap();
    let map = |at, length| function.map_dma(Iova(at), &memory, 0..length, DmaAccess::ReadWrite);
    map(1 << 32, 8192).unwrap();
    let refused = map(1 << 33, 4096).unwrap_err().to_string();
    assert!(refused.contains("only 0x2000 may be"), "{refused}");
    world.with(|world| world.clear_faults(0));
    map(1 << 33, 4096).unwrap();
}
