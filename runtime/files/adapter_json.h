/* adapter_json.h - adapter_config.json of a folder of PEFT: the settings of adapters, read and written. Pure
 * but for the file that is read.
 *
 * What would change what the adapters compute and cannot be computed here is refused by its name; a key that
 * is not known is passed over where it is null, false or empty, as PEFT writes it where it is not used. */
#ifndef MUSTER_RUNTIME_FILES_ADAPTER_JSON_H
#define MUSTER_RUNTIME_FILES_ADAPTER_JSON_H

#include "proto/base/buffer.h"
#include "runtime/files/architecture.h"

/* Of a file. MUSTER_E_INVALID, MUSTER_E_UNSUPPORTED with the key and its value. */
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
