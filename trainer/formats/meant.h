/* meant.h - the setting that an unknown key of a file or option may stand for, for "did you mean". Pure. */
#ifndef MUSTER_TRAINER_FORMATS_MEANT_H
#define MUSTER_TRAINER_FORMATS_MEANT_H

enum { MEANT_SIZE = 96 };

/* The setting of another section with this key, the setting that another program's key of this name is read
 * as (n_embd, max_grad_norm), the setting of a common word (width, seq_len), or the nearest name; NULL: none.
 * name: "model.n_embd". The text is in `out`, or a table's. */
const char *setting_meant(const char *name, char out[MEANT_SIZE]);

#endif
