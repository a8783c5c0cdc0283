/* folder.h - the files of a folder of Hugging Face that hold no tensors. */
#ifndef MUSTER_RUNTIME_FILES_FOLDER_H
#define MUSTER_RUNTIME_FILES_FOLDER_H

#include "runtime/files/files.h"
#include "runtime/files/layout.h"

/* After the shards are in place: writes the index and config.json, copies tokenizers from what.folder, and
 * removes shards of an earlier export, which transformers would take for part of this one. */
int folder_finish(const char *path, const struct layout *layout, const struct files_export *what,
                  struct muster_error *err);
/* After a file of adapters is in place: writes adapter_config.json. */
int folder_finish_adapters(const char *path, const struct model *model, const struct files_export *what,
                           struct muster_error *err);

#endif
