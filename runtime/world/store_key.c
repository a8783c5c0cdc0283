/* store_key.c - see world_internal.h. */
#include "runtime/world/world_internal.h"

#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

int store_key_read(const char *(*get)(void *context, const char *name), void *context,
                   unsigned char key[MAC_KEY_SIZE], struct muster_error *err)
{
    enum { MAGIC = sizeof STORE_KEY_MAGIC - 1 };
    const char *text = get(context, ENV_STORE_KEY_FD);
    unsigned char bytes[MAGIC + MAC_KEY_SIZE];
    int64_t fd;
    if (!text || !*text)
        return 0;
    /* pread: other processes share the open file and its position */
    if (!text_int64(text, &fd) || fd < 0 || fd > INT32_MAX ||
        pread((int)fd, bytes, sizeof bytes, 0) != sizeof bytes || memcmp(bytes, STORE_KEY_MAGIC, MAGIC) != 0)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s=%.32s is not the file with this job's key: a program between muster run and this one has "
            "closed it; let it pass the descriptor on (subprocess: pass_fds)",
            ENV_STORE_KEY_FD, text);
    memcpy(key, bytes + MAGIC, MAC_KEY_SIZE);
    return 1;
}
