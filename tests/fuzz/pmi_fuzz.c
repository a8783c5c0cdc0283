/* pmi_fuzz.c - arbitrary bytes from MPI processes and from other nodes: refused with a reason, or answered by
 * whole lines. The first byte of a piece names the rank or the other nodes. */
#include <stdlib.h>
#include <string.h>

#include "launcher/pmi/pmi.h"
#include "tests/fuzz/random_main.h"

enum { RANKS = 3, OTHERS = RANKS };

static void look_at_replies(struct pmi *pmi, int rank)
{
    struct buffer *replies = pmi_replies(pmi, rank);
    if (replies->length &&
        (memcmp(replies->data, "cmd=", 4) != 0 || replies->data[replies->length - 1] != '\n'))
        abort();
    buffer_clear(replies);
}

/* The other node comes to each exchange, as it should. */
static void meet(struct pmi *pmi)
{
    struct muster_error err = {0};
    struct buffer *own;
    if (pmi_due_exchange(pmi, &own) < 0)
        return;
    struct buffer all = {0};
    if (buffer_append(&all, own->data, own->length) < 0 || buffer_text(&all, "@1 3 2\nkey=value\n") < 0 ||
        pmi_take_exchange(pmi, all.data, all.length, &err) < 0)
        abort(); /* what this node tells is always taken */
    buffer_free(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_error err = {0};
    const struct pmi_place place = {.nodes = 2, .local = RANKS, .world = RANKS + 2, .name = "job"};
    struct pmi *pmi = pmi_create(&place, &err);
    while (pmi && size) {
        const int from = data[0] % (RANKS + 1);
        const uint8_t *end = memchr(data + 1, 0xff, size - 1);
        const size_t length = end ? (size_t)(end - data) - 1 : size - 1;
        err.text[0] = '\0';
        const int result = from == OTHERS ? pmi_take_exchange(pmi, (const char *)data + 1, length, &err)
                                          : pmi_take(pmi, from, (const char *)data + 1, length, &err);
        if (result < 0 && from == OTHERS) {
            if (!err.text[0])
                abort();
            break; /* the round is given up */
        }
        if (from != OTHERS)
            look_at_replies(pmi, from);
        meet(pmi);
        for (int i = 0; i < RANKS; i++)
            look_at_replies(pmi, i);
        while (pmi_take_note(pmi).kind)
            ;
        data += 1 + length + (end ? 1 : 0);
        size -= 1 + length + (end ? 1 : 0);
    }
    pmi_destroy(pmi);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char whole[] =
        "\0cmd=init pmi_version=1 pmi_subversion=1\n\377"
        "\1cmd=init pmi_version=1 pmi_subversion=1\n\377"
        "\2cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=k key=a value=b\n\377"
        "\0cmd=get kvsname=k key=a\ncmd=barrier_in\n\377\1cmd=barrier_in\n\377"
        "\2cmd=barrier_in\n\377\0cmd=finalize\n\377";
    static const char other[] =
        "\3@0 0 3\n@1 3 2\na=b\n\377\0mcmd=spawn\nnprocs=1\nendcmd\ncmd=abort exitcode=1\n";
    const struct fuzz_seed seeds[] = {{whole, sizeof whole - 1}, {other, sizeof other - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
