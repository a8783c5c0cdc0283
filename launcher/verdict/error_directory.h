/* error_directory.h - where workers leave their error files when no log directory was asked for: a folder of
 * one agent's under TMPDIR, so that the report can show the exception of a @record script all the same. */
#ifndef MUSTER_LAUNCHER_VERDICT_ERROR_DIRECTORY_H
#define MUSTER_LAUNCHER_VERDICT_ERROR_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

/* Whether making and discarding one in parent (as below) may be done at once: where no network stands behind it.
 * Never waits. True of a file system on a disk, and of the root's, without which nothing here runs anyway; false
 * of everything else and where the kernel does not know at once. */
bool error_directory_is_prompt(const char *parent);
/* Makes one, readable by its user only, and returns its path (mem_free). parent: TMPDIR's value; NULL or "":
 * /tmp. NULL where none can be made (a read-only root): then workers get no error file, as under torchrun
 * with a log directory of /dev/null. */
char *error_directory_make(const char *parent);
/* The file of one worker, in fresh memory. attempt: a round's number, so that none is written twice. */
char *error_directory_file(const char *directory, uint32_t attempt, int local_rank);
/* Takes the folder back: always where it is empty, with our files in it where they are not kept. */
void error_directory_discard(const char *directory, bool keep);

#endif
