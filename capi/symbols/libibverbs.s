/* Symbols that exist in several versions, and those that only refuse. */
    .text
    .globl __ioctl_final_num_attrs
    .type __ioctl_final_num_attrs, @function
__ioctl_final_num_attrs:
    jmp ringside_refuse_number@PLT
    .size __ioctl_final_num_attrs, . - __ioctl_final_num_attrs
    .globl __verbs_log
    .type __verbs_log, @function
__verbs_log:
    jmp ringside_refuse_number@PLT
    .size __verbs_log, . - __verbs_log
    .globl _verbs_init_and_alloc_context
    .type _verbs_init_and_alloc_context, @function
_verbs_init_and_alloc_context:
    jmp ringside_refuse_pointer@PLT
    .size _verbs_init_and_alloc_context, . - _verbs_init_and_alloc_context
    .globl execute_ioctl
    .type execute_ioctl, @function
execute_ioctl:
    jmp ringside_refuse_number@PLT
    .size execute_ioctl, . - execute_ioctl
    .globl ibv_cmd_advise_mr
    .type ibv_cmd_advise_mr, @function
ibv_cmd_advise_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_advise_mr, . - ibv_cmd_advise_mr
    .globl ibv_cmd_alloc_dm
    .type ibv_cmd_alloc_dm, @function
ibv_cmd_alloc_dm:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_alloc_dm, . - ibv_cmd_alloc_dm
    .globl ibv_cmd_alloc_dmah
    .type ibv_cmd_alloc_dmah, @function
ibv_cmd_alloc_dmah:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_alloc_dmah, . - ibv_cmd_alloc_dmah
    .globl ibv_cmd_alloc_mw
    .type ibv_cmd_alloc_mw, @function
ibv_cmd_alloc_mw:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_alloc_mw, . - ibv_cmd_alloc_mw
    .globl ibv_cmd_alloc_pd
    .type ibv_cmd_alloc_pd, @function
ibv_cmd_alloc_pd:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_alloc_pd, . - ibv_cmd_alloc_pd
    .globl ibv_cmd_attach_mcast
    .type ibv_cmd_attach_mcast, @function
ibv_cmd_attach_mcast:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_attach_mcast, . - ibv_cmd_attach_mcast
    .globl ibv_cmd_close_xrcd
    .type ibv_cmd_close_xrcd, @function
ibv_cmd_close_xrcd:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_close_xrcd, . - ibv_cmd_close_xrcd
    .globl ibv_cmd_create_ah
    .type ibv_cmd_create_ah, @function
ibv_cmd_create_ah:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_ah, . - ibv_cmd_create_ah
    .globl ibv_cmd_create_comp_cntr
    .type ibv_cmd_create_comp_cntr, @function
ibv_cmd_create_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_comp_cntr, . - ibv_cmd_create_comp_cntr
    .globl ibv_cmd_create_counters
    .type ibv_cmd_create_counters, @function
ibv_cmd_create_counters:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_counters, . - ibv_cmd_create_counters
    .globl ibv_cmd_create_cq
    .type ibv_cmd_create_cq, @function
ibv_cmd_create_cq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_cq, . - ibv_cmd_create_cq
    .globl ibv_cmd_create_cq_ex
    .type ibv_cmd_create_cq_ex, @function
ibv_cmd_create_cq_ex:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_cq_ex, . - ibv_cmd_create_cq_ex
    .globl ibv_cmd_create_cq_ex2
    .type ibv_cmd_create_cq_ex2, @function
ibv_cmd_create_cq_ex2:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_cq_ex2, . - ibv_cmd_create_cq_ex2
    .globl ibv_cmd_create_flow
    .type ibv_cmd_create_flow, @function
ibv_cmd_create_flow:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_flow, . - ibv_cmd_create_flow
    .globl ibv_cmd_create_flow_action_esp
    .type ibv_cmd_create_flow_action_esp, @function
ibv_cmd_create_flow_action_esp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_flow_action_esp, . - ibv_cmd_create_flow_action_esp
    .globl ibv_cmd_create_qp
    .type ibv_cmd_create_qp, @function
ibv_cmd_create_qp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_qp, . - ibv_cmd_create_qp
    .globl ibv_cmd_create_qp_ex
    .type ibv_cmd_create_qp_ex, @function
ibv_cmd_create_qp_ex:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_qp_ex, . - ibv_cmd_create_qp_ex
    .globl ibv_cmd_create_qp_ex2
    .type ibv_cmd_create_qp_ex2, @function
ibv_cmd_create_qp_ex2:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_qp_ex2, . - ibv_cmd_create_qp_ex2
    .globl ibv_cmd_create_rwq_ind_table
    .type ibv_cmd_create_rwq_ind_table, @function
ibv_cmd_create_rwq_ind_table:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_rwq_ind_table, . - ibv_cmd_create_rwq_ind_table
    .globl ibv_cmd_create_srq
    .type ibv_cmd_create_srq, @function
ibv_cmd_create_srq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_srq, . - ibv_cmd_create_srq
    .globl ibv_cmd_create_srq_ex
    .type ibv_cmd_create_srq_ex, @function
ibv_cmd_create_srq_ex:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_srq_ex, . - ibv_cmd_create_srq_ex
    .globl ibv_cmd_create_wq
    .type ibv_cmd_create_wq, @function
ibv_cmd_create_wq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_create_wq, . - ibv_cmd_create_wq
    .globl ibv_cmd_dealloc_mw
    .type ibv_cmd_dealloc_mw, @function
ibv_cmd_dealloc_mw:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_dealloc_mw, . - ibv_cmd_dealloc_mw
    .globl ibv_cmd_dealloc_pd
    .type ibv_cmd_dealloc_pd, @function
ibv_cmd_dealloc_pd:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_dealloc_pd, . - ibv_cmd_dealloc_pd
    .globl ibv_cmd_dereg_mr
    .type ibv_cmd_dereg_mr, @function
ibv_cmd_dereg_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_dereg_mr, . - ibv_cmd_dereg_mr
    .globl ibv_cmd_destroy_ah
    .type ibv_cmd_destroy_ah, @function
ibv_cmd_destroy_ah:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_ah, . - ibv_cmd_destroy_ah
    .globl ibv_cmd_destroy_comp_cntr
    .type ibv_cmd_destroy_comp_cntr, @function
ibv_cmd_destroy_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_comp_cntr, . - ibv_cmd_destroy_comp_cntr
    .globl ibv_cmd_destroy_counters
    .type ibv_cmd_destroy_counters, @function
ibv_cmd_destroy_counters:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_counters, . - ibv_cmd_destroy_counters
    .globl ibv_cmd_destroy_cq
    .type ibv_cmd_destroy_cq, @function
ibv_cmd_destroy_cq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_cq, . - ibv_cmd_destroy_cq
    .globl ibv_cmd_destroy_flow
    .type ibv_cmd_destroy_flow, @function
ibv_cmd_destroy_flow:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_flow, . - ibv_cmd_destroy_flow
    .globl ibv_cmd_destroy_flow_action
    .type ibv_cmd_destroy_flow_action, @function
ibv_cmd_destroy_flow_action:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_flow_action, . - ibv_cmd_destroy_flow_action
    .globl ibv_cmd_destroy_qp
    .type ibv_cmd_destroy_qp, @function
ibv_cmd_destroy_qp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_qp, . - ibv_cmd_destroy_qp
    .globl ibv_cmd_destroy_rwq_ind_table
    .type ibv_cmd_destroy_rwq_ind_table, @function
ibv_cmd_destroy_rwq_ind_table:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_rwq_ind_table, . - ibv_cmd_destroy_rwq_ind_table
    .globl ibv_cmd_destroy_srq
    .type ibv_cmd_destroy_srq, @function
ibv_cmd_destroy_srq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_srq, . - ibv_cmd_destroy_srq
    .globl ibv_cmd_destroy_wq
    .type ibv_cmd_destroy_wq, @function
ibv_cmd_destroy_wq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_destroy_wq, . - ibv_cmd_destroy_wq
    .globl ibv_cmd_detach_mcast
    .type ibv_cmd_detach_mcast, @function
ibv_cmd_detach_mcast:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_detach_mcast, . - ibv_cmd_detach_mcast
    .globl ibv_cmd_export_dmabuf_fd
    .type ibv_cmd_export_dmabuf_fd, @function
ibv_cmd_export_dmabuf_fd:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_export_dmabuf_fd, . - ibv_cmd_export_dmabuf_fd
    .globl ibv_cmd_free_dm
    .type ibv_cmd_free_dm, @function
ibv_cmd_free_dm:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_free_dm, . - ibv_cmd_free_dm
    .globl ibv_cmd_free_dmah
    .type ibv_cmd_free_dmah, @function
ibv_cmd_free_dmah:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_free_dmah, . - ibv_cmd_free_dmah
    .globl ibv_cmd_get_context
    .type ibv_cmd_get_context, @function
ibv_cmd_get_context:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_get_context, . - ibv_cmd_get_context
    .globl ibv_cmd_inc_comp_cntr
    .type ibv_cmd_inc_comp_cntr, @function
ibv_cmd_inc_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_inc_comp_cntr, . - ibv_cmd_inc_comp_cntr
    .globl ibv_cmd_inc_err_comp_cntr
    .type ibv_cmd_inc_err_comp_cntr, @function
ibv_cmd_inc_err_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_inc_err_comp_cntr, . - ibv_cmd_inc_err_comp_cntr
    .globl ibv_cmd_modify_cq
    .type ibv_cmd_modify_cq, @function
ibv_cmd_modify_cq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_modify_cq, . - ibv_cmd_modify_cq
    .globl ibv_cmd_modify_flow_action_esp
    .type ibv_cmd_modify_flow_action_esp, @function
ibv_cmd_modify_flow_action_esp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_modify_flow_action_esp, . - ibv_cmd_modify_flow_action_esp
    .globl ibv_cmd_modify_qp
    .type ibv_cmd_modify_qp, @function
ibv_cmd_modify_qp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_modify_qp, . - ibv_cmd_modify_qp
    .globl ibv_cmd_modify_qp_ex
    .type ibv_cmd_modify_qp_ex, @function
ibv_cmd_modify_qp_ex:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_modify_qp_ex, . - ibv_cmd_modify_qp_ex
    .globl ibv_cmd_modify_srq
    .type ibv_cmd_modify_srq, @function
ibv_cmd_modify_srq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_modify_srq, . - ibv_cmd_modify_srq
    .globl ibv_cmd_modify_wq
    .type ibv_cmd_modify_wq, @function
ibv_cmd_modify_wq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_modify_wq, . - ibv_cmd_modify_wq
    .globl ibv_cmd_open_qp
    .type ibv_cmd_open_qp, @function
ibv_cmd_open_qp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_open_qp, . - ibv_cmd_open_qp
    .globl ibv_cmd_open_xrcd
    .type ibv_cmd_open_xrcd, @function
ibv_cmd_open_xrcd:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_open_xrcd, . - ibv_cmd_open_xrcd
    .globl ibv_cmd_poll_cq
    .type ibv_cmd_poll_cq, @function
ibv_cmd_poll_cq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_poll_cq, . - ibv_cmd_poll_cq
    .globl ibv_cmd_post_recv
    .type ibv_cmd_post_recv, @function
ibv_cmd_post_recv:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_post_recv, . - ibv_cmd_post_recv
    .globl ibv_cmd_post_send
    .type ibv_cmd_post_send, @function
ibv_cmd_post_send:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_post_send, . - ibv_cmd_post_send
    .globl ibv_cmd_post_srq_recv
    .type ibv_cmd_post_srq_recv, @function
ibv_cmd_post_srq_recv:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_post_srq_recv, . - ibv_cmd_post_srq_recv
    .globl ibv_cmd_qp_attach_comp_cntr
    .type ibv_cmd_qp_attach_comp_cntr, @function
ibv_cmd_qp_attach_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_qp_attach_comp_cntr, . - ibv_cmd_qp_attach_comp_cntr
    .globl ibv_cmd_query_comp_cntr_caps
    .type ibv_cmd_query_comp_cntr_caps, @function
ibv_cmd_query_comp_cntr_caps:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_comp_cntr_caps, . - ibv_cmd_query_comp_cntr_caps
    .globl ibv_cmd_query_context
    .type ibv_cmd_query_context, @function
ibv_cmd_query_context:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_context, . - ibv_cmd_query_context
    .globl ibv_cmd_query_device_any
    .type ibv_cmd_query_device_any, @function
ibv_cmd_query_device_any:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_device_any, . - ibv_cmd_query_device_any
    .globl ibv_cmd_query_mr
    .type ibv_cmd_query_mr, @function
ibv_cmd_query_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_mr, . - ibv_cmd_query_mr
    .globl ibv_cmd_query_port
    .type ibv_cmd_query_port, @function
ibv_cmd_query_port:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_port, . - ibv_cmd_query_port
    .globl ibv_cmd_query_port_speed
    .type ibv_cmd_query_port_speed, @function
ibv_cmd_query_port_speed:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_port_speed, . - ibv_cmd_query_port_speed
    .globl ibv_cmd_query_qp
    .type ibv_cmd_query_qp, @function
ibv_cmd_query_qp:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_qp, . - ibv_cmd_query_qp
    .globl ibv_cmd_query_srq
    .type ibv_cmd_query_srq, @function
ibv_cmd_query_srq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_query_srq, . - ibv_cmd_query_srq
    .globl ibv_cmd_read_comp_cntr
    .type ibv_cmd_read_comp_cntr, @function
ibv_cmd_read_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_read_comp_cntr, . - ibv_cmd_read_comp_cntr
    .globl ibv_cmd_read_counters
    .type ibv_cmd_read_counters, @function
ibv_cmd_read_counters:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_read_counters, . - ibv_cmd_read_counters
    .globl ibv_cmd_read_err_comp_cntr
    .type ibv_cmd_read_err_comp_cntr, @function
ibv_cmd_read_err_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_read_err_comp_cntr, . - ibv_cmd_read_err_comp_cntr
    .globl ibv_cmd_reg_dm_mr
    .type ibv_cmd_reg_dm_mr, @function
ibv_cmd_reg_dm_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_reg_dm_mr, . - ibv_cmd_reg_dm_mr
    .globl ibv_cmd_reg_dmabuf_mr
    .type ibv_cmd_reg_dmabuf_mr, @function
ibv_cmd_reg_dmabuf_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_reg_dmabuf_mr, . - ibv_cmd_reg_dmabuf_mr
    .globl ibv_cmd_reg_mr
    .type ibv_cmd_reg_mr, @function
ibv_cmd_reg_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_reg_mr, . - ibv_cmd_reg_mr
    .globl ibv_cmd_reg_mr_ex
    .type ibv_cmd_reg_mr_ex, @function
ibv_cmd_reg_mr_ex:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_reg_mr_ex, . - ibv_cmd_reg_mr_ex
    .globl ibv_cmd_req_notify_cq
    .type ibv_cmd_req_notify_cq, @function
ibv_cmd_req_notify_cq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_req_notify_cq, . - ibv_cmd_req_notify_cq
    .globl ibv_cmd_rereg_mr
    .type ibv_cmd_rereg_mr, @function
ibv_cmd_rereg_mr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_rereg_mr, . - ibv_cmd_rereg_mr
    .globl ibv_cmd_resize_cq
    .type ibv_cmd_resize_cq, @function
ibv_cmd_resize_cq:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_resize_cq, . - ibv_cmd_resize_cq
    .globl ibv_cmd_set_comp_cntr
    .type ibv_cmd_set_comp_cntr, @function
ibv_cmd_set_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_set_comp_cntr, . - ibv_cmd_set_comp_cntr
    .globl ibv_cmd_set_err_comp_cntr
    .type ibv_cmd_set_err_comp_cntr, @function
ibv_cmd_set_err_comp_cntr:
    jmp ringside_refuse_number@PLT
    .size ibv_cmd_set_err_comp_cntr, . - ibv_cmd_set_err_comp_cntr
    .globl ibv_dmabuf_heap_alloc
    .type ibv_dmabuf_heap_alloc, @function
ibv_dmabuf_heap_alloc:
    jmp ringside_refuse_number@PLT
    .size ibv_dmabuf_heap_alloc, . - ibv_dmabuf_heap_alloc
    .globl ibv_dmabuf_heap_cc_shared_init
    .type ibv_dmabuf_heap_cc_shared_init, @function
ibv_dmabuf_heap_cc_shared_init:
    jmp ringside_refuse_number@PLT
    .size ibv_dmabuf_heap_cc_shared_init, . - ibv_dmabuf_heap_cc_shared_init
    .globl ibv_dmabuf_heap_destroy
    .type ibv_dmabuf_heap_destroy, @function
ibv_dmabuf_heap_destroy:
    jmp ringside_refuse_number@PLT
    .size ibv_dmabuf_heap_destroy, . - ibv_dmabuf_heap_destroy
    .globl ibv_dmabuf_heap_free
    .type ibv_dmabuf_heap_free, @function
ibv_dmabuf_heap_free:
    jmp ringside_refuse_number@PLT
    .size ibv_dmabuf_heap_free, . - ibv_dmabuf_heap_free
    .globl ibv_read_ibdev_sysfs_file
    .type ibv_read_ibdev_sysfs_file, @function
ibv_read_ibdev_sysfs_file:
    jmp ringside_refuse_number@PLT
    .size ibv_read_ibdev_sysfs_file, . - ibv_read_ibdev_sysfs_file
    .globl verbs_init_cq
    .type verbs_init_cq, @function
verbs_init_cq:
    jmp ringside_refuse_number@PLT
    .size verbs_init_cq, . - verbs_init_cq
    .globl verbs_open_device
    .type verbs_open_device, @function
verbs_open_device:
    jmp ringside_refuse_pointer@PLT
    .size verbs_open_device, . - verbs_open_device
    .globl verbs_set_ops
    .type verbs_set_ops, @function
verbs_set_ops:
    jmp ringside_refuse_number@PLT
    .size verbs_set_ops, . - verbs_set_ops
    .globl verbs_uninit_context
    .type verbs_uninit_context, @function
verbs_uninit_context:
    jmp ringside_refuse_number@PLT
    .size verbs_uninit_context, . - verbs_uninit_context
/* Private names of rdma-core's releases: those of 57 to 65 stand in nodes of their own. */
    .macro private name, target, releases:vararg
    .irp release, \releases
    .globl \name\()_of_\release
    .type \name\()_of_\release, @function
\name\()_of_\release:
    jmp \target\()@PLT
    .size \name\()_of_\release, . - \name\()_of_\release
    .symver \name\()_of_\release, \name\()@IBVERBS_PRIVATE_\release
    .endr
    .endm
    private __ioctl_final_num_attrs, ringside_refuse_number, 57, 59, 64, 65
    private __verbs_log, ringside_refuse_number, 57, 59, 64, 65
    private _verbs_init_and_alloc_context, ringside_refuse_pointer, 57, 59, 64, 65
    private execute_ioctl, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_advise_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_alloc_dm, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_alloc_dmah, ringside_refuse_number, 59, 64
    private ibv_cmd_alloc_mw, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_alloc_pd, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_attach_mcast, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_close_xrcd, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_ah, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_counters, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_cq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_cq_ex, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_cq_ex2, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_flow, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_flow_action_esp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_qp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_qp_ex, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_qp_ex2, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_rwq_ind_table, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_srq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_srq_ex, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_create_wq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_dealloc_mw, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_dealloc_pd, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_dereg_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_ah, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_counters, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_cq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_flow, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_flow_action, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_qp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_rwq_ind_table, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_srq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_destroy_wq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_detach_mcast, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_export_dmabuf_fd, ringside_refuse_number, 59, 64
    private ibv_cmd_free_dm, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_free_dmah, ringside_refuse_number, 59, 64
    private ibv_cmd_get_context, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_modify_cq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_modify_flow_action_esp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_modify_qp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_modify_qp_ex, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_modify_srq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_modify_wq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_open_qp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_open_xrcd, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_poll_cq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_post_recv, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_post_send, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_post_srq_recv, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_query_context, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_query_device_any, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_query_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_query_port, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_query_port_speed, ringside_refuse_number, 59, 64
    private ibv_cmd_query_qp, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_query_srq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_read_counters, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_reg_dm_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_reg_dmabuf_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_reg_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_reg_mr_ex, ringside_refuse_number, 59, 64
    private ibv_cmd_req_notify_cq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_rereg_mr, ringside_refuse_number, 57, 59, 64, 65
    private ibv_cmd_resize_cq, ringside_refuse_number, 57, 59, 64, 65
    private ibv_dmabuf_heap_alloc, ringside_refuse_number, 64
    private ibv_dmabuf_heap_cc_shared_init, ringside_refuse_number, 64
    private ibv_dmabuf_heap_destroy, ringside_refuse_number, 64
    private ibv_dmabuf_heap_free, ringside_refuse_number, 64
    private ibv_query_gid_type, ibv_query_gid_type, 57, 59, 64, 65
    private ibv_read_ibdev_sysfs_file, ringside_refuse_number, 57, 59, 64, 65
    private ibv_wr_opcode_str, ibv_wr_opcode_str, 57, 59, 64, 65
    private verbs_init_cq, ringside_refuse_number, 57, 59, 64, 65
    private verbs_open_device, ringside_refuse_pointer, 57, 59, 64, 65
    private verbs_set_ops, ringside_refuse_number, 57, 59, 64, 65
    private verbs_uninit_context, ringside_refuse_number, 57, 59, 64, 65
    .globl release_1_0_ibv_ack_async_event
    .type release_1_0_ibv_ack_async_event, @function
release_1_0_ibv_ack_async_event:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_ack_async_event, . - release_1_0_ibv_ack_async_event
    .symver release_1_0_ibv_ack_async_event, ibv_ack_async_event@IBVERBS_1.0
    .globl release_1_0_ibv_ack_cq_events
    .type release_1_0_ibv_ack_cq_events, @function
release_1_0_ibv_ack_cq_events:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_ack_cq_events, . - release_1_0_ibv_ack_cq_events
    .symver release_1_0_ibv_ack_cq_events, ibv_ack_cq_events@IBVERBS_1.0
    .globl release_1_0_ibv_alloc_pd
    .type release_1_0_ibv_alloc_pd, @function
release_1_0_ibv_alloc_pd:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_alloc_pd, . - release_1_0_ibv_alloc_pd
    .symver release_1_0_ibv_alloc_pd, ibv_alloc_pd@IBVERBS_1.0
    .globl release_1_0_ibv_attach_mcast
    .type release_1_0_ibv_attach_mcast, @function
release_1_0_ibv_attach_mcast:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_attach_mcast, . - release_1_0_ibv_attach_mcast
    .symver release_1_0_ibv_attach_mcast, ibv_attach_mcast@IBVERBS_1.0
    .globl release_1_0_ibv_close_device
    .type release_1_0_ibv_close_device, @function
release_1_0_ibv_close_device:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_close_device, . - release_1_0_ibv_close_device
    .symver release_1_0_ibv_close_device, ibv_close_device@IBVERBS_1.0
    .globl release_1_0_ibv_create_ah
    .type release_1_0_ibv_create_ah, @function
release_1_0_ibv_create_ah:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_create_ah, . - release_1_0_ibv_create_ah
    .symver release_1_0_ibv_create_ah, ibv_create_ah@IBVERBS_1.0
    .globl release_1_0_ibv_create_cq
    .type release_1_0_ibv_create_cq, @function
release_1_0_ibv_create_cq:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_create_cq, . - release_1_0_ibv_create_cq
    .symver release_1_0_ibv_create_cq, ibv_create_cq@IBVERBS_1.0
    .globl release_1_0_ibv_create_qp
    .type release_1_0_ibv_create_qp, @function
release_1_0_ibv_create_qp:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_create_qp, . - release_1_0_ibv_create_qp
    .symver release_1_0_ibv_create_qp, ibv_create_qp@IBVERBS_1.0
    .globl release_1_0_ibv_create_srq
    .type release_1_0_ibv_create_srq, @function
release_1_0_ibv_create_srq:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_create_srq, . - release_1_0_ibv_create_srq
    .symver release_1_0_ibv_create_srq, ibv_create_srq@IBVERBS_1.0
    .globl release_1_0_ibv_dealloc_pd
    .type release_1_0_ibv_dealloc_pd, @function
release_1_0_ibv_dealloc_pd:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_dealloc_pd, . - release_1_0_ibv_dealloc_pd
    .symver release_1_0_ibv_dealloc_pd, ibv_dealloc_pd@IBVERBS_1.0
    .globl release_1_0_ibv_dereg_mr
    .type release_1_0_ibv_dereg_mr, @function
release_1_0_ibv_dereg_mr:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_dereg_mr, . - release_1_0_ibv_dereg_mr
    .symver release_1_0_ibv_dereg_mr, ibv_dereg_mr@IBVERBS_1.0
    .globl release_1_0_ibv_destroy_ah
    .type release_1_0_ibv_destroy_ah, @function
release_1_0_ibv_destroy_ah:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_destroy_ah, . - release_1_0_ibv_destroy_ah
    .symver release_1_0_ibv_destroy_ah, ibv_destroy_ah@IBVERBS_1.0
    .globl release_1_0_ibv_destroy_cq
    .type release_1_0_ibv_destroy_cq, @function
release_1_0_ibv_destroy_cq:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_destroy_cq, . - release_1_0_ibv_destroy_cq
    .symver release_1_0_ibv_destroy_cq, ibv_destroy_cq@IBVERBS_1.0
    .globl release_1_0_ibv_destroy_qp
    .type release_1_0_ibv_destroy_qp, @function
release_1_0_ibv_destroy_qp:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_destroy_qp, . - release_1_0_ibv_destroy_qp
    .symver release_1_0_ibv_destroy_qp, ibv_destroy_qp@IBVERBS_1.0
    .globl release_1_0_ibv_destroy_srq
    .type release_1_0_ibv_destroy_srq, @function
release_1_0_ibv_destroy_srq:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_destroy_srq, . - release_1_0_ibv_destroy_srq
    .symver release_1_0_ibv_destroy_srq, ibv_destroy_srq@IBVERBS_1.0
    .globl release_1_0_ibv_detach_mcast
    .type release_1_0_ibv_detach_mcast, @function
release_1_0_ibv_detach_mcast:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_detach_mcast, . - release_1_0_ibv_detach_mcast
    .symver release_1_0_ibv_detach_mcast, ibv_detach_mcast@IBVERBS_1.0
    .globl release_1_0_ibv_free_device_list
    .type release_1_0_ibv_free_device_list, @function
release_1_0_ibv_free_device_list:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_free_device_list, . - release_1_0_ibv_free_device_list
    .symver release_1_0_ibv_free_device_list, ibv_free_device_list@IBVERBS_1.0
    .globl release_1_0_ibv_get_async_event
    .type release_1_0_ibv_get_async_event, @function
release_1_0_ibv_get_async_event:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_get_async_event, . - release_1_0_ibv_get_async_event
    .symver release_1_0_ibv_get_async_event, ibv_get_async_event@IBVERBS_1.0
    .globl release_1_0_ibv_get_cq_event
    .type release_1_0_ibv_get_cq_event, @function
release_1_0_ibv_get_cq_event:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_get_cq_event, . - release_1_0_ibv_get_cq_event
    .symver release_1_0_ibv_get_cq_event, ibv_get_cq_event@IBVERBS_1.0
    .globl release_1_0_ibv_get_device_guid
    .type release_1_0_ibv_get_device_guid, @function
release_1_0_ibv_get_device_guid:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_get_device_guid, . - release_1_0_ibv_get_device_guid
    .symver release_1_0_ibv_get_device_guid, ibv_get_device_guid@IBVERBS_1.0
    .globl release_1_0_ibv_get_device_list
    .type release_1_0_ibv_get_device_list, @function
release_1_0_ibv_get_device_list:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_get_device_list, . - release_1_0_ibv_get_device_list
    .symver release_1_0_ibv_get_device_list, ibv_get_device_list@IBVERBS_1.0
    .globl release_1_0_ibv_get_device_name
    .type release_1_0_ibv_get_device_name, @function
release_1_0_ibv_get_device_name:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_get_device_name, . - release_1_0_ibv_get_device_name
    .symver release_1_0_ibv_get_device_name, ibv_get_device_name@IBVERBS_1.0
    .globl release_1_0_ibv_modify_qp
    .type release_1_0_ibv_modify_qp, @function
release_1_0_ibv_modify_qp:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_modify_qp, . - release_1_0_ibv_modify_qp
    .symver release_1_0_ibv_modify_qp, ibv_modify_qp@IBVERBS_1.0
    .globl release_1_0_ibv_modify_srq
    .type release_1_0_ibv_modify_srq, @function
release_1_0_ibv_modify_srq:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_modify_srq, . - release_1_0_ibv_modify_srq
    .symver release_1_0_ibv_modify_srq, ibv_modify_srq@IBVERBS_1.0
    .globl release_1_0_ibv_open_device
    .type release_1_0_ibv_open_device, @function
release_1_0_ibv_open_device:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_open_device, . - release_1_0_ibv_open_device
    .symver release_1_0_ibv_open_device, ibv_open_device@IBVERBS_1.0
    .globl release_1_0_ibv_query_device
    .type release_1_0_ibv_query_device, @function
release_1_0_ibv_query_device:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_query_device, . - release_1_0_ibv_query_device
    .symver release_1_0_ibv_query_device, ibv_query_device@IBVERBS_1.0
    .globl release_1_0_ibv_query_gid
    .type release_1_0_ibv_query_gid, @function
release_1_0_ibv_query_gid:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_query_gid, . - release_1_0_ibv_query_gid
    .symver release_1_0_ibv_query_gid, ibv_query_gid@IBVERBS_1.0
    .globl release_1_0_ibv_query_pkey
    .type release_1_0_ibv_query_pkey, @function
release_1_0_ibv_query_pkey:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_query_pkey, . - release_1_0_ibv_query_pkey
    .symver release_1_0_ibv_query_pkey, ibv_query_pkey@IBVERBS_1.0
    .globl release_1_0_ibv_query_port
    .type release_1_0_ibv_query_port, @function
release_1_0_ibv_query_port:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_query_port, . - release_1_0_ibv_query_port
    .symver release_1_0_ibv_query_port, ibv_query_port@IBVERBS_1.0
    .globl release_1_0_ibv_query_qp
    .type release_1_0_ibv_query_qp, @function
release_1_0_ibv_query_qp:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_query_qp, . - release_1_0_ibv_query_qp
    .symver release_1_0_ibv_query_qp, ibv_query_qp@IBVERBS_1.0
    .globl release_1_0_ibv_query_srq
    .type release_1_0_ibv_query_srq, @function
release_1_0_ibv_query_srq:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_query_srq, . - release_1_0_ibv_query_srq
    .symver release_1_0_ibv_query_srq, ibv_query_srq@IBVERBS_1.0
    .globl release_1_0_ibv_reg_mr
    .type release_1_0_ibv_reg_mr, @function
release_1_0_ibv_reg_mr:
    jmp ringside_refuse_pointer@PLT
    .size release_1_0_ibv_reg_mr, . - release_1_0_ibv_reg_mr
    .symver release_1_0_ibv_reg_mr, ibv_reg_mr@IBVERBS_1.0
    .globl release_1_0_ibv_resize_cq
    .type release_1_0_ibv_resize_cq, @function
release_1_0_ibv_resize_cq:
    jmp ringside_refuse_number@PLT
    .size release_1_0_ibv_resize_cq, . - release_1_0_ibv_resize_cq
    .symver release_1_0_ibv_resize_cq, ibv_resize_cq@IBVERBS_1.0
/* The flag of `unsupported.rs`, in each of those releases. */
    .data
    .macro flag releases:vararg
    .irp release, \releases
    .globl flag_of_\release
    .type flag_of_\release, @object
    .size flag_of_\release, 1
flag_of_\release:
    .byte 0
    .symver flag_of_\release, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_\release
    .endr
    .endm
    flag 57, 59, 64, 65
    .section .note.GNU-stack,"",@progbits
