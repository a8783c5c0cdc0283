/* close_descriptors.c - see close_descriptors.h. */
#include "launcher/process/close_descriptors.h"

#include <sys/syscall.h>
#include <unistd.h>

void close_descriptors(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
        return;
    enum { OLD_KERNEL_LIMIT = 65536 }; /* Linux before 5.9 */
    for (unsigned fd = first; fd <= last && fd < OLD_KERNEL_LIMIT; fd++)
        (void)close((int)fd); /* most are not open */
}
