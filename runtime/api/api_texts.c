/* api_texts.c - muster_model.h: the operations on texts of different lengths, by handles. See
 * api_operations.c. */
#include "runtime/api/api_model.h"

int32_t muster_within(struct muster_model *model, int32_t in, int32_t lengths)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "within", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_within(w, x, lengths));
}

int32_t muster_mean(struct muster_model *model, int32_t in, int32_t lengths)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "mean", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_mean(w, x, lengths));
}
