/* volume.h - what a job's pods mount: files of ConfigMaps and Secrets, empty folders, claims, folders of the
 * machine. The manifest side fills it, the runner makes and mounts it. */
#ifndef MUSTER_LAUNCHER_LOCAL_JOB_VOLUME_H
#define MUSTER_LAUNCHER_LOCAL_JOB_VOLUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum local_volume_type {
    LOCAL_VOLUME_FILES,  /* of ConfigMaps, Secrets, fields of the pod: read-only */
    LOCAL_VOLUME_EMPTY,  /* a folder of each pod, kept while its container starts again */
    LOCAL_VOLUME_MEMORY, /* the same in memory; empty again after a restart of the container */
    LOCAL_VOLUME_CLAIM,  /* a PersistentVolumeClaim: one folder for all pods */
    LOCAL_VOLUME_HOST,   /* a path of this machine */
};

/* hostPath.type: what has to be at the path; *_OR_CREATE is made where nothing is. */
enum local_host_type {
    LOCAL_HOST_ANY, /* not checked by a cluster */
    LOCAL_HOST_DIRECTORY_OR_CREATE,
    LOCAL_HOST_DIRECTORY,
    LOCAL_HOST_FILE_OR_CREATE,
    LOCAL_HOST_FILE,
    LOCAL_HOST_SOCKET,
    LOCAL_HOST_CHAR_DEVICE,
    LOCAL_HOST_BLOCK_DEVICE,
    LOCAL_HOST_TYPES
};

struct local_file {
    char *path; /* relative, without .. */
    char *data;
    size_t length;
    unsigned mode;
    bool varies; /* data has marks of attempts (job.h) */
};

struct local_volume {
    const void *key; /* pods of one template share it; NULL: of one pod alone */
    char *name;
    enum local_volume_type type;
    struct local_file *files;
    size_t file_count;
    int64_t size_limit;             /* MEMORY: bytes, 0 for none */
    char *source;                   /* CLAIM: its name; HOST: the path */
    enum local_host_type host_type; /* HOST */
};

struct local_volumes {
    struct local_volume *list;
    int count;
};

struct local_mount {
    int volume;     /* index */
    char *path;     /* absolute, without . and .., no slash at the end */
    char *sub_path; /* relative inside the volume; NULL: all of it */
    bool read_only;
};

/* The file at a path inside a volume of files; NULL for none. */
const struct local_file *local_volume_file(const struct local_volume *volume, const char *path);
/* The mount that path lies in, by the longest of its paths; NULL for none. *rest is the part below, without
 * a slash at its front. */
const struct local_mount *local_mount_of(const struct local_mount *mounts, int count, const char *path,
                                         const char **rest);
/* "DirectoryOrCreate"; "" for LOCAL_HOST_ANY. */
const char *local_host_type_name(enum local_host_type type);
void local_volumes_free(struct local_volumes *volumes);
void local_mounts_free(struct local_mount *mounts, int count);

#endif
