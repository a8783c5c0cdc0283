/* adapter_json.h - adapter_config.json of a folder of PEFT: the settings of adapters, read and written. Only
 * the read of the file is I/O.
 *
 * A setting that would change the adapters' results, and is not supported here, is refused by its name. An
 * unknown key is ignored where it is null, false or empty: PEFT writes unused keys so. */
#ifndef MUSTER_RUNTIME_FILES_ADAPTER_JSON_H
#define MUSTER_RUNTIME_FILES_ADAPTER_JSON_H

#include "proto/base/buffer.h"
#include "runtime/files/architecture.h"

/* Reads a file. MUSTER_E_INVALID, MUSTER_E_UNSUPPORTED with the key and its value. */
int adapter_json_read(const char *path, struct lora *lora, struct muster_error *err);
int adapter_json_parse(const char *name, const char *text, size_t length, struct lora *lora,
                       struct muster_error *err);
/* The path of a folder with one; owned by the caller; NULL: no memory. */
char *adapter_json_path(const char *folder);

/* A whole one, as PEFT reads it. base: its name; NULL: none. */
int adapter_json_format(const struct architecture *architecture, const struct model *model,
                        const struct lora *lora, const char *base, struct buffer *out,
                        struct muster_error *err);

#endif
