/* port_holder.h - who holds a TCP port of this machine, for the message of a failed bind. */
#ifndef MUSTER_RENDEZVOUS_PORT_HOLDER_H
#define MUSTER_RENDEZVOUS_PORT_HOLDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes "pid 4711 (python3)" for the process that listens on the port, from /proc/net/tcp, tcp6 and the
 * descriptors in /proc; "a process that /proc does not show" where it cannot be found (another user's,
 * another pid namespace). Returns text. The processes are read one after another, so the answer is a help,
 * not a proof. */
const char *port_holder_describe(uint16_t port, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
