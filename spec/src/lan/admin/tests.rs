use super::generic::{NoParameters, RequestResource};
use super::*;

#[test]
fn an_indirect_command_carries_flags_length_and_address() {
    let address = 0x5A3C_C3A5_9669_0000;
    let command = Descriptor::indirect(
        Opcode::ListDeviceCapabilities,
        &NoParameters::zeroed(),
        address,
        4096,
        Direction::DeviceWrites,
    );
    assert_eq!(command.flags.get(), 0x3200);
    assert_eq!(command.data_length.get(), 4096);
    assert_eq!(command.buffer_address(), address);
    assert_eq!(&command.parameters[..8], &[0; 8]);
}

#[test]
fn a_buffer_of_512_bytes_is_not_large() {
    let large = |length| {
        Descriptor::free_for_event(0x1000, length)
            .flags()
            .large_buffer()
    };
    assert!(!large(512));
    assert!(large(513));
}

#[test]
fn an_answer_keeps_the_buffer_and_reports_the_result() {
    let command = Descriptor::indirect(
        Opcode::GetVsi,
        &NoParameters::zeroed(),
        0x1_2345_6000,
        128,
        Direction::DeviceReads,
    );
    let answer = command.answered(ReturnCode::NoEntry, &NoParameters::zeroed(), 0);
    assert_eq!(answer.buffer_address(), 0x1_2345_6000);
    assert_eq!(answer.return_code(), ReturnCode::NoEntry);
    assert!(answer.flags().done() && answer.flags().complete() && answer.flags().error());
    assert!(
        !command
            .answered(ReturnCode::Ok, &NoParameters::zeroed(), 0)
            .flags()
            .error()
    );
}

#[test]
fn an_answer_without_buffer_may_use_all_sixteen_bytes() {
    let request = RequestResource {
        status: 2.into(),
        number: 7.into(),
        ..RequestResource::zeroed()
    };
    let command = Descriptor::direct(Opcode::RequestResource, &request);
    let answer = command.answered(ReturnCode::Ok, &request, 0);
    assert_eq!(answer.parameters::<RequestResource>(), request);
}

#[test]
fn unknown_codes_are_kept() {
    assert_eq!(Opcode::from_code(0x7777).code(), 0x7777);
    assert_eq!(ReturnCode::from_code(0xEE), ReturnCode::Unknown(0xEE));
    for (opcode, name) in Opcode::NAMED {
        assert_eq!(Opcode::from_code(opcode.code()), *opcode);
        assert_eq!(opcode.c_name(), *name);
    }
}

#[test]
fn only_the_low_byte_of_the_return_code_counts() {
    let mut answer = Descriptor::zeroed();
    answer.return_code = 0xAB0C.into();
    assert_eq!(answer.return_code(), ReturnCode::Busy);
}

#[test]
fn a_group_of_queues_is_padded_after_an_even_number() {
    use super::queues::DisableGroup;
    assert_eq!(DisableGroup::size_with(1), 8);
    assert_eq!(DisableGroup::size_with(2), 12);
}

#[test]
fn offsets_in_flash_survive_their_two_halves() {
    use super::nvm::{NvmCommand, NvmFlags};
    let command = NvmCommand::at(0xAB_CDEF, 1024, NvmFlags::ZERO);
    assert_eq!(command.offset(), 0xAB_CDEF);
    assert_eq!(command.offset_low.get(), 0xCDEF);
}
