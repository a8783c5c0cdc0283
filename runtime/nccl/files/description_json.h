/* description_json.h - a description as JSON and back: written by `muster doctor --describe`, read by
 * every replay.
 *
 * Fields whose value is "unknown" are left out; a field that is left out is unknown. A field that does not
 * exist is an error that names the nearest one, so that a typing error in a fixture is always reported. */
#ifndef MUSTER_RUNTIME_NCCL_FILES_DESCRIPTION_JSON_H
#define MUSTER_RUNTIME_NCCL_FILES_DESCRIPTION_JSON_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

/* Appends the object, indented by two blanks, with a newline at its end. */
int description_write(const struct description *description, struct buffer *out);
/* Reads one object; name is the file's in errors. out needs no initialisation and is zeroed on failure. YAML
 * is read too. */
int description_read(const char *name, const char *text, size_t length, struct description *out,
                     struct muster_error *err);

#endif
