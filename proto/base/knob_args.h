/* knob_args.h - a command line read by a knob table: the flags of every subcommand are parsed here (pure). */
#ifndef MUSTER_PROTO_BASE_KNOB_ARGS_H
#define MUSTER_PROTO_BASE_KNOB_ARGS_H

#include "proto/base/knob.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads flags from argv[*at] on: --name=value, --name value, unique prefixes, -xVALUE, -x VALUE; dash and
 * underscore are equal. Stops, with *at at the next word, at the first word that is no flag, after "--",
 * and as soon as *stop is true (stop may be NULL; a help flag of the options struct, so that nothing after
 * it is checked). Errors are MUSTER_E_INVALID, MUSTER_E_UNSUPPORTED for a refused row, or MUSTER_E_NOMEM. */
int knob_parse_flags(const struct knob_table *table, void *options, uint8_t *sources, int argc,
                     char *const argv[], int *at, const bool *stop, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
