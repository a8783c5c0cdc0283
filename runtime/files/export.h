/* export.h - one export under way, for export.c; rank 0 alone has files. */
#ifndef MUSTER_RUNTIME_FILES_EXPORT_H
#define MUSTER_RUNTIME_FILES_EXPORT_H

#include <stdio.h>
#include <string.h>

#include "proto/archive/zip.h"
#include "runtime/files/files.h"
#include "runtime/files/layout.h"
#include "runtime/files/output.h"

enum {
    EXPORT_BLOCK = 1 << 18, /* elements that are converted at a time */
    PTH_ALIGN = 64,         /* alignment of a storage in the archive, as in PyTorch */
};

struct exporting {
    struct trainer *trainer;
    const struct model *model;
    const struct files_export *what;
    enum dtype real; /* type of the trainer's values */
    char *path;
    struct layout layout;
    struct output *output; /* [layout.file_count] */
    int opened;
    struct zip zip;
    struct crc32 crc;
    int first_member; /* the archive's first member that is a tensor */
    void *block, *turned;
    /* Used if the adapters' products are added to their base. adapters: [model.param_count] values, NULL
     * where a parameter is no adapter; merged: room for one parameter. */
    void **adapters;
    void *merged;
    int64_t merged_room; /* elements */
};

/* Whether the format is a folder. */
bool export_is_folder(enum files_format format);
/* export_merge.c: whether adapters are added to the base. */
bool export_merges(const struct exporting *exporting);
/* Collective, before parameters are written: rank 0 takes the adapters' values. */
int export_take_adapters(struct exporting *exporting, bool writes, struct muster_error *err);
/* The values with the adapters' product added, until the next call; as they are where there is none. NULL: no
 * memory. */
const void *export_merged(struct exporting *exporting, int param, const void *values,
                          struct muster_error *err);
void export_free_adapters(struct exporting *exporting);

/* Where a format goes that is named by path; owned by the caller, NULL: no memory. */
char *export_path(const char *path, enum files_format format);

#endif
