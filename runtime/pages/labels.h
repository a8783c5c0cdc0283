/* labels.h - the labels of a classifier in config.json: id2label, or num_labels, as transformers has them.
 * Pure. */
#ifndef MUSTER_RUNTIME_PAGES_LABELS_H
#define MUSTER_RUNTIME_PAGES_LABELS_H

#include <jansson.h>
#include <stdbool.h>

/* The number of labels: of id2label, else num_labels, else 2. */
int labels_count(const json_t *config);
/* The name of label i, owned by config; NULL: it has none of its own, as "LABEL_1" is none. */
const char *labels_name(const json_t *config, int i);
/* Gives config `count` labels. names NULL: LABEL_0 and so on, as transformers names
 * them. Returns 0; 1: it has
 * these labels already; -1: no memory. */
int labels_set(json_t *config, const char *const *names, int count);
/* Names the class of the model. Returns as labels_set. */
int labels_set_class(json_t *config, const char *name);

#endif
