/* listener_search.h - looks for a program that listens at an address of several, and can take its place: of
 * several nodes with one name exactly one serves. A background job (background_job.h), since an address that
 * drops packets answers late. Nothing is sent on a connection.
 *
 * A search that claims and finds no listener listens itself, and then looks once more. Of two searches that
 * claim at once at least one sees the other: the later of them. A node with a later place gives way at once.
 * A node with an earlier place waits a little for that. A listener that stays has looked before, and serves.
 * A search that claims looks once more at the listener that it found, and begins anew if that has gone.
 */
#ifndef MUSTER_LAUNCHER_LOOP_LISTENER_SEARCH_H
#define MUSTER_LAUNCHER_LOOP_LISTENER_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/loop/resolver.h"
#include "proto/base/address.h"
#include "proto/base/clock.h"

/* All but the outcome is set by the caller. */
struct listener_search {
    char addresses[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT];
    int count;
    uint16_t port;
    struct instant until; /* looks at least once, and then until this time */
    bool claims;
    char bind[ADDRESS_TEXT]; /* where a claim listens; "": at every address of this machine */
    int before;              /* with claims: so many of addresses, the first ones, go before this node */
    int found;               /* out: index of an address; -1: none */
    int claim; /* out: a socket that listens; -1: none was asked for, a listener was found, or the port is
                  taken here. The search's, unless taken by take_fd */
};

/* payload: a struct listener_search. */
void listener_search_run(void *payload);
/* After the run: the address that was found, "" if none was. */
void listener_search_address(const struct listener_search *search, char out[ADDRESS_TEXT]);
/* Closes the claim and frees the search, which mem_calloc made. Accepts NULL. */
void listener_search_destroy(void *payload);

#endif
