/* volume.c - see volume.h. */
#include "launcher/local/job/volume.h"

#include <string.h>

#include "proto/base/mem.h"

const struct local_file *local_volume_file(const struct local_volume *volume, const char *path)
{
    for (size_t i = 0; i < volume->file_count; i++)
        if (!strcmp(volume->files[i].path, path))
            return &volume->files[i];
    return NULL;
}

const struct local_mount *local_mount_of(const struct local_mount *mounts, int count, const char *path,
                                         const char **rest)
{
    const struct local_mount *found = NULL;
    size_t longest = 0;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(mounts[i].path);
        bool inside = !strncmp(path, mounts[i].path, length) && (!path[length] || path[length] == '/');
        if (!inside || length < longest)
            continue;
        longest = length;
        found = &mounts[i];
        *rest = path + length + strspn(path + length, "/");
    }
    return found;
}

const char *local_host_type_name(enum local_host_type type)
{
    static const char *const names[LOCAL_HOST_TYPES] = {
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"};
    return names[type];
}

void local_volumes_free(struct local_volumes *volumes)
{
    for (int i = 0; i < volumes->count; i++) {
        struct local_volume *volume = &volumes->list[i];
        for (size_t k = 0; k < volume->file_count; k++) {
            mem_free(volume->files[k].path);
            mem_free(volume->files[k].data);
        }
        mem_free(volume->files);
        mem_free(volume->name);
        mem_free(volume->source);
    }
    mem_free(volumes->list);
    *volumes = (struct local_volumes){0};
}

void local_mounts_free(struct local_mount *mounts, int count)
{
    for (int i = 0; i < count; i++) {
        mem_free(mounts[i].path);
        mem_free(mounts[i].sub_path);
    }
    mem_free(mounts);
}
