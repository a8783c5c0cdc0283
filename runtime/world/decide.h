/* decide.h - one decision for all ranks: each gives a text, rank 0 decides from all texts, and every rank
 * gets the decision. Decisions go through the store, before anything else connects the ranks, and after the
 * ranks have found out that all can begin (agree.h): a missing rank is waited for. */
#ifndef MUSTER_RUNTIME_WORLD_DECIDE_H
#define MUSTER_RUNTIME_WORLD_DECIDE_H

#include "runtime/world/agree.h"

/* texts: by rank, each ended by NUL; 0 and a text in decision, or -1. Pure: it is called on rank 0 alone. */
typedef int decide_rule(void *context, const char *const *texts, int size, struct buffer *decision,
                        struct muster_error *err);

/* Collective. An error of the rule is an error of every rank, with the same text. The decision replaces the
 * content of the buffer, ended by NUL. MUSTER_E_TIMEOUT names a rank that is missing. */
int decide_together(const struct agree_options *options, const char *mine, decide_rule *rule, void *context,
                    struct buffer *decision, struct muster_error *err);

#endif
