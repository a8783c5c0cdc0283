/* command.h - the command line of muster-train. */
#ifndef MUSTER_TRAINER_RUN_COMMAND_COMMAND_H
#define MUSTER_TRAINER_RUN_COMMAND_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/tasks/tasks.h"

/* The first word; a configuration file of such a name is ./eval. */
enum command_verb {
    COMMAND_TRAIN,
    COMMAND_EVAL,
    COMMAND_GENERATE,
    COMMAND_PREPROCESS,
    COMMAND_QUANTIZE,
    COMMAND_VERBS
};

enum { OVERRIDE_LIMIT = 64, OPTION_LIMIT = 64, PATH_LIMIT = 64 };

/* How muster-train generate draws. */
struct command_draw {
    const char *prompt; /* NULL: standard input */
    int64_t tokens;     /* at most; 0: 100 */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 0: all */
    double temperature;
    int64_t seed;
    bool has_temperature, has_seed; /* given: else 1, and training.seed */
};

/* What muster-train eval --task asks. */
struct command_task {
    enum task_kind kind; /* TASK_NONE: the samples held out */
    const char *file;
};

/* What muster-train quantize makes, and where. */
enum { KEEP_LIMIT = 32 };
struct command_quantize {
    char *to;           /* owned; NULL: not given */
    const char *method; /* NULL: not given */
    int64_t group;      /* 0: not given; so are calibration and prune */
    int64_t calibration;
    double prune;
    bool tables;
    const char *keep[KEEP_LIMIT + 1]; /* NULL at the end */
    int keep_count;
};

struct command {
    enum command_verb verb;
    char *paths[PATH_LIMIT]; /* configuration files and folders */
    int path_count;
    char *options[OPTION_LIMIT]; /* options of other programs: "batch_size_per_gpu=4"; owned (command_free) */
    int option_count;
    char *overrides[OVERRIDE_LIMIT];
    int override_count;
    /* Overrides as texts: "logging.trace=10-12", "training.device=cuda"; "" */
    char trace[64], device[64], comm[64];
    bool plan, predict, print_config, json, verbose, help, version, man, bash, zsh, sync_errors, cuda_graphs;
    bool settings, keys; /* references in Markdown: of the settings, of other programs' keys */
    char *model;         /* override "model.path=..." of --model; owned; NULL: none */
    char *checkpoint;    /* --checkpoint; owned; NULL: none */
    char *schedule;      /* --check-schedule, a file; NULL: none */
    struct command_draw draw;
    struct command_task task;
    struct command_quantize quantize;
    int64_t world_size; /* for --plan and --suggest; 0: the current world */
    bool suggest;
    /* The machine of --suggest; 0: as this one, or usual. memory: bytes of a rank; link: bytes/s, seconds. */
    int64_t nodes, ranks_per_node, memory;
    double link_bytes_s, link_latency_s;
};

/* ---- the options: command_options.c ---- */

struct command_option {
    const char *name;
    const char *value;                                 /* its name in --help; NULL: a switch */
    const char *help;                                  /* sentences; NULL: --help has no row for it */
    int (*take)(struct command *command, char *value); /* prints an error and returns -1 */
    size_t flag;                                       /* position of a switch's bool */
    unsigned verbs;                                    /* 1 << command_verb that take it; 0: all */
    unsigned pages;                                    /* 1 << command_verb whose --help has it; 0: verbs */
    bool any_word;                                     /* the value may begin with a dash */
    bool file_too;                                     /* a file follows the value */
};
extern const struct command_option command_options[]; /* the last has no name */

/* Prints "muster-train: error: ..." and returns -1. */
int command_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* -1 and an error where a path is an address (s3://...). */
int command_check_path(const char *option, const char *path);
int command_add_path(struct command *command, char *path);
int command_add_override(struct command *command, char *text);

/* ---- the command line: command.c ---- */

/* Reads argv into command. An error is printed to standard error. */
int command_parse(int argc, char *const argv[], struct command *command);
void command_free(struct command *command);
/* Whether it asks for something about the program itself (--help, --settings, --keys, --version, --man,
 * --completion), or for the proof of a schedule, and prints it; the exit code. */
bool command_is_page(const struct command *command);
int command_page(const struct command *command);
/* The words eval, ..., and the program's own options, with a '=' after options that take a value. They are in
 * fresh memory (mem_free each). Returns their number. */
int command_words(char *words[], int limit);

/* `muster-train prepare`. argv: the words after "prepare". Returns the exit code. */
int prepare_command(int argc, char *const argv[]);

#endif
