/* listener_search.h - looks for a program that listens at one of several addresses; a background job
 * (background_job.h), since an address that drops packets answers late. Nothing is sent on a connection. */
#ifndef MUSTER_LAUNCHER_LOOP_LISTENER_SEARCH_H
#define MUSTER_LAUNCHER_LOOP_LISTENER_SEARCH_H

#include <stdint.h>

#include "launcher/loop/resolver.h"
#include "proto/base/address.h"
#include "proto/base/clock.h"

struct listener_search {
    char addresses[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT];
    int count;
    uint16_t port;
    struct instant until; /* looks at least once, and then until this time */
    int found;            /* out: index of an address; -1: none */
};

/* payload: a struct listener_search. */
void listener_search_run(void *payload);

#endif
