/* error_directory.h - directory for workers' error files if no log directory is configured: one of each
 * agent under TMPDIR, so that the report can show the exception of a @record script all the same. */
#ifndef MUSTER_LAUNCHER_VERDICT_ERROR_DIRECTORY_H
#define MUSTER_LAUNCHER_VERDICT_ERROR_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/temporary.h"

/* Whether creating and removing one where error_directory_make does cannot block on a network file system.
 * Never waits. True of a file system on a disk, and of the root's, without which nothing here runs anyway;
 * false of all others and if the kernel does not know at once. */
bool error_directory_is_prompt(void);
/* Makes one, readable by its user only, and returns its path (mem_free): in TMPDIR where it is set, else in
 * /dev/shm if that is a writable memory file system, else in the folder for temporary files. *temporary has a
 * warning where TMPDIR cannot be used. NULL if it cannot be created (a read-only
 * root): then workers get no error file, as under torchrun with a log directory of /dev/null. */
char *error_directory_make(struct temporary_folder *temporary);
/* The file of one worker, in fresh memory. attempt: a round's number, so that none is written twice. */
char *error_directory_file(const char *directory, uint32_t attempt, int local_rank);
/* Removes the folder and our files in it: their text is in the report. */
void error_directory_discard(const char *directory);

#endif
