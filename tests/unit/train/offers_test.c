/* offers_test.c - the common means of computing and communication, from the means of each rank. */
#include "tests/support/cmocka_all.h"

#include <string.h>

#include "runtime/train/offers.h"

enum { RANKS = 4 };

static struct rank_offer gpu(const char *host, const char *place)
{
    struct rank_offer o = {.device = "cuda", .nccl = true};
    strcpy(o.host, host);
    strcpy(o.gpu, place);
    return o;
}

static struct comm_chosen chosen;
static struct muster_error err;

/* Two hosts of two GPUs each. */
static void good(struct rank_offer offers[RANKS])
{
    static const char *const hosts[] = {"a", "a", "b", "b"}, *const places[] = {"0", "1", "0", "1"};
    for (int r = 0; r < RANKS; r++)
        offers[r] = gpu(hosts[r], places[r]);
    chosen = (struct comm_chosen){0};
    err = (struct muster_error){0};
}

static void gpus_of_their_own_use_nccl(void **state)
{
    struct rank_offer offers[RANKS];
    (void)state;
    good(offers);
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), 0);
    assert_true(chosen.nccl);
    assert_string_equal(chosen.why, "");
    for (int r = 0; r < RANKS; r++)
        offers[r].comm = OFFER_COMM_HOST;
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), 0);
    assert_false(chosen.nccl);
    offers[0].comm = OFFER_COMM_AUTO;
    assert_int_equal(offers_choose(offers, 1, &chosen, &err), 0); /* nobody to move data to */
    assert_false(chosen.nccl);
}

static void one_without_nccl_decides_for_all_and_is_named(void **state)
{
    struct rank_offer offers[RANKS];
    (void)state;
    good(offers);
    offers[2].nccl = false;
    strcpy(offers[2].missing, "libnccl.so.2 is too old");
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), 0);
    assert_false(chosen.nccl);
    assert_string_equal(chosen.why, "rank 2 on b has no NCCL: libnccl.so.2 is too old");
    for (int r = 0; r < RANKS; r++)
        offers[r].comm = OFFER_COMM_NCCL;
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), -1);
    assert_string_equal(err.text, "training.comm: nccl: rank 2 on b has no NCCL: libnccl.so.2 is too old");
}

static void ranks_that_share_a_gpu_do_not_use_nccl(void **state)
{
    struct rank_offer offers[RANKS];
    (void)state;
    good(offers);
    strcpy(offers[3].gpu, "0");
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), 0);
    assert_false(chosen.nccl);
    assert_string_equal(chosen.why, "ranks 2 and 3 share a GPU of b, which NCCL refuses");
    for (int r = 0; r < RANKS; r++)
        offers[r].comm = OFFER_COMM_NCCL;
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), -1);
    assert_non_null(strstr(err.text, "ranks 2 and 3 share a GPU of b"));
    *offers[2].gpu = *offers[3].gpu = '\0'; /* not known */
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), 0);
    assert_true(chosen.nccl);
}

static void what_cannot_train_together_is_refused(void **state)
{
    struct rank_offer offers[RANKS];
    (void)state;
    good(offers);
    strcpy(offers[3].device, "cpu");
    strcpy(offers[3].missing, "there is no driver");
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_string_equal(
        err.text, "rank 0 on a computes on cuda, but rank 3 on b on cpu (there is no driver); give rank "
                  "3 what it lacks, or set training.device: cpu");
    good(offers);
    strcpy(offers[0].device, "cpu");
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), -1);
    assert_non_null(
        strstr(err.text, "rank 1 on a computes on cuda, but rank 0 on a on cpu (libmuster_cuda.so"));
    good(offers);
    offers[1].comm = OFFER_COMM_HOST;
    assert_int_equal(offers_choose(offers, RANKS, &chosen, &err), -1);
    assert_non_null(strstr(err.text, "rank 0 on a has training.comm: auto, but rank 1 on a has host"));
}

static void texts_go_there_and_back(void **state)
{
    struct rank_offer offer = gpu("a host", "0000:01:00 of a boot"), back;
    scope_buffer text = {0};
    (void)state;
    offer.comm = OFFER_COMM_NCCL;
    strcpy(offer.missing, "this, and: that");
    assert_int_equal(offer_print(&offer, &text), 0);
    assert_int_equal(offer_read(text.data, &back), 0);
    assert_memory_equal(&back, &offer, sizeof back);
    offer = (struct rank_offer){.host = "b", .device = "cpu"};
    buffer_clear(&text);
    assert_int_equal(offer_print(&offer, &text), 0);
    assert_int_equal(offer_read(text.data, &back), 0);
    assert_memory_equal(&back, &offer, sizeof back);
    assert_int_equal(offer_read("a\ncuda\n", &back), -1);
    assert_int_equal(offer_read("a\na device with a very long name\n\nauto\n\n", &back), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_of_their_own_use_nccl),
        cmocka_unit_test(one_without_nccl_decides_for_all_and_is_named),
        cmocka_unit_test(ranks_that_share_a_gpu_do_not_use_nccl),
        cmocka_unit_test(what_cannot_train_together_is_refused),
        cmocka_unit_test(texts_go_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
