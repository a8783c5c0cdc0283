/* board_file.c - see board_file.h. */
#include "launcher/board/board_file.h"

#include <errno.h>
#include <unistd.h>

#include "launcher/board/board_json.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

struct board_file {
    char *path;
    struct buffer text;
    struct board *found; /* what was read */
    struct muster_error err;
};

char *board_file_path(const char *directory, const char *job)
{
    return mem_printf("%s/%s" BOARD_FILE_SUFFIX, directory, job);
}

static void file_free(void *payload)
{
    struct board_file *file = payload;
    mem_free(file->path);
    buffer_free(&file->text);
    board_free(file->found);
    mem_free(file);
}

static void write_board(void *payload)
{
    struct board_file *file = payload;
    (void)io_write_file_atomic(file->path, file->text.data, file->text.length, 0644,
                               &file->err); /* err tells */
}

struct background_job *board_file_write(const char *directory, const struct board *board, int64_t now,
                                        struct board_file **file, struct muster_error *err)
{
    struct board_file *made = *file = mem_calloc(1, sizeof *made);
    if (made) {
        made->path = board_file_path(directory, board->job);
        board_json(board, now, true, &made->text);
    }
    if (!made || !made->path || made->text.failed) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the board's file");
        if (made)
            file_free(made);
        return NULL;
    }
    return background_job_start("saving the job's board", write_board, made, file_free, err);
}

static void load_board(void *payload)
{
    struct board_file *file = payload;
    if (access(file->path, F_OK) == 0 || errno != ENOENT)
        file->found = board_file_read(file->path, &file->err);
}

struct background_job *board_file_load(const char *directory, const char *job, struct board_file **file,
                                       struct muster_error *err)
{
    struct board_file *made = *file = mem_calloc(1, sizeof *made);
    if (made)
        made->path = board_file_path(directory, job);
    if (!made || !made->path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the board's file");
        mem_free(made);
        return NULL;
    }
    return background_job_start("reading the job's board", load_board, made, file_free, err);
}

struct board *board_file_take(struct board_file *file)
{
    return take_pointer(&file->found);
}

const struct muster_error *board_file_error(const struct board_file *file)
{
    return &file->err;
}

struct board *board_file_read(const char *path, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, BOARD_JSON_LIMIT, &text, err) < 0)
        return NULL;
    return board_read(path, text.data ? text.data : "", text.length, clock_wall_ns() / NS_PER_MS, err);
}
