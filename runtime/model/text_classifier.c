/* text_classifier.c - the small classifier of texts as a page. */
#include "runtime/model/architectures.h"

#include "proto/base/error.h"
#include "runtime/model/program.h"

/* Deviation of a table's elements. A mean over many rows is that much smaller. */
#define INIT_STD 0.1

static int classifier_check(const struct text_classifier_config *c, struct muster_error *err)
{
    const struct size_limit limits[] = {{"vocabulary", c->vocabulary, 2, 1 << 20},
                                        {"channels", c->channels, 1, 65536},
                                        {"hidden", c->hidden, 0, 1 << 20},
                                        {"num_classes", c->classes, 2, 65536},
                                        {"positions", c->max_positions, 1, 1 << 20}};
    return writer_check_sizes(limits, sizeof limits / sizeof *limits, err);
}

struct model *text_classifier_create(const struct text_classifier_config *c, struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "text_classifier", NULL};
    if (classifier_check(c, err) < 0)
        return NULL;
    struct writer w = writer_begin("text_classifier-%d", c->channels);
    int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    int lengths = writer_input(&w, "lengths", DTYPE_I32, false, 1);
    int labels = writer_input(&w, "labels", DTYPE_I32, false, 1);

    int embedding = program_layer(&w, "embedding");
    int table = program_parameter(&w, "weight", c->vocabulary, c->channels, PARAM_INIT_NORMAL, INIT_STD);
    program_result(&w, program_dropped(&w, program_embedding(&w, tokens, table, -1), c->dropout));

    (void)program_layer(&w, "classifier");
    program_prefix(&w, "");
    int h = program_mean(&w, program_input(&w, embedding), lengths);
    h = program_relu(&w, program_drawn_linear(&w, h, c->hidden ? c->hidden : c->channels, "fc1"));
    program_classes(&w, program_dropped(&w, h, c->dropout), c->classes, "fc2", labels);

    struct model *model = writer_finish(&w, err);
    if (model) {
        model->max_positions = c->max_positions;
        model->metadata = metadata;
    }
    return model;
}
