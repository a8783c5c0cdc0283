/* sized.c - see sized.h. */
#include "runtime/world/sized.h"

#include <string.h>

#include "proto/base/error.h"

int sized_least(const char *name, uint32_t size, size_t least, struct muster_error *err)
{
    if (size >= least)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "struct %s has the size %u; set its size member to sizeof, at least %zu", name, size,
                     least);
}

int sized_in(const char *name, void *ours, size_t our_size, const void *theirs, uint32_t size, size_t least,
             struct muster_error *err)
{
    if (sized_least(name, size, least, err) < 0)
        return -1;
    for (size_t i = our_size; i < size; i++)
        if (((const char *)theirs)[i])
            return error_set(
                err, MUSTER_E_INVALID,
                "struct %s has the size %u and members that this library does not know (its size is "
                "%zu): use the library that the program was built against",
                name, size, our_size);
    memset(ours, 0, our_size);
    memcpy(ours, theirs, size < our_size ? size : our_size);
    return 0;
}

int sized_out(const char *name, void *theirs, uint32_t size, const void *ours, size_t our_size, size_t least,
              struct muster_error *err)
{
    if (sized_least(name, size, least, err) < 0)
        return -1;
    if (size > our_size)
        memset((char *)theirs + our_size, 0, size - our_size);
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size,
           (size < our_size ? size : our_size) - sizeof size);
    return 0;
}
