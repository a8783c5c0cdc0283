/* golden.h - text against a file that keeps what it was. MUSTER_GOLDEN_UPDATE=1 writes the file anew: look at
 * what changed, and commit it where it was meant. */
#ifndef MUSTER_TESTS_GOLDEN_H
#define MUSTER_TESTS_GOLDEN_H

#include "proto/base/buffer.h"

/* path: from the source tree's root, in which tests run. Fails at the first line that differs. */
void golden_check(const char *path, const struct buffer *text);

#endif
