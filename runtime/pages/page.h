/* page.h - a family of models as a text: its operations by their names, its sizes from config.json, its
 * tensors' names by pattern (runtime/docs/pages.md). libmuster brings the pages in families/; a user may
 * bring another.
 *
 * A page is run, not compiled: each statement is evaluated and writes its operations
 * (runtime/model/program.h). A run has no loops but the one over the layers, so that it ends. Errors in a
 * page have its name and line; a key of config.json that the page does not take has its name and value. */
#ifndef MUSTER_RUNTIME_PAGES_PAGE_H
#define MUSTER_RUNTIME_PAGES_PAGE_H

#include <jansson.h>

#include "proto/base/guard.h"
#include "runtime/model/program.h"

/* A page with the config.json of one model. Shared by counting; read by several threads. */
struct page;

/* The text of the page that libmuster brings for a model_type; NULL: none. */
const char *page_of_family(const char *model_type, size_t *length);
/* "gemma, gemma2, mistral": the families that have a page, in the order of the alphabet; static. */
const char *page_families(void);

/* Reads a page and runs it once. name, config_name: for errors; own: name is a user's file. config is
 * retained. NULL: MUSTER_E_INVALID "name:line:
 * ..." or of config.json; MUSTER_E_UNSUPPORTED names a key of config.json and its value; MUSTER_E_LIMIT. */
struct page *page_open(const char *name, bool own, const char *text, size_t length, const char *config_name,
                       json_t *config, struct muster_error *err);
/* The file of a user's own page; NULL: libmuster brings it. */
const char *page_own(const struct page *page);
struct page *page_retain(struct page *page);
void page_release(struct page *page); /* accepts NULL */
GUARD_DEFINE(page, struct page *, page_release);

/* lora NULL: without adapters. The caller owns the model (model_destroy), which does not need the page. */
struct model *page_model(const struct page *page, const struct lora *lora, struct muster_error *err);
/* The model_type in its config.json. */
const char *page_model_type(const struct page *page);
const json_t *page_config(const struct page *page);
/* The largest probability of dropout in config.json; dropout is not applied. */
double page_dropout(const struct page *page);
/* Prefix of names that the model without its head leaves out; "" none. */
const char *page_base(const struct page *page);
/* The parameter that the head's weight is tied to, and the name that the head's weight has in files; NULL:
 * not tied. */
const char *page_tied_to(const struct page *page);
const char *page_tied(const struct page *page);
/* Where a parameter is in the order in which transformers has them, for sorting; equal: as in the model. */
int page_order(const struct page *page, const char *param);
/* ---- pages of classifiers, which read labelled texts ---- */

bool page_classifies(const struct page *page);
/* The labels of the model: their number, and the name of one (NULL: it has none of its own). */
int page_labels(const struct page *page);
const char *page_label(const struct page *page, int label);
/* Gives the model other labels, before another owner has the page. names NULL: without names of their own. */
int page_set_labels(struct page *page, const char *const *names, int count, struct muster_error *err);
/* Whether config.json is no longer the file's: other labels, or the class of another head. */
bool page_changes_config(const struct page *page);
/* Whether files of a model without its head may lack a parameter, which is drawn then; and whether a tensor
 * is another head's. */
bool page_may_lack(const struct page *page, const char *param);
bool page_leaves_unread(const struct page *page, const char *tensor);

/* Adds the page's own targets of adapters. */
int page_targets(const struct page *page, struct lora *lora, struct muster_error *err);

#endif
