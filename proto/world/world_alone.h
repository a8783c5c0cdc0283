/* world_alone.h - whether a process that would be a world of one should have peers. Pure. */
#ifndef MUSTER_PROTO_WORLD_WORLD_ALONE_H
#define MUSTER_PROTO_WORLD_WORLD_ALONE_H

#include "proto/world/world_environment.h"
#include "proto/world/world_variables.h"

/* MUSTER_E_INVALID where torchrun's variables (PET_NNODES, PET_NPROC_PER_NODE) ask for several processes and
 * nothing has started them: the program is a pod's command in place of torchrun's argument. ranked: RANK and
 * WORLD_SIZE are set. */
int world_alone_refuse(const struct world_variables *v, bool ranked);

enum { WORLD_ALONE_NOTE = 400 };

/* For a world of one: a sentence where a scheduler's variables speak of several processes, else "". */
void world_alone_note(const char *(*get)(void *context, const char *name), void *context,
                      char note[WORLD_ALONE_NOTE]);

#endif
