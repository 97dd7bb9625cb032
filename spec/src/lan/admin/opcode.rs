//! Opcodes of commands and events, and codes of answers.

use crate::lan::wire::codes;

codes! {
    /// The request or report of a descriptor. Source: ice `ice_adminq_cmd.h`, `ice_adminq_opc`;
    /// those marked so, DPDK `ice_adminq_cmd.h`.
    pub enum Opcode: u16 {
        /// version of firmware and interface
        GetVersion "get_ver" = 0x0001,
        /// reports the driver's version to the firmware
        DriverVersion "driver_ver" = 0x0002,
        /// the driver stops using the queue
        QueueShutdown "q_shutdown" = 0x0003,
        /// details of the last error; DPDK only
        GetExpandedError "get_expanded_err" = 0x0005,
        /// requests ownership of a shared resource
        RequestResource "req_res" = 0x0008,
        /// gives ownership back
        ReleaseResource "release_res" = 0x0009,
        /// capabilities of the function
        ListFunctionCapabilities "list_func_caps" = 0x000A,
        /// capabilities of the device
        ListDeviceCapabilities "list_dev_caps" = 0x000B,
        /// MAC addresses of the function
        ReadMac "manage_mac_read" = 0x0107,
        /// changes the MAC address
        WriteMac "manage_mac_write" = 0x0108,
        /// leaves the boot mode
        ClearPxe "clear_pxe_mode" = 0x0110,
        /// no-drop policy; DPDK only
        ConfigureNoDrop "config_no_drop" = 0x0112,
        /// elements of the switch
        GetSwitchConfig "get_sw_cfg" = 0x0200,
        /// parameters of the port
        SetPortParameters "set_port_params" = 0x0203,
        /// allocates switch or parser resources
        AllocateResource "alloc_res" = 0x0208,
        /// frees them
        FreeResource "free_res" = 0x0209,
        /// resource descriptors that are allocated; DPDK only
        GetAllocatedResources "get_allocd_res_desc" = 0x020A,
        /// shares them
        ShareResource "share_res" = 0x020B,
        /// single or double VLAN mode
        SetVlanMode "set_vlan_mode_parameters" = 0x020C,
        /// single or double VLAN mode
        GetVlanMode "get_vlan_mode_parameters" = 0x020D,
        /// adds a virtual station interface
        AddVsi "add_vsi" = 0x0210,
        /// changes sections of its properties
        UpdateVsi "update_vsi" = 0x0211,
        /// reads the properties; DPDK only
        GetVsi "get_vsi_params" = 0x0212,
        /// frees it
        FreeVsi "free_vsi" = 0x0213,
        /// adds recipes of the switch
        AddRecipe "add_recipe" = 0x0290,
        /// maps recipes to profiles
        RecipeToProfile "recipe_to_profile" = 0x0291,
        /// reads recipes
        GetRecipe "get_recipe" = 0x0292,
        /// reads the map
        GetRecipeToProfile "get_recipe_to_profile" = 0x0293,
        /// adds rules
        AddSwitchRules "add_sw_rules" = 0x02A0,
        /// changes rules
        UpdateSwitchRules "update_sw_rules" = 0x02A1,
        /// removes rules
        RemoveSwitchRules "remove_sw_rules" = 0x02A2,
        /// empties all that the function configured
        ClearFunctionConfig "clear_pf_cfg" = 0x02A4,
        /// priority flow control by VLAN or DSCP
        QueryFlowControlMode "query_pfc_mode" = 0x0302,
        /// priority flow control by VLAN or DSCP
        SetFlowControlMode "set_pfc_mode" = 0x0303,
        /// the scheduler's default tree
        GetDefaultTopology "get_dflt_topo" = 0x0400,
        /// adds nodes
        AddSchedulerElements "add_sched_elems" = 0x0401,
        /// changes nodes
        ConfigureSchedulerElements "cfg_sched_elems" = 0x0403,
        /// reads nodes
        QuerySchedulerElements "get_sched_elems" = 0x0404,
        /// moves nodes to another parent
        MoveSchedulerElements "move_sched_elems" = 0x0408,
        /// suspends nodes
        SuspendSchedulerElements "suspend_sched_elems" = 0x0409,
        /// resumes nodes
        ResumeSchedulerElements "resume_sched_elems" = 0x040A,
        /// traffic classes of the port
        QueryPortEts "query_port_ets" = 0x040E,
        /// deletes nodes
        DeleteSchedulerElements "delete_sched_elems" = 0x040F,
        /// adds rate limit profiles
        AddRateLimitProfiles "add_rl_profiles" = 0x0410,
        /// reads rate limit profiles; DPDK only
        QueryRateLimitProfiles "query_rl_profiles" = 0x0411,
        /// limits of the scheduler
        QuerySchedulerResources "query_sched_res" = 0x0412,
        /// removes rate limit profiles
        RemoveRateLimitProfiles "remove_rl_profiles" = 0x0415,
        /// chooses the scheduler's topology
        SetTransmitTopology "set_tx_topo" = 0x0417,
        /// reads the scheduler's topology
        GetTransmitTopology "get_tx_topo" = 0x0418,
        /// capabilities of PHY and module
        GetPhyCapabilities "get_phy_caps" = 0x0600,
        /// configuration of the PHY
        SetPhyConfig "set_phy_cfg" = 0x0601,
        /// largest frame, pause timers
        SetMacConfig "set_mac_cfg" = 0x0603,
        /// restarts or disables the link
        RestartAutonegotiation "restart_an" = 0x0605,
        /// state of the link; as an event: it changed
        GetLinkStatus "get_link_status" = 0x0607,
        /// the link events that are sent
        SetEventMask "set_event_mask" = 0x0613,
        /// loopback in the MAC
        SetMacLoopback "set_mac_lb" = 0x0620,
        /// recovered clock output
        SetRecoveredClock "set_phy_rec_clk_out" = 0x0630,
        /// recovered clock output
        GetRecoveredClock "get_phy_rec_clk_out" = 0x0631,
        /// temperature
        GetSensorReading "get_sensor_reading" = 0x0632,
        /// runs a script of the PHY
        RunScript "dnl_call" = 0x0682,
        /// nodes on the board
        GetLinkTopology "get_link_topo" = 0x06E0,
        /// reads a device on the board
        ReadI2c "read_i2c" = 0x06E2,
        /// writes a device on the board
        WriteI2c "write_i2c" = 0x06E3,
        /// blinks the port's light
        SetPortLed "set_port_id_led" = 0x06E9,
        /// ways to split the port
        GetPortOptions "get_port_options" = 0x06EA,
        /// chooses one
        SetPortOption "set_port_option" = 0x06EB,
        /// general purpose output
        SetGpio "set_gpio" = 0x06EC,
        /// general purpose input
        GetGpio "get_gpio" = 0x06ED,
        /// memory of the module
        ModuleEeprom "sff_eeprom" = 0x06EE,
        /// reads flash or shadow RAM
        NvmRead "nvm_read" = 0x0701,
        /// erases flash
        NvmErase "nvm_erase" = 0x0702,
        /// writes flash
        NvmWrite "nvm_write" = 0x0703,
        /// verifies or renews the checksum
        NvmChecksum "nvm_checksum" = 0x0706,
        /// activates a bank
        NvmActivate "nvm_write_activate" = 0x0707,
        /// resets the EMP after an update
        NvmReset "nvm_update_empr" = 0x0709,
        /// data of an update package
        NvmPackageData "nvm_pkg_data" = 0x070A,
        /// components of an update package
        NvmComponentTable "nvm_pass_component_tbl" = 0x070B,
        /// message of a virtual function
        MailboxToPhysicalFunction "mailbox_send_msg_to_pf" = 0x0801,
        /// message to a virtual function
        MailboxToVirtualFunction "mailbox_send_msg_to_vf" = 0x0802,
        /// local or remote LLDP data
        LldpGetMib "lldp_get_mib" = 0x0A00,
        /// events when the data change; as an event: they did
        LldpMibChange "lldp_set_mib_change" = 0x0A01,
        /// stops the firmware's LLDP agent
        LldpStop "lldp_stop" = 0x0A05,
        /// starts it
        LldpStart "lldp_start" = 0x0A06,
        /// operational DCB configuration
        GetCeeDcbConfig "get_cee_dcb_cfg" = 0x0A07,
        /// writes local LLDP data
        LldpSetLocalMib "lldp_set_local_mib" = 0x0A08,
        /// stops or starts the DCB agent
        LldpDcbAgent "lldp_stop_start_specific_agent" = 0x0A09,
        /// receives LLDP packets in a VSI
        LldpFilterControl "lldp_filter_ctrl" = 0x0A0A,
        /// applies pending data
        LldpExecutePendingMib "lldp_execute_pending_mib" = 0x0A0B,
        /// writes the hash key
        SetRssKey "set_rss_key" = 0x0B02,
        /// writes the lookup table
        SetRssTable "set_rss_lut" = 0x0B03,
        /// reads the hash key
        GetRssKey "get_rss_key" = 0x0B04,
        /// reads the lookup table
        GetRssTable "get_rss_lut" = 0x0B05,
        /// registers of the PHY
        NeighbourDeviceRequest "neighbour_device_request" = 0x0C00,
        /// allocates a table of the access control list; DPDK only, as all of it
        AllocateAccessTable "alloc_acl_tbl" = 0x0C10,
        /// frees it
        FreeAccessTable "dealloc_acl_tbl" = 0x0C11,
        /// allocates a memory of actions
        AllocateAccessActions "alloc_acl_actpair" = 0x0C12,
        /// frees it
        FreeAccessActions "dealloc_acl_actpair" = 0x0C13,
        /// allocates a scenario: how parts of the table form entries
        AllocateAccessScenario "alloc_acl_scen" = 0x0C14,
        /// frees it
        FreeAccessScenario "dealloc_acl_scen" = 0x0C15,
        /// allocates counters
        AllocateAccessCounters "alloc_acl_counters" = 0x0C16,
        /// frees them
        FreeAccessCounters "dealloc_acl_counters" = 0x0C17,
        /// frees all of a function
        FreeAccessResources "dealloc_acl_res" = 0x0C1A,
        /// changes a scenario
        UpdateAccessScenario "update_acl_scen" = 0x0C1B,
        /// writes two actions of an entry
        ProgramAccessActions "program_acl_actpair" = 0x0C1C,
        /// writes the fields that a profile extracts from packets
        ProgramAccessProfile "program_acl_prof_extraction" = 0x0C1D,
        /// writes a profile's ranges of ports
        ProgramAccessRanges "program_acl_prof_ranges" = 0x0C1E,
        /// writes the key of an entry
        ProgramAccessEntry "program_acl_entry" = 0x0C20,
        /// reads a profile
        QueryAccessProfile "query_acl_prof" = 0x0C21,
        /// reads a profile's ranges of ports
        QueryAccessRanges "query_acl_prof_ranges" = 0x0C22,
        /// reads a scenario
        QueryAccessScenario "query_acl_scen" = 0x0C23,
        /// reads an entry
        QueryAccessEntry "query_acl_entry" = 0x0C24,
        /// reads actions
        QueryAccessActions "query_acl_actpair" = 0x0C25,
        /// reads a counter
        QueryAccessCounter "query_acl_counter" = 0x0C27,
        /// adds transmit queues with their contexts
        AddTransmitQueues "add_txqs" = 0x0C30,
        /// removes transmit queues
        DisableTransmitQueues "dis_txqs" = 0x0C31,
        /// moves transmit queues
        MoveTransmitQueues "cfg_txqs" = 0x0C32,
        /// adds RDMA queue sets
        AddRdmaQueueSets "add_rdma_qset" = 0x0C33,
        /// a buffer of the package
        DownloadPackage "download_pkg" = 0x0C40,
        /// reads a section back
        UploadSection "upload_section" = 0x0C41,
        /// changes tables of the package
        UpdatePackage "update_pkg" = 0x0C42,
        /// packages that are there
        GetPackageInfo "get_pkg_info_list" = 0x0C43,
        /// clock unit
        GetClockAbilities "get_cgu_abilities" = 0x0C61,
        /// clock unit
        SetClockInput "set_cgu_input_config" = 0x0C62,
        /// clock unit
        GetClockInput "get_cgu_input_config" = 0x0C63,
        /// clock unit
        SetClockOutput "set_cgu_output_config" = 0x0C64,
        /// clock unit
        GetClockOutput "get_cgu_output_config" = 0x0C65,
        /// clock unit
        GetClockLoopStatus "get_cgu_dpll_status" = 0x0C66,
        /// clock unit
        SetClockLoop "set_cgu_dpll_config" = 0x0C67,
        /// clock unit
        SetClockPriority "set_cgu_ref_prio" = 0x0C68,
        /// clock unit
        GetClockPriority "get_cgu_ref_prio" = 0x0C69,
        /// clock unit
        GetClockInfo "get_cgu_info" = 0x0C6A,
        /// words that the drivers share
        DriverSharedParameters "driver_shared_params" = 0x0C90,
        /// event: a queue overflowed
        LanOverflow "event_lan_overflow" = 0x1001,
        /// the health events that are sent
        SetHealthEvents "set_health_status_cfg" = 0xFF20,
        /// health events that the firmware supports
        GetHealthCodes "get_supported_health_status_codes" = 0xFF21,
        /// health events that are pending; as an event: there are some
        GetHealthEvents "get_health_status" = 0xFF22,
        /// firmware log
        FirmwareLogConfig "fw_logs_config" = 0xFF30,
        /// firmware log
        FirmwareLogRegister "fw_logs_register" = 0xFF31,
        /// firmware log
        FirmwareLogQuery "fw_logs_query" = 0xFF32,
        /// firmware log
        FirmwareLogEvent "fw_logs_event" = 0xFF33,
    }

    /// The result of a command. Source: ice `ice_adminq_cmd.h`, `ice_aq_err`.
    pub enum ReturnCode: u8 {
        /// success
        Ok "ok" = 0,
        /// operation not permitted
        NotPermitted "eperm" = 1,
        /// no element with this number
        NoEntry "enoent" = 2,
        /// out of memory, or the buffer is too small
        NoMemory "enomem" = 9,
        /// resource busy: try again later
        Busy "ebusy" = 12,
        /// object exists already
        Exists "eexist" = 13,
        /// invalid argument
        Invalid "einval" = 14,
        /// no space left or allocation failed
        NoSpace "enospc" = 16,
        /// function not implemented
        NotImplemented "enosys" = 17,
        /// not allowed in this mode
        WrongMode "emode" = 21,
        /// security manifest missing
        NoSecurity "enosec" = 24,
        /// bad RSA signature
        BadSignature "ebadsig" = 25,
        /// security version number prohibits the package
        SecurityVersion "esvn" = 26,
        /// manifest hash mismatch
        BadManifest "ebadman" = 27,
        /// buffer hash mismatches manifest
        BadBuffer "ebadbuf" = 28,
    }
}

/// Further commands that a driver may send, with their C names: neither our driver nor the model
/// knows more of them. Source: DPDK `ice_adminq_cmd.h`, Intel's ice 2.6.6 `ice_adminq_cmd.h`.
pub const FURTHER: &[(u16, &str)] = &[
    (0x0204, "get_res_alloc"),
    (0x0260, "add_update_mir_rule"),
    (0x0261, "del_mir_rule"),
    (0x0280, "set_storm_cfg"),
    (0x0281, "get_storm_cfg"),
    (0x02A3, "get_sw_rules"),
    (0x0301, "pfc_ignore"),
    (0x0306, "set_dcb_params"),
    (0x0413, "query_node_to_root"),
    (0x0414, "cfg_l2_node_cgd"),
    (0x0419, "cfg_node_attr"),
    (0x041A, "query_node_attr"),
    (0x0622, "set_phy_debug"),
    (0x0680, "dnl_get_status"),
    (0x0681, "dnl_run"),
    (0x0683, "dnl_read_sto"),
    (0x0684, "dnl_write_sto"),
    (0x0686, "dnl_set_breakpoints"),
    (0x0687, "dnl_read_log"),
    (0x06E1, "get_link_topo_pin"),
    (0x06E4, "read_mdio"),
    (0x06E5, "write_mdio"),
    (0x06E6, "set_gpio_by_func"),
    (0x06E7, "get_gpio_by_func"),
    (0x06E8, "set_led"),
    (0x06EF, "sw_set_gpio"),
    (0x06F0, "sw_get_gpio"),
    (0x06F2, "prog_topo_dev_nvm"),
    (0x06F3, "read_topo_dev_nvm"),
    (0x0704, "nvm_cfg_read"),
    (0x0705, "nvm_cfg_write"),
    (0x0708, "nvm_save_factory_settings"),
    (0x070C, "nvm_sanitization"),
    (0x0A02, "lldp_add_tlv"),
    (0x0A03, "lldp_update_tlv"),
    (0x0A04, "lldp_delete_tlv"),
    (0x0B06, "clear_fd_table"),
    (0x0C34, "move_rdma_qset"),
    (0x0C35, "set_txtimeqs"),
    (0x0C37, "ena_dis_txtimeqs"),
    (0x0C59, "get_cgu_input_measure"),
    (0x0C60, "cfg_cgu_err"),
    (0x0C6E, "read_cgu_reg"),
    (0x0C6F, "write_cgu_reg"),
    (0xFF08, "debug_dump_internals"),
    (0xFF23, "clear_health_status"),
    (0xFF34, "fw_logs_get"),
    (0xFF35, "fw_logs_clear"),
];

/// The C name of a command in [`FURTHER`].
#[must_use]
pub fn further_name(code: u16) -> Option<&'static str> {
    let found = FURTHER.iter().find(|(known, _)| *known == code);
    found.map(|(_, name)| *name)
}
