/* api_model.h - the model of a handle of muster_model.h, for the parts of the public API. */
#ifndef MUSTER_RUNTIME_API_API_MODEL_H
#define MUSTER_RUNTIME_API_API_MODEL_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/files/architecture.h"
#include "runtime/include/muster.h"
#include "runtime/model/program.h"

struct muster_model {
    atomic_int references; /* from the caller and from each trainer */
    pthread_mutex_t lock;  /* held for completion: trainers of several threads may share a model */
    struct writer writer;  /* while the model is written */
    struct model *model;   /* complete; NULL before, and where something is wrong */
    bool known;            /* it is of an architecture that files describe */
    struct architecture architecture;
    bool merges; /* lora.merge */
    struct muster_error error;
};

/* Handles of values: the layer and a value of its program, or API_LOGITS of a loss layer. */
enum { API_HANDLE_VALUES = 256, API_LOGITS = 255 };

/* The writer while the model can be added to, NULL otherwise. */
struct writer *api_model_writer(struct muster_model *model);
/* Completes the model. NULL with its first error. */
const struct model *api_model_complete(struct muster_model *model, struct muster_error *err);
struct muster_model *api_model_retain(struct muster_model *model);
/* Errors that the writer cannot see: values, parameters or inputs that lead nowhere, no loss. One line, with
 * the model's name in front. */
int api_model_check_page(const struct model *model, struct muster_error *err);

struct writer;
/* The open layer's value of a handle, -1 with the model's error. */
int api_model_value(struct writer *w, const char *operation, int32_t handle);
/* The handle of a value of the open layer. */
int32_t api_model_handle(const struct writer *w, int value);

#endif
