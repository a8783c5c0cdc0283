/* environment.h - a variable that is there for one call of another library, while threads of the program may
 * read the environment. */
#ifndef MUSTER_KERNELS_CPU_OPENBLAS_ENVIRONMENT_H
#define MUSTER_KERNELS_CPU_OPENBLAS_ENVIRONMENT_H

#include <stdbool.h>

/* Calls act() with `assigned`, "NAME=value", in the environment. NAME must not be set. false: no memory, and
 * act was not called.
 *
 * setenv changes the list that getenv reads in other threads, and may move it. Here `environ` points to a
 * list of our own for that time, and back to the old list, which was not touched. A reader walks one of the
 * two lists. Ours is kept for the life of the process. A thread may set variables during act:
 * its list stays, and NAME is taken out of it. It may not set variables during the copy of the list. */
bool environment_with(const char *assigned, void (*act)(void));

#endif
