/* local_copy.c - see local_copy.h. */
#include "runtime/checkpoint/local_copy.h"

#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/checkpoint/folder.h"

char *local_copy_path(const char *dir, int64_t step, int rank, struct muster_error *err)
{
    scope_free char *folder = folder_step_path(dir, step), *name = folder_rank_name(rank),
                    *path = folder && name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint's copy");
        return NULL;
    }
    return io_make_directories(folder, 0777, err) < 0 ? NULL : take_pointer(&path);
}

static void remove_copy(const char *dir, int64_t step, int rank)
{
    scope_free char *folder = folder_step_path(dir, step), *name = folder_rank_name(rank),
                    *path = folder && name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path)
        return;
    (void)unlink(path);  /* tried again beside the next one */
    (void)rmdir(folder); /* fails while another rank has a file there */
}

void local_copy_prune(const char *dir, int64_t step, int rank, int64_t keep)
{
    scope_free int64_t *steps = NULL;
    int count = folder_list(dir, &steps, NULL); /* newest first */
    int64_t kept = 0;
    for (int i = 0; i < count; i++)
        if (steps[i] != step && (steps[i] > step || kept++ >= keep))
            remove_copy(dir, steps[i], rank);
}
