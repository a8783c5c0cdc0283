/* workers.h - numbered items done by threads, each in turn by the next that is free. */
#ifndef MUSTER_TRAINER_CORPUS_WORKERS_H
#define MUSTER_TRAINER_CORPUS_WORKERS_H

#include "proto/include/muster_error.h"

struct workers_job {
    int items, threads;
    /* One item; room is the thread's, from open. */
    int (*run)(void *context, void *room, int item, struct muster_error *err);
    /* What a thread keeps from item to item; NULL: an error. */
    void *(*open)(void *context, struct muster_error *err);
    void (*close)(void *room);
    void *context;
};

/* 0 when every item is done. At the first error no further item is begun, and its text is returned. */
int workers_run(const struct workers_job *job, struct muster_error *err);

#endif
