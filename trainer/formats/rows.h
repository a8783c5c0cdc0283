/* rows.h - short forms for the rows of keys.h. */
#ifndef MUSTER_TRAINER_FORMATS_ROWS_H
#define MUSTER_TRAINER_FORMATS_ROWS_H

#include "trainer/formats/keys.h"

#define SETTING(path_, setting_)                                                                             \
    {                                                                                                        \
        .path = (path_), .kind = KEY_SETTING, .setting = (setting_)                                          \
    }
#define WEAK(path_, setting_)                                                                                \
    {                                                                                                        \
        .path = (path_), .kind = KEY_WEAK, .setting = (setting_)                                             \
    }
#define CHOICE(path_, setting_, choices_)                                                                    \
    {                                                                                                        \
        .path = (path_), .kind = KEY_SETTING, .setting = (setting_), .choices = (choices_)                   \
    }
#define CHOICE_WHY(path_, setting_, choices_, why_)                                                          \
    {                                                                                                        \
        .path = (path_), .kind = KEY_SETTING, .setting = (setting_), .choices = (choices_), .why = (why_)    \
    }
#define IDLE(path_, why_)                                                                                    \
    {                                                                                                        \
        .path = (path_), .kind = KEY_IDLE, .why = (why_)                                                     \
    }
#define INNER(path_)                                                                                         \
    {                                                                                                        \
        .path = (path_), .kind = KEY_IDLE                                                                    \
    } /* inside of a block that gives why */
#define BLOCK(path_)                                                                                         \
    {                                                                                                        \
        .path = (path_), .kind = KEY_BLOCK                                                                   \
    }
#define SWITCHED(path_)                                                                                      \
    {                                                                                                        \
        .path = (path_), .kind = KEY_SWITCHED                                                                \
    }
/* what_: text in the documentation */
#define RULE(path_, rule_, what_)                                                                            \
    {                                                                                                        \
        .path = (path_), .kind = KEY_RULE, .rule = (rule_), .why = (what_)                                   \
    }
#define ONLY(path_, only_, why_)                                                                             \
    {                                                                                                        \
        .path = (path_), .kind = KEY_ONLY, .only = (only_), .why = (why_)                                    \
    }
#define REFUSED(path_, why_) ONLY(path_, "false", why_)

/* DeepSpeed accepts these keys with and without "stage3_". */
#define STAGE3(name_, kind_, ...)                                                                            \
    kind_("zero_optimization.stage3_" name_, __VA_ARGS__), kind_("zero_optimization." name_, __VA_ARGS__)
#define BF16(block_)                                                                                         \
    SWITCHED(block_), CHOICE(block_ ".enabled", "training.dtype", bf16),                                     \
        IDLE(block_ ".immediate_grad_update", "gradients are reduced as soon as they are formed"),           \
        IDLE(block_ ".check_grad_overflow", "training.on_nonfinite chooses: skip, or stop"),                 \
        ONLY(block_ ".bf16_master_weights_and_grads", "false", "masters are fp32; leave it out"),            \
        ONLY(block_ ".bf16_optimizer_states", "false", "optimizer state is fp32; leave it out")

#endif
