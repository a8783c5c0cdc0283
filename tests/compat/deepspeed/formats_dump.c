/* formats_dump - prints the batch sizes that trainer/formats computes and the keys that it knows, for
 * config_test.py to compare with DeepSpeed.
 *
 *     formats_dump keys                 a key a line; keys of optimizers, schedulers after "parameters"
 *     formats_dump batches < LINES      TOTAL MICRO ACCUMULATION RANKS STRICT, 0 for a missing value;
 * prints the sizes, or "refused"
 */
#include <stdio.h>
#include <string.h>

#include "trainer/formats/formats_internal.h"

static void print_keys(const struct key_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        printf("%s\n", table->rows[i].path);
}

static void print_batch(const struct batch_sizes *given, int ranks, bool strict)
{
    struct batch_sizes sizes = *given;
    bool changed;
    if (batch_complete(&sizes, ranks, strict, &changed, NULL) < 0)
        printf("refused\n");
    else
        printf("%lld %lld %lld\n", (long long)sizes.total, (long long)sizes.micro,
               (long long)sizes.accumulation);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "keys")) {
        print_keys(&deepspeed_keys);
        printf("parameters\n");
        print_keys(deepspeed_params);
        return 0;
    }
    if (argc != 2 || strcmp(argv[1], "batches") != 0) {
        fprintf(stderr, "usage: formats_dump keys | batches\n");
        return 2;
    }
    long long total, micro, accumulation;
    int ranks, strict;
    while (scanf("%lld %lld %lld %d %d", &total, &micro, &accumulation, &ranks, &strict) == 5)
        print_batch(&(struct batch_sizes){total, micro, accumulation}, ranks, strict != 0);
    return 0;
}
