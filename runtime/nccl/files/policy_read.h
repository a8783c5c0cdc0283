/* policy_read.h - a policy (runtime/nccl/decide/policy.h) from its YAML file. */
#ifndef MUSTER_RUNTIME_NCCL_FILES_POLICY_READ_H
#define MUSTER_RUNTIME_NCCL_FILES_POLICY_READ_H

#include <stddef.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/decide/policy.h"

/* name is the file's in errors, which have line and column and the nearest known key. out needs no
 * initialisation and is zeroed on failure. */
int policy_parse(const char *name, const char *text, size_t length, struct policy *out,
                 struct muster_error *err);
/* Accepts NULL. */
void policy_free(struct policy *policy);

#endif
