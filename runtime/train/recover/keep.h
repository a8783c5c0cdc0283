/* keep.h - the inside of a state that outlives its trainer (recover.h). */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_KEEP_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_KEEP_H

#include "runtime/train/recover/copies.h"
#include "runtime/train/trainer.h"

struct recover_kept {
    struct plan_options options; /* the plan of its layout; kernels and table are not used */
    int *parts;                  /* [layer_count] the parts of its layers: a pipeline may be cut anew */
    uint64_t layout;             /* plan.asked: equal on all ranks of that world */
    int64_t bytes;               /* the size of an image */
    int shift;                   /* copies_shift */
    struct copy live, own[RECOVER_GENERATIONS], kept[RECOVER_GENERATIONS];
    struct copy next; /* without text: of the step that was cut off, if this rank could finish it */
};

/* Its finished steps; kept NULL: none. */
void kept_steps(const struct recover_kept *kept, struct recover_rank *out);
/* The state of that step if it is the live one or the next; then also its copy; NULL: there is none. */
const struct copy *kept_live(const struct recover_kept *kept, int64_t step);
const struct copy *kept_own(const struct recover_kept *kept, int64_t step);
const struct copy *kept_other(const struct recover_kept *kept, int64_t step);

#endif
