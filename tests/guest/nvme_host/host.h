/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef HOST_H
#define HOST_H
#include "capsule.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

/* Commands of a queue at once, and the seconds to wait for a completion. */
enum { DEPTH = 32, SECONDS = 60 };

struct queue {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *completions;
	struct ibv_mr *commands_region, *responses_region;
	struct command commands[DEPTH];
	struct response responses[DEPTH];
	uint16_t number;
	/* The key that the controller invalidated with the last completion; 0 if none. */
	uint32_t invalidated;
};

/* Prints a message and ends the program. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Connects a queue pair for the queue `number`. */
void queue_open(struct queue *queue, const struct sockaddr_in *target, uint16_t number);
void queue_close(struct queue *queue);

/* The next completion of the queue pair, which must be a success. */
void queue_wait(struct queue *queue, struct ibv_wc *done);

/* Sends a command, with data behind it in the capsule unless `data` is NULL. */
void queue_send(struct queue *queue, struct command *command, const struct ibv_sge *data);

/* The next response. */
struct response queue_response(struct queue *queue);

/* Sends one command and returns its response, good or bad. */
struct response queue_ask(struct queue *queue, struct command *command, const struct ibv_sge *data);

/* Describes the data of a command. */
void command_data(struct command *command, uint8_t kind, const void *memory, uint32_t bytes, uint32_t key);

struct ibv_mr *registered(struct queue *queue, void *memory, size_t bytes, int access);

#endif
