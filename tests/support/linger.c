/* linger.c - preloaded into a worker, it keeps it from ending while there is STEP_FOLDER/linger.R, R being
 * its rank: all its work is done, and its process stays. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOOK_US = 20000 };

__attribute__((destructor)) static void linger(void)
{
    char path[4096];
    const char *folder = getenv("STEP_FOLDER"), *rank = getenv("RANK");
    if (!folder || !rank || snprintf(path, sizeof path, "%s/linger.%s", folder, rank) >= (int)sizeof path)
        return;
    while (access(path, F_OK) == 0)
        (void)usleep(LOOK_US);
}
