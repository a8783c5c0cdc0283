/* golden.h - text against a file that keeps the earlier text. MUSTER_GOLDEN_UPDATE=1 writes the file anew:
 * look at the changes, and commit them if they are intended. */
#ifndef MUSTER_TESTS_GOLDEN_H
#define MUSTER_TESTS_GOLDEN_H

#include "proto/base/buffer.h"

/* path: from the source tree's root, in which tests run. Fails at the first line that differs. */
void golden_check(const char *path, const struct buffer *text);

#endif
