/* board_fuzz.c - arbitrary bytes as a note and as a board: refused with a reason, or taken within the limits
 * and rendered as JSON that is read again. */
#include <stdlib.h>
#include <string.h>

#include "launcher/board/board_json.h"
#include "tests/fuzz/random_main.h"

static void note(const char *text, size_t size)
{
    static struct board_note_read got;
    struct muster_error err = {0};
    int failed = board_note_read(text, size, 1000, &got, &err);
    if (failed && !err.text[0])
        abort();
    if (failed) {
        board_node_clear(&got.node);
        return;
    }
    struct board *board = board_create(0);
    struct buffer out = {0};
    if (!board)
        abort();
    board_world(board, &(struct board_world){.round = 1, .nodes = 1, .world_size = 1}, 500);
    board_take(board, &got.node, 2000);
    board_history(board, got.rounds, got.round_count, got.started_at);
    board_points(board, 0, got.points, got.point_count);
    board_json(board, 3000, true, &out);
    struct board *again = board_read("again", out.data, out.length, 3000, &err);
    if (!again)
        abort();
    board_free(again);
    board_free(board);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_error err = {0};
    note((const char *)data, size);
    struct board *board = board_read("board", (const char *)data, size, 1000, &err);
    if (!board && !err.text[0])
        abort();
    if (board) {
        (void)board_goodput(board, 2000);
        (void)board_slowest(board);
        board_free(board);
    }
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char a_note[] =
        "{\"note\":1,\"node\":{\"host\":\"h\",\"group_rank\":0,\"round\":1,\"state\":\"RUNNING\",\"start_"
        "ms\":3,\"warnings\":[\"w\"],"
        "\"ranks\":[{\"rank\":0,\"local_rank\":0,\"pid\":7,\"state\":\"failed\",\"signal\":9,\"step\":5,"
        "\"ended_ms\":4,"
        "\"figures\":{\"loss\":1.5,\"own\":2},\"lines\":\"a\\nb\"}]},\"points\":[[5,1,0.5,null,3,4]],"
        "\"started_at\":900,\"rounds\":[{\"round\":0,\"epoch\":\"ff\",\"formed_at\":800,\"stop_at\":100}]}";
    static const char a_board[] = "{\"job\":\"j\",\"now\":5,\"started_at\":1,\"over\":false,\"rounds\":[{"
                                  "\"round\":0,\"formed_at\":2,\"first_step\":1,"
                                  "\"last_step\":3,\"first_step_at\":2,\"last_step_at\":4,\"planned\":true,"
                                  "\"cause\":\"c\"}],\"points\":[[1,2,3,4,5,6]],"
                                  "\"nodes\":[{\"host\":\"h\",\"ranks\":[{\"rank\":1,\"local_rank\":1}]}]}";
    const struct fuzz_seed seeds[] = {{a_note, sizeof a_note - 1}, {a_board, sizeof a_board - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
