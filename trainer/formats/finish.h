/* finish.h - what follows from all files together: batches, defaults, shares of other values. */
#ifndef MUSTER_TRAINER_FORMATS_FINISH_H
#define MUSTER_TRAINER_FORMATS_FINISH_H

#include "trainer/formats/assign.h"

/* After the last file, option and --set. */
int finish_settings(struct assign *assign);
/* After the checks: values that only fill in what is left open. */
int finish_checked(struct assign *assign);

#endif
