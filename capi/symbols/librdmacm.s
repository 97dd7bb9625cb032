/* The functions of librdmacm.so.1: each goes to libibverbs.so.1, where the device is. */
    .text
    .globl raccept
    .type raccept, @function
raccept:
    jmp ringside_raccept@PLT
    .size raccept, . - raccept
    .globl rbind
    .type rbind, @function
rbind:
    jmp ringside_rbind@PLT
    .size rbind, . - rbind
    .globl rclose
    .type rclose, @function
rclose:
    jmp ringside_rclose@PLT
    .size rclose, . - rclose
    .globl rconnect
    .type rconnect, @function
rconnect:
    jmp ringside_rconnect@PLT
    .size rconnect, . - rconnect
    .globl rdma_accept
    .type rdma_accept, @function
rdma_accept:
    jmp ringside_rdma_accept@PLT
    .size rdma_accept, . - rdma_accept
    .globl rdma_ack_cm_event
    .type rdma_ack_cm_event, @function
rdma_ack_cm_event:
    jmp ringside_rdma_ack_cm_event@PLT
    .size rdma_ack_cm_event, . - rdma_ack_cm_event
    .globl rdma_bind_addr
    .type rdma_bind_addr, @function
rdma_bind_addr:
    jmp ringside_rdma_bind_addr@PLT
    .size rdma_bind_addr, . - rdma_bind_addr
    .globl rdma_connect
    .type rdma_connect, @function
rdma_connect:
    jmp ringside_rdma_connect@PLT
    .size rdma_connect, . - rdma_connect
    .globl rdma_create_ep
    .type rdma_create_ep, @function
rdma_create_ep:
    jmp ringside_rdma_create_ep@PLT
    .size rdma_create_ep, . - rdma_create_ep
    .globl rdma_create_event_channel
    .type rdma_create_event_channel, @function
rdma_create_event_channel:
    jmp ringside_rdma_create_event_channel@PLT
    .size rdma_create_event_channel, . - rdma_create_event_channel
    .globl rdma_create_id
    .type rdma_create_id, @function
rdma_create_id:
    jmp ringside_rdma_create_id@PLT
    .size rdma_create_id, . - rdma_create_id
    .globl rdma_create_qp
    .type rdma_create_qp, @function
rdma_create_qp:
    jmp ringside_rdma_create_qp@PLT
    .size rdma_create_qp, . - rdma_create_qp
    .globl rdma_create_qp_ex
    .type rdma_create_qp_ex, @function
rdma_create_qp_ex:
    jmp ringside_rdma_create_qp_ex@PLT
    .size rdma_create_qp_ex, . - rdma_create_qp_ex
    .globl rdma_create_srq
    .type rdma_create_srq, @function
rdma_create_srq:
    jmp ringside_rdma_create_srq@PLT
    .size rdma_create_srq, . - rdma_create_srq
    .globl rdma_create_srq_ex
    .type rdma_create_srq_ex, @function
rdma_create_srq_ex:
    jmp ringside_rdma_create_srq_ex@PLT
    .size rdma_create_srq_ex, . - rdma_create_srq_ex
    .globl rdma_destroy_ep
    .type rdma_destroy_ep, @function
rdma_destroy_ep:
    jmp ringside_rdma_destroy_ep@PLT
    .size rdma_destroy_ep, . - rdma_destroy_ep
    .globl rdma_destroy_event_channel
    .type rdma_destroy_event_channel, @function
rdma_destroy_event_channel:
    jmp ringside_rdma_destroy_event_channel@PLT
    .size rdma_destroy_event_channel, . - rdma_destroy_event_channel
    .globl rdma_destroy_id
    .type rdma_destroy_id, @function
rdma_destroy_id:
    jmp ringside_rdma_destroy_id@PLT
    .size rdma_destroy_id, . - rdma_destroy_id
    .globl rdma_destroy_qp
    .type rdma_destroy_qp, @function
rdma_destroy_qp:
    jmp ringside_rdma_destroy_qp@PLT
    .size rdma_destroy_qp, . - rdma_destroy_qp
    .globl rdma_destroy_srq
    .type rdma_destroy_srq, @function
rdma_destroy_srq:
    jmp ringside_rdma_destroy_srq@PLT
    .size rdma_destroy_srq, . - rdma_destroy_srq
    .globl rdma_disconnect
    .type rdma_disconnect, @function
rdma_disconnect:
    jmp ringside_rdma_disconnect@PLT
    .size rdma_disconnect, . - rdma_disconnect
    .globl rdma_event_str
    .type rdma_event_str, @function
rdma_event_str:
    jmp ringside_rdma_event_str@PLT
    .size rdma_event_str, . - rdma_event_str
    .globl rdma_free_devices
    .type rdma_free_devices, @function
rdma_free_devices:
    jmp ringside_rdma_free_devices@PLT
    .size rdma_free_devices, . - rdma_free_devices
    .globl rdma_freeaddrinfo
    .type rdma_freeaddrinfo, @function
rdma_freeaddrinfo:
    jmp ringside_rdma_freeaddrinfo@PLT
    .size rdma_freeaddrinfo, . - rdma_freeaddrinfo
    .globl rdma_get_cm_event
    .type rdma_get_cm_event, @function
rdma_get_cm_event:
    jmp ringside_rdma_get_cm_event@PLT
    .size rdma_get_cm_event, . - rdma_get_cm_event
    .globl rdma_get_devices
    .type rdma_get_devices, @function
rdma_get_devices:
    jmp ringside_rdma_get_devices@PLT
    .size rdma_get_devices, . - rdma_get_devices
    .globl rdma_get_dst_port
    .type rdma_get_dst_port, @function
rdma_get_dst_port:
    jmp ringside_rdma_get_dst_port@PLT
    .size rdma_get_dst_port, . - rdma_get_dst_port
    .globl rdma_get_request
    .type rdma_get_request, @function
rdma_get_request:
    jmp ringside_rdma_get_request@PLT
    .size rdma_get_request, . - rdma_get_request
    .globl rdma_get_src_port
    .type rdma_get_src_port, @function
rdma_get_src_port:
    jmp ringside_rdma_get_src_port@PLT
    .size rdma_get_src_port, . - rdma_get_src_port
    .globl rdma_getaddrinfo
    .type rdma_getaddrinfo, @function
rdma_getaddrinfo:
    jmp ringside_rdma_getaddrinfo@PLT
    .size rdma_getaddrinfo, . - rdma_getaddrinfo
    .globl rdma_join_multicast
    .type rdma_join_multicast, @function
rdma_join_multicast:
    jmp ringside_rdma_join_multicast@PLT
    .size rdma_join_multicast, . - rdma_join_multicast
    .globl rdma_leave_multicast
    .type rdma_leave_multicast, @function
rdma_leave_multicast:
    jmp ringside_rdma_leave_multicast@PLT
    .size rdma_leave_multicast, . - rdma_leave_multicast
    .globl rdma_listen
    .type rdma_listen, @function
rdma_listen:
    jmp ringside_rdma_listen@PLT
    .size rdma_listen, . - rdma_listen
    .globl rdma_migrate_id
    .type rdma_migrate_id, @function
rdma_migrate_id:
    jmp ringside_rdma_migrate_id@PLT
    .size rdma_migrate_id, . - rdma_migrate_id
    .globl rdma_notify
    .type rdma_notify, @function
rdma_notify:
    jmp ringside_rdma_notify@PLT
    .size rdma_notify, . - rdma_notify
    .globl rdma_reject
    .type rdma_reject, @function
rdma_reject:
    jmp ringside_rdma_reject@PLT
    .size rdma_reject, . - rdma_reject
    .globl rdma_resolve_addr
    .type rdma_resolve_addr, @function
rdma_resolve_addr:
    jmp ringside_rdma_resolve_addr@PLT
    .size rdma_resolve_addr, . - rdma_resolve_addr
    .globl rdma_resolve_route
    .type rdma_resolve_route, @function
rdma_resolve_route:
    jmp ringside_rdma_resolve_route@PLT
    .size rdma_resolve_route, . - rdma_resolve_route
    .globl rdma_set_option
    .type rdma_set_option, @function
rdma_set_option:
    jmp ringside_rdma_set_option@PLT
    .size rdma_set_option, . - rdma_set_option
    .globl rfcntl
    .type rfcntl, @function
rfcntl:
    jmp ringside_rfcntl@PLT
    .size rfcntl, . - rfcntl
    .globl rgetpeername
    .type rgetpeername, @function
rgetpeername:
    jmp ringside_rgetpeername@PLT
    .size rgetpeername, . - rgetpeername
    .globl rgetsockname
    .type rgetsockname, @function
rgetsockname:
    jmp ringside_rgetsockname@PLT
    .size rgetsockname, . - rgetsockname
    .globl rgetsockopt
    .type rgetsockopt, @function
rgetsockopt:
    jmp ringside_rgetsockopt@PLT
    .size rgetsockopt, . - rgetsockopt
    .globl riomap
    .type riomap, @function
riomap:
    jmp ringside_riomap@PLT
    .size riomap, . - riomap
    .globl riounmap
    .type riounmap, @function
riounmap:
    jmp ringside_riounmap@PLT
    .size riounmap, . - riounmap
    .globl riowrite
    .type riowrite, @function
riowrite:
    jmp ringside_riowrite@PLT
    .size riowrite, . - riowrite
    .globl rlisten
    .type rlisten, @function
rlisten:
    jmp ringside_rlisten@PLT
    .size rlisten, . - rlisten
    .globl rpoll
    .type rpoll, @function
rpoll:
    jmp ringside_rpoll@PLT
    .size rpoll, . - rpoll
    .globl rread
    .type rread, @function
rread:
    jmp ringside_rread@PLT
    .size rread, . - rread
    .globl rreadv
    .type rreadv, @function
rreadv:
    jmp ringside_rreadv@PLT
    .size rreadv, . - rreadv
    .globl rrecv
    .type rrecv, @function
rrecv:
    jmp ringside_rrecv@PLT
    .size rrecv, . - rrecv
    .globl rrecvfrom
    .type rrecvfrom, @function
rrecvfrom:
    jmp ringside_rrecvfrom@PLT
    .size rrecvfrom, . - rrecvfrom
    .globl rrecvmsg
    .type rrecvmsg, @function
rrecvmsg:
    jmp ringside_rrecvmsg@PLT
    .size rrecvmsg, . - rrecvmsg
    .globl rselect
    .type rselect, @function
rselect:
    jmp ringside_rselect@PLT
    .size rselect, . - rselect
    .globl rsend
    .type rsend, @function
rsend:
    jmp ringside_rsend@PLT
    .size rsend, . - rsend
    .globl rsendmsg
    .type rsendmsg, @function
rsendmsg:
    jmp ringside_rsendmsg@PLT
    .size rsendmsg, . - rsendmsg
    .globl rsendto
    .type rsendto, @function
rsendto:
    jmp ringside_rsendto@PLT
    .size rsendto, . - rsendto
    .globl rsetsockopt
    .type rsetsockopt, @function
rsetsockopt:
    jmp ringside_rsetsockopt@PLT
    .size rsetsockopt, . - rsetsockopt
    .globl rshutdown
    .type rshutdown, @function
rshutdown:
    jmp ringside_rshutdown@PLT
    .size rshutdown, . - rshutdown
    .globl rsocket
    .type rsocket, @function
rsocket:
    jmp ringside_rsocket@PLT
    .size rsocket, . - rsocket
    .globl rwrite
    .type rwrite, @function
rwrite:
    jmp ringside_rwrite@PLT
    .size rwrite, . - rwrite
    .globl rwritev
    .type rwritev, @function
rwritev:
    jmp ringside_rwritev@PLT
    .size rwritev, . - rwritev
    .globl rdma_join_multicast_ex
    .type rdma_join_multicast_ex, @function
rdma_join_multicast_ex:
    jmp ringside_rdma_join_multicast_ex@PLT
    .size rdma_join_multicast_ex, . - rdma_join_multicast_ex
    .globl rdma_establish
    .type rdma_establish, @function
rdma_establish:
    jmp ringside_rdma_establish@PLT
    .size rdma_establish, . - rdma_establish
    .globl rdma_init_qp_attr
    .type rdma_init_qp_attr, @function
rdma_init_qp_attr:
    jmp ringside_rdma_init_qp_attr@PLT
    .size rdma_init_qp_attr, . - rdma_init_qp_attr
    .globl rdma_get_remote_ece
    .type rdma_get_remote_ece, @function
rdma_get_remote_ece:
    jmp ringside_rdma_get_remote_ece@PLT
    .size rdma_get_remote_ece, . - rdma_get_remote_ece
    .globl rdma_reject_ece
    .type rdma_reject_ece, @function
rdma_reject_ece:
    jmp ringside_rdma_reject_ece@PLT
    .size rdma_reject_ece, . - rdma_reject_ece
    .globl rdma_set_local_ece
    .type rdma_set_local_ece, @function
rdma_set_local_ece:
    jmp ringside_rdma_refuse@PLT
    .size rdma_set_local_ece, . - rdma_set_local_ece
    .globl rdma_query_addrinfo
    .type rdma_query_addrinfo, @function
rdma_query_addrinfo:
    jmp ringside_rdma_query_addrinfo@PLT
    .size rdma_query_addrinfo, . - rdma_query_addrinfo
    .globl rdma_resolve_addrinfo
    .type rdma_resolve_addrinfo, @function
rdma_resolve_addrinfo:
    jmp ringside_rdma_resolve_addrinfo@PLT
    .size rdma_resolve_addrinfo, . - rdma_resolve_addrinfo
    .globl rdma_write_cm_event
    .type rdma_write_cm_event, @function
rdma_write_cm_event:
    jmp ringside_rdma_write_cm_event@PLT
    .size rdma_write_cm_event, . - rdma_write_cm_event
    .globl repoll_create
    .type repoll_create, @function
repoll_create:
    jmp ringside_repoll_create@PLT
    .size repoll_create, . - repoll_create
    .globl repoll_ctl
    .type repoll_ctl, @function
repoll_ctl:
    jmp ringside_repoll_ctl@PLT
    .size repoll_ctl, . - repoll_ctl
    .globl repoll_wait
    .type repoll_wait, @function
repoll_wait:
    jmp ringside_repoll_wait@PLT
    .size repoll_wait, . - repoll_wait
    .section .note.GNU-stack,"",@progbits
