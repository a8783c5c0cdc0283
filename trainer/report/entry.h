/* entry.h - one entry of a run's log: its kind, its step and named values. Pure.
 *
 * An entry is filled by its writer and given to report_add, which puts it into every format that is open; its
 * names are those of README.md. */
#ifndef MUSTER_TRAINER_REPORT_ENTRY_H
#define MUSTER_TRAINER_REPORT_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

enum { ENTRY_VALUES = 40 };

/* symbol, name in JSON lines, prefix of its numbers in TensorBoard ("": they are not shown there). */
#define ENTRY_KINDS(X)                                                                                       \
    X(ENTRY_START, "start", "")                                                                              \
    X(ENTRY_STAGE, "stage", "")                                                                              \
    X(ENTRY_STEP, "step", "train/")                                                                          \
    X(ENTRY_EVALUATION, "evaluation", "eval/")                                                               \
    X(ENTRY_CHECKPOINT, "checkpoint", "checkpoint/")                                                         \
    X(ENTRY_COMMAND, "checkpoint_command", "checkpoint_command/")                                            \
    X(ENTRY_SAMPLES, "samples", "")                                                                          \
    X(ENTRY_WARNING, "warning", "")                                                                          \
    X(ENTRY_END, "end", "")
enum entry_kind {
#define ENTRY_KIND_ENUM(symbol, name, prefix) symbol,
    ENTRY_KINDS(ENTRY_KIND_ENUM)
#undef ENTRY_KIND_ENUM
        ENTRY_KIND_COUNT
};
const char *entry_kind_name(enum entry_kind kind);
const char *entry_kind_prefix(enum entry_kind kind);

enum entry_type { ENTRY_NUMBER, ENTRY_INTEGER, ENTRY_FLAG, ENTRY_TEXT, ENTRY_INTEGERS };
struct entry_value {
    const char *name;
    enum entry_type type;
    union {
        double number;
        int64_t integer;
        bool flag;
        const char *text;
        struct {
            const int64_t *values;
            int64_t count;
        } integers;
    };
};

/* Names, texts and lists are borrowed. */
struct entry {
    enum entry_kind kind;
    int64_t step; /* steps that are done, from 1 */
    int count;
    struct entry_value values[ENTRY_VALUES];
};

/* Each appends a value; one more than ENTRY_VALUES is left out. A number that is not finite is null in JSON
 * lines and NaN in TensorBoard. */
void entry_number(struct entry *entry, const char *name, double value);
void entry_integer(struct entry *entry, const char *name, int64_t value);
void entry_flag(struct entry *entry, const char *name, bool value);
void entry_text(struct entry *entry, const char *name, const char *value);
void entry_integers(struct entry *entry, const char *name, const int64_t *values, int64_t count);

#endif
