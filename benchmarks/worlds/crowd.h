/* crowd.h - the common part of the benchmark `crowd`'s processes: the coordinator, the serving agent, and
 * players of all other agents. */
#ifndef MUSTER_BENCHMARKS_WORLDS_CROWD_H
#define MUSTER_BENCHMARKS_WORLDS_CROWD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/security/secret.h"

enum crowd_kind {
    CROWD_OURS, /* the server's transport, and a member (client.h) at each connection */
    CROWD_BARE, /* a ROUTER that echoes and as many DEALERs that say one message */
    CROWD_TCP,  /* the same by plain TCP: what any protocol pays */
};

struct crowd {
    enum crowd_kind kind;
    int agents; /* size of the world, with the serving agent */
    bool elastic, keyed;
    int hold_s;  /* seconds for which the world is kept, to measure its cost */
    int percent; /* share of the time in which the server runs; 0: all of it */
    uint16_t port;
    struct job_keys keys; /* where keyed */
};

/* Resources of the serving process, as it reports on request. */
struct crowd_usage {
    int64_t cpu_ns;
    int64_t resident_kb;
};

enum crowd_phase { CROWD_PREPARES, CROWD_FORMS, CROWD_HELD };

/* Memory of the coordinator and of all players. */
struct crowd_shared {
    atomic_int phase;         /* enum crowd_phase; the coordinator's */
    atomic_int ready, formed; /* players; formed: all their agents have the world */
    atomic_int done;          /* agents that have it */
    atomic_llong cpu_ns;      /* the players', until then */
    atomic_llong messages, joins;
};

enum { CROWD_MESSAGE = 128 }; /* bytes of a bare echo; a JOIN has about as many */

/* Forks the server, and returns its pid. A byte written to *control asks for a struct crowd_usage;
 * end-of-file ends it. It listens when the function returns. */
pid_t crowd_serve(const struct crowd *crowd, int *control);
/* Forks a process that plays agents first..first+count-1, until the caller ends. */
void crowd_play(const struct crowd *crowd, struct crowd_shared *shared, int first, int count);

/* The options that both sides set on a bare socket: the same as ours, as far as they cost anything. */
void crowd_bare_options(void *socket, const struct crowd *crowd, bool server);

struct crowd_usage crowd_usage_now(void);
/* Prints the reason, with errno's text where it is not 0, and exits. */
void crowd_die(const char *what) __attribute__((noreturn));

#endif
