/* reader_internal.h - file helpers of the reader, and the parts that fill a description. */
#ifndef MUSTER_RUNTIME_NCCL_READ_READER_INTERNAL_H
#define MUSTER_RUNTIME_NCCL_READ_READER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/nccl/read/reader.h"

struct reader {
    const struct reader_options *options;
    struct description *out;
    bool failed; /* no memory */
};

enum { READER_PATH = 512 };

/* The path below root; false where it is too long. */
bool reader_path(const struct reader *r, char path[READER_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The first line of a file without surrounding blanks; "" and false if it cannot be read. */
bool reader_line(const struct reader *r, char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A whole number in a file (0x too); otherwise where it cannot be read. */
int64_t reader_number(const struct reader *r, int64_t otherwise, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The last part of a link's target; "" where there is none. */
bool reader_link(const struct reader *r, char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool reader_exists(const struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Calls each for the entries of a directory in the order of their names (numbers by value), dot entries left
 * out. */
void reader_each(struct reader *r, const char *directory,
                 void (*each)(struct reader *r, const char *name, void *context), void *context);
/* Room for one more item of a list that grew by this alone (zeroed), or NULL (r->failed; `omitted` is counted
 * beyond the limit). */
void *reader_grow(struct reader *r, void *items_pointer, int *count, size_t size);
/* text into a field, truncated if too long. */
void reader_set(char *field, size_t size, const char *text);
#define READER_SET(field, text) reader_set(field, sizeof(field), text)

void reader_interfaces(struct reader *r);
void reader_routes(struct reader *r);
void reader_rdma(struct reader *r);
void reader_host(struct reader *r);
void reader_limits(struct reader *r);
void reader_driver(struct reader *r);
void reader_python(struct reader *r); /* if no library was found before */
void reader_gpus(struct reader *r);   /* after reader_driver, which counts /dev/nvidia<n> */
void reader_settings(struct reader *r);

#endif
