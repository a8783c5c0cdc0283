/* export.h - one export under way, for export.c; rank 0 alone has files. */
#ifndef MUSTER_RUNTIME_FILES_EXPORT_H
#define MUSTER_RUNTIME_FILES_EXPORT_H

#include <stdio.h>
#include <string.h>

#include "runtime/files/files.h"
#include "runtime/files/layout.h"
#include "runtime/files/output.h"
#include "runtime/files/zip.h"

enum {
    EXPORT_BLOCK = 1 << 18, /* elements that are converted at a time */
    PTH_ALIGN = 64,         /* of a storage in the archive, as PyTorch aligns them */
};

struct exporting {
    struct trainer *trainer;
    const struct model *model;
    const struct files_export *what;
    enum dtype real; /* of the trainer's values */
    char *path;
    struct layout layout;
    struct output *output; /* [layout.file_count] */
    int opened;
    struct zip zip;
    struct crc32 crc;
    int first_member; /* of the archive that is a tensor */
    void *block, *turned;
};

/* Where a format goes that is named by path; owned by the caller, NULL: no memory. */
char *export_path(const char *path, enum files_format format);

#endif
