/* columns.c - see columns.h: what both kinds of tables share. */
#include "trainer/columns/columns.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/columns/columns_internal.h"

int columns_damaged(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_INVALID, "the file is damaged or cut off: %s", what);
}

bool columns_wants(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (!strcmp(*names, name))
            return true;
    return false;
}

struct columns *columns_create(const struct columns_ops *ops, void *self, struct muster_error *err)
{
    struct columns *columns = mem_calloc(1, sizeof *columns);
    if (columns)
        *columns = (struct columns){.ops = ops, .self = self};
    else
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a table");
    return columns;
}

void columns_close(struct columns *columns)
{
    if (!columns)
        return;
    columns->ops->close(columns->self);
    buffer_free(&columns->names);
    mem_free(columns);
}

bool columns_have(const struct columns *columns, const char *name)
{
    return columns->ops->have(columns->self, name);
}

const char *columns_names(const struct columns *columns)
{
    return columns->names.data && !columns->names.failed ? columns->names.data : "";
}

int columns_next(struct columns *columns, json_t **record, struct muster_error *err)
{
    return columns->ops->next(columns->self, record, err);
}
