/* api_adapters.h - checkpoints of adapters: they keep a hash of the base, which is not in them itself. */
#ifndef MUSTER_RUNTIME_API_API_ADAPTERS_H
#define MUSTER_RUNTIME_API_API_ADAPTERS_H

#include "runtime/api/api_trainer.h"

/* Whether there are any. */
bool api_adapts(const struct muster_trainer *trainer);
/* Collective: notes for checkpoints the base's hash, formed where it is not known, and the adapters' alpha.
 * Without adapters nothing. */
int api_note_base(struct muster_trainer *trainer, struct muster_error *err);
/* The base is another one from now on. */
void api_forget_base(struct muster_trainer *trainer);
/* After api_note_base: MUSTER_E_REFUSED where a checkpoint's adapters are of another base, or with
 * another alpha; what cannot be compared is a line of the report. Not collective. */
int api_compare_base(const struct muster_trainer *trainer, manifest_texts notes, struct buffer *report,
                     struct muster_error *err);

#endif
