/* step_record.h - the record of a worker of the fault matrix, for tests/e2e/harness/steps.py to read
 * while it goes on: one file a worker in the folder that STEP_FOLDER names, one line an event: its name, the
 * time in nanoseconds on the machine's monotonic clock, which all nodes of a test share, and the fields
 * below.
 *
 *     begin TIME world=ID rank=R size=N round=K restarts=M host=NAME
 *     step TIME N
 *     mixed TIME
 *     end TIME N
 *
 * "begin": this worker belongs to a world; ID is that world's alone. "step": every rank has taken part in
 * step N, from 0. "mixed": a peer was of another world, which must never be. "end": the job is done after N
 * steps. */
#ifndef MUSTER_TESTS_STEP_RECORD_H
#define MUSTER_TESTS_STEP_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

enum { STEP_RANK_LIMIT = 1024 };
#define STEP_STORE_TIMEOUT (300 * NS_PER_S)

struct step_record {
    int rank, size; /* from the launcher's variables */
    int64_t round, restarts;
    int64_t step_ms; /* STEP_MS: the least length of a step; 20 unless set */
    const char *folder;
    uint64_t world; /* since step_record_agree */
    int fd;
};

/* Reads the environment and makes the file. */
int step_record_open(struct step_record *record, struct muster_error *err);
/* To the store of the world; NULL on an error. Owned by the caller. */
struct tcpstore_client *step_record_store(struct muster_error *err);
/* All ranks of a world get the same number, by way of its store. */
int step_record_agree(struct step_record *record, struct tcpstore_client *store, struct muster_error *err);

void step_record_begin(const struct step_record *record);
/* "step" or "end", which was at that time. */
void step_record_count(const struct step_record *record, const char *event, int64_t number,
                       struct instant when);
void step_record_mixed(const struct step_record *record);

/* Whether there is such a file in the folder: how the test speaks to its workers. */
bool step_record_told(const struct step_record *record, const char *name);

#endif
