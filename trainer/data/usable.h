/* usable.h - samples without a target that counts: a prompt that fills the sample, a text of one token. */
#ifndef MUSTER_TRAINER_DATA_USABLE_H
#define MUSTER_TRAINER_DATA_USABLE_H

#include "trainer/data/data_internal.h"

/* Takes them out of the parts of data, so that no step and no evaluation is of such samples alone. Returns
 * how many there were; -1: no memory. */
int64_t usable_keep(struct data *data, struct muster_error *err);

#endif
