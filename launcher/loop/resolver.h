/* resolver.h - questions to the network on a thread. Resolves a host's name to a numeric address: getaddrinfo
 * may block for minutes.
 *
 * Repeated with a growing pause until the deadline, since the name of a pod may appear minutes later. */
#ifndef MUSTER_LAUNCHER_LOOP_RESOLVER_H
#define MUSTER_LAUNCHER_LOOP_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

enum { RESOLVER_ADDRESSES_KEPT = 16 };

/* Whether the numeric address belongs to an interface of this machine (or is a loopback one). */
bool resolver_is_local(const char *address);

/* Every address of a name, at most RESOLVER_ADDRESSES_KEPT, in the order in which they are to be tried. May
 * block for minutes. Returns their number, or an EAI_ number, which is below 0. */
int resolver_ask(const char *host, char addresses[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT]);

struct resolver;

/* Starts the thread. */
struct resolver *resolver_start(const char *host, struct instant deadline, struct muster_error *err);
/* Reason of the last failed attempt; NULL while the first one is in progress. At any time. */
const char *resolver_trouble(const struct resolver *resolver);
/* Readable once the outcome is available. */
int resolver_fd(const struct resolver *resolver);
/* The outcome: 0 with the address, -1 with the reason of the last failure. Only after resolver_fd was
 * readable. */
int resolver_result(struct resolver *resolver, char *address, size_t size, struct muster_error *err);
/* After a result: all addresses of the name, the first is the result's; NULL after the last one. */
const char *resolver_address(const struct resolver *resolver, int index);
/* Does not wait for a thread that hangs in a look-up: it releases itself. Accepts NULL. */
void resolver_destroy(struct resolver *resolver);

#endif
