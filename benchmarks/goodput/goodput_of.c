/* goodput_of.c - the page's definition of goodput (launcher/policy/goodput.h) for the runs of goodput.py,
 * peers' included.
 *
 *     goodput_of STARTED_MS ENDED_MS
 *
 * Reads a line a round, "FIRST_STEP LAST_STEP FIRST_MS LAST_MS", and prints "goodput SHARE again STEPS". */
#include <stdio.h>

#include "launcher/policy/goodput.h"
#include "proto/base/text.h"

enum { ROUNDS = 4096 };

int main(int argc, char *argv[])
{
    static struct goodput_round rounds[ROUNDS];
    int64_t started, ended;
    long long numbers[4];
    int count = 0;
    if (argc != 3 || !text_int64(argv[1], &started) || !text_int64(argv[2], &ended)) {
        (void)fprintf(stderr, "usage: goodput_of STARTED_MS ENDED_MS < ROUNDS\n");
        return 2;
    }
    while (count < ROUNDS &&
           scanf("%lld %lld %lld %lld", &numbers[0], &numbers[1], &numbers[2], &numbers[3]) == 4)
        rounds[count++] = (struct goodput_round){numbers[0], numbers[1], numbers[2], numbers[3]};
    return printf("goodput %.6f again %lld\n", goodput_of(rounds, count, started, ended),
                  (long long)goodput_steps_again(rounds, count)) < 0;
}
