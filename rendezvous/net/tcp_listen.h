/* tcp_listen.h - a listening TCP socket: the TCPStore's, and the launcher's metrics port. */
#ifndef MUSTER_RENDEZVOUS_NET_TCP_LISTEN_H
#define MUSTER_RENDEZVOUS_NET_TCP_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* As tcp_listen, with the longest backlog; -1 with errno, EINVAL where address is none. */
int tcp_listen_quietly(const char *address, uint16_t wanted);
/* A non-blocking, close-on-exec listener with the longest backlog. address: numeric, or NULL for [::] with
 * both families, else 0.0.0.0. *bound gets the port (wanted 0: any). Returns the descriptor or -1. */
int tcp_listen(const char *address, uint16_t wanted, uint16_t *bound, struct muster_error *err);
/* Holds a port for another process, or for later: a close-on-exec socket bound to it that does not listen, at
 * a numeric address or, if that is NULL or no numeric address, on every address. The kernel does not assign
 * the port as long as it is open, but a program that asks for it by number and sets SO_REUSEADDR (PyTorch's
 * store and ours do) can listen on it. A port with a listener cannot be held. *bound gets the port (wanted 0:
 * any). Returns the descriptor or -1. */
int tcp_hold_port(const char *address, uint16_t wanted, uint16_t *bound, struct muster_error *err);
/* address: as for tcp_listen; if that is none of this machine: on every address. */
bool tcp_is_in_use(const char *address, uint16_t wanted);
/* Waits a second, at most, for a port that a program holds which may be ending: the agent of the run before.
 * False: it is still in use. */
bool tcp_await_port(const char *address, uint16_t wanted);

#endif
