/* muster.h - the public API of libmuster.
 *
 * C and C++, and from Python by ctypes: opaque objects, settings by name, one `struct
 * muster_error` as the last parameter (NULL is allowed). Functions return 0, a handle or a pointer, and -1 or
 * NULL on failure. There are no globals: a process may hold several worlds, also as ranks of one job.
 * Functions that destroy take the address of a pointer or the object, as they say, and accept NULL.
 *
 * The few structs begin with their own size, which the caller sets. Later versions of the library add members
 * at the end and accept the smaller size of a program that was built before. */
#ifndef MUSTER_H
#define MUSTER_H

#include "muster_model.h"
#include "muster_shard.h"
#include "muster_trainer.h"
#include "muster_world.h"

#endif
