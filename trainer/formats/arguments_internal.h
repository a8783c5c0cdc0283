/* arguments_internal.h - rules of keys (keys.h) that arguments.c and arguments_output.c share. */
#ifndef MUSTER_TRAINER_FORMATS_ARGUMENTS_INTERNAL_H
#define MUSTER_TRAINER_FORMATS_ARGUMENTS_INTERNAL_H

#include "trainer/formats/keys.h"

#define PLACE_TRAINER "the Trainer's default"

int arguments_output_dir(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_save_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_save_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_save_limit(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_eval_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_eval_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_logging_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_logging_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_data_seed(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_load_best(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_resume(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_report_to(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_peft(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_lora(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
int arguments_validation_percentage(struct key_walk *walk, const char *shown, const struct tree_entry *entry);
/* Sets the number of steps between evaluations, if it is left out. */
int arguments_evaluate_as_logged(struct key_walk *walk, const struct tree_node *root);

#endif
