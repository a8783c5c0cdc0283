/* processor.h - whether this processor has the instruction sets that the build uses everywhere.
 *
 * Without flags of the user's a build runs on every x86-64 or aarch64 processor, and nothing here ever
 * fails. Built with CFLAGS=-march=native and carried to an older machine it would die of SIGILL somewhere;
 * instead programs report the missing feature at once (start.c) and the library's entry points fail
 * (processor_check). The kernels' instruction sets are another matter: they are chosen at run time
 * (kernels/cpu/table.c).
 *
 * All code here is compiled for the oldest processor, under any flags of the build. */
#ifndef MUSTER_PROTO_PROCESSOR_H
#define MUSTER_PROTO_PROCESSOR_H

#include <stdbool.h>

#include "proto/include/muster_error.h"

/* NULL, or the first feature that the build may use and this processor (or its operating system) lacks. */
const char *processor_lacks(void);

/* 0, or -1 and MUSTER_E_UNSUPPORTED with the sentence of processor_sentence. */
int processor_check(struct muster_error *err);

/* Writes the fault and its remedy into text: at most size - 1 bytes. */
void processor_sentence(const char *missing, char *text, unsigned size);

/* By row of features.h: whether the compiler was allowed to use it. Data, since it is compiled with it. */
extern const bool processor_needed[];

#endif
