use super::*;
use crate::double::{Double, Script};
use crate::memory::{DmaAccess, Memory, PageSize};
use crate::process::tests::in_a_child;
use crate::{DeviceAddress, Iova};
use std::time::Duration;

/// Refuses no register access.
struct Willing;

impl Script for Willing {
    fn read(&self, _offset: u64) -> u32 {
        7
    }

    fn write(&mut self, _offset: u64, _value: u32) {}
}

/// Names the calls that were not refused because of the process.
fn not_refused(function: &Arc<dyn Function>, memory: &Memory) -> Vec<&'static str> {
    let mut bytes = [0; 4];
    let (iova, access) = (Iova(0), DmaAccess::ReadWrite);
    let calls = [
        ("config_read", function.config_read(0, &mut bytes)),
        ("config_write", function.config_write(0, &bytes)),
        ("bar", function.bar(0).map(|_| ())),
        ("read32", function.read32(0, 0).map(|_| ())),
        ("write32", function.write32(0, 0, 1)),
        ("read64", function.read64(0, 0).map(|_| ())),
        ("doorbell", Arc::clone(function).doorbell(0, 0).map(|_| ())),
        ("dma_limits", function.dma_limits().map(|_| ())),
        ("map_dma", function.map_dma(iova, memory, 0..4096, access)),
        ("unmap_dma", function.unmap_dma(iova, 4096)),
        (
            "interrupt_vectors",
            function.interrupt_vectors().map(|_| ()),
        ),
        ("set_interrupts", function.set_interrupts(0, &[])),
        ("set_release_event", function.set_release_event(None)),
        ("reset", function.reset()),
    ];
    let refused = |result: &Result<(), FunctionError>| {
        matches!(result, Err(FunctionError::OtherProcess { .. }))
    };
    calls
        .iter()
        .filter(|(_, result)| !refused(result))
        .map(|(name, _)| *name)
        .collect()
}

#[test]
fn every_call_that_reaches_the_device_is_refused_in_a_child_and_only_there() {
    let double = Arc::new(Double::new(Willing, Duration::from_micros(1)));
    let function: Arc<dyn Function> = OneProcess::new(double);
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    assert_eq!(not_refused(&function, &memory).len(), 14);
    assert!(in_a_child(|| not_refused(&function, &memory).is_empty()));
    assert!(matches!(function.address(), DeviceAddress::Model(_)));
}
