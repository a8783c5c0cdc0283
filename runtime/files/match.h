/* match.h - which tensor of a file belongs to which parameter of a model. Pure. */
#ifndef MUSTER_RUNTIME_FILES_MATCH_H
#define MUSTER_RUNTIME_FILES_MATCH_H

#include "runtime/files/architecture.h"
#include "runtime/files/tensors.h"

/* Names that an error lists before it gives the number of the others. */
enum { MATCH_LISTED = 3 };

/* tensor[i]: index of the tensor of model.params[i], -1 where the tensor is not looked for. tied: index of a
 * tensor that has to be equal to tensor[tied_param], -1 for none. tensors: sorted. architecture: NULL where
 * names are the parameters' own. MUSTER_E_INVALID lists tensors that are missing, unexpected, or of a wrong
 * shape or type; path stands for the source. */
struct match {
    int *tensor;
    int tied, tied_param;
};
int match_tensors(const char *path, const struct file_tensors *tensors, const struct model *model,
                  const struct architecture *architecture, struct match *match, struct muster_error *err);
/* Same as match_tensors for a file of PEFT's adapters. match_adapters looks for the adapters alone,
 * match_tensors for the model's other parameters. */
int match_adapters(const char *path, const struct file_tensors *tensors, const struct model *model,
                   const struct architecture *architecture, struct match *match, struct muster_error *err);
void match_free(struct match *match);

#endif
