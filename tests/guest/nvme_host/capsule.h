/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Capsules of NVMe over Fabrics, as far as this host uses them. All fields are little-endian, as this machine is.
 *
 * Source: NVM Express Base Specification 2.0 (commands, completion, properties: sections 3 and 5, "Fabrics Commands": 6),
 * NVM Express RDMA Transport Specification 1.0 (private data of the connection manager, keyed data blocks: sections 3 and 4). */
#ifndef CAPSULE_H
#define CAPSULE_H
#include <stdint.h>

/* Opcodes of the admin queue, of an I/O queue, and the types of a Fabrics command. */
enum { IDENTIFY = 0x06, SET_FEATURES = 0x09, FABRICS = 0x7F };
enum { WRITE = 0x01, READ = 0x02 };
enum { PROPERTY_SET = 0x00, CONNECT = 0x01, PROPERTY_GET = 0x04 };

/* Byte 1 of a command: PRP or SGL for data transfer, which is always SGL over a fabric. */
enum { FLAGS_SGL = 1 << 6 };

/* Type and sub type of a data block: keyed, keyed whose key the controller is to invalidate, and in the capsule. */
enum { KEYED = 0x40, KEYED_INVALIDATE = 0x4F, IN_CAPSULE = 0x01 };

/* Properties of a controller. */
enum { CAPABILITIES = 0x00, VERSION = 0x08, CONFIGURATION = 0x14, STATUS = 0x1C };
/* Entries of 64 and 16 bytes; enabled; a normal shutdown. */
enum { ENTRY_SIZES = 6 << 16 | 4 << 20, ENABLE = 1, SHUTDOWN = 1 << 14 };
/* CSTS: ready; shutdown complete. */
enum { READY = 1, SHUTDOWN_MASK = 3 << 2, SHUTDOWN_COMPLETE = 2 << 2 };

/* Status of a completion, without the phase: the bits of type and code; a generic status. */
enum { STATUS_CODE = 0x7FF, INVALID_NAMESPACE = 0x0B };

struct command {
	uint8_t opcode, flags;
	uint16_t id;
	/* Namespace, or the type of a Fabrics command in its lowest byte. */
	uint32_t namespace_or_type;
	uint8_t reserved[16];
	/* The data block: bytes 24 to 39. */
	uint64_t address;
	uint8_t length[3], key[4], kind;
	/* Bytes 40 to 63. */
	union {
		uint32_t words[6];
		struct { uint16_t format, queue, size; uint8_t attributes, reserved; uint32_t keep_alive_ms; } connect;
		struct { uint32_t size, offset; uint64_t value; } property;
		struct { uint64_t first_block; uint16_t blocks; } transfer;
	};
};

struct response {
	union { uint64_t value; uint32_t word; uint16_t controller; };
	uint16_t head, queue, id, status;
};

/* What a host tells about a queue when it connects it. */
struct connect_data {
	uint8_t host[16];
	uint16_t controller;
	uint8_t reserved[238];
	char subsystem[256], host_name[256];
	uint8_t rest[256];
};

/* Private data of a request and of an accept of the connection manager. */
struct request_data { uint16_t format, queue, receives, sends; uint8_t reserved[24]; };
struct accept_data { uint16_t format, receives; uint8_t reserved[28]; };

_Static_assert(sizeof(struct command) == 64, "a command has 64 bytes");
_Static_assert(__builtin_offsetof(struct command, address) == 24, "its data block begins at byte 24");
_Static_assert(__builtin_offsetof(struct command, words) == 40, "its own words begin at byte 40");
_Static_assert(sizeof(struct response) == 16, "a completion has 16 bytes");
_Static_assert(sizeof(struct connect_data) == 1024, "the data of a connect has 1024 bytes");
_Static_assert(sizeof(struct request_data) == 32 && sizeof(struct accept_data) == 32, "private data has 32 bytes");
#endif
