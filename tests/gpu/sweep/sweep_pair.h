/* sweep_pair.h - one training run of muster-train as two child processes over the fake libraries, with a
 * fault in a call: each rank's output, how it ended and which objects of the libraries it left over.
 *
 * The program itself is linked into the test (its main is muster_train_main), and a rank is a fork of a
 * process that has loaded the module and the fakes already: a run takes as long as its work, not as long as
 * starting programs. A store for all runs is served by a process of its own, as a launcher does it. */
#ifndef MUSTER_TESTS_GPU_SWEEP_PAIR_H
#define MUSTER_TESTS_GPU_SWEEP_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum { SWEEP_RANKS = 2, SWEEP_TEXT = 16384, SWEEP_PATH = 256, SWEEP_SETS = 8 };

#define SWEEP_REFUSED "was told to fail" /* in a rank's output: the fault was reached */

/* Objects that a rank has not given back, by the fakes' report at exit. */
struct sweep_left {
    bool reported;
    long allocations, streams, events, graphs, communicators, products;
    long dead_uses; /* uses of communicators that had gone */
};

struct sweep_rank {
    bool ended; /* false: it was killed at the limit */
    int status; /* waitpid's */
    int64_t ns; /* to its end, from the fault, or from the start where none was reached */
    char said[SWEEP_TEXT];
    struct sweep_left left;
};

struct sweep_run {
    const char *folder;      /* has text and config.yaml; made and emptied by sweep_folder */
    const char *comm;        /* "nccl", "host" */
    bool graphs;             /* --cuda-graphs */
    const char *const *sets; /* [SWEEP_SETS] for --set, up to the first NULL; NULL: none */
    uint16_t store;          /* its port */
    int64_t number;          /* the run's, no other's: the key space in the store */
    int restart;             /* 0: the fault happens; 1: after it */
    char fault[128];         /* for FAKE_CUDA_FAIL, "adamw:5@1"; "": none */
    int64_t limit_ns;        /* after the fault, six times so much after the start: then it is killed */
    bool counts;             /* the fakes leave count-RANK in the folder */
};

/* Loads module and fakes into this process, once, and sets the environment that all runs share. -1: printed.
 */
int sweep_load(void);
/* A process that serves a store until this one ends; its port, or 0. */
uint16_t sweep_store(void);
/* Makes the folder with its files, or removes a run's files. -1: printed. */
int sweep_folder(const char *folder);
/* Runs both ranks to their ends. */
void sweep_pair(const struct sweep_run *run, struct sweep_rank ranks[SWEEP_RANKS]);
/* The line of the text that has both, without its newline; "" where none has. */
const char *sweep_line(const char *text, const char *has, const char *and_has, char line[SWEEP_TEXT]);

#endif
