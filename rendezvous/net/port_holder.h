/* port_holder.h - the process that holds a TCP port of this machine, for the message of a failed bind. */
#ifndef MUSTER_RENDEZVOUS_NET_PORT_HOLDER_H
#define MUSTER_RENDEZVOUS_NET_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct port_holder {
    int pid;           /* 0: not found (another user's, another pid namespace) */
    char command[17];  /* its name in the kernel; "?" if unknown */
    bool same_program; /* it executes the same file as this process, or what was at its place before */
};

/* Reads /proc/net/tcp, tcp6 and the descriptors in /proc; may take long with many processes. The processes
 * are read one after another, so the answer is a hint, not a proof. */
void port_holder_find(uint16_t port, struct port_holder *holder);

/* Writes "pid 4711 (python3)" for the holder, "a process that /proc does not show" if it was not found.
 * Returns text. */
const char *port_holder_text(const struct port_holder *holder, char *text, size_t size);
/* Both in one. */
const char *port_holder_describe(uint16_t port, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
