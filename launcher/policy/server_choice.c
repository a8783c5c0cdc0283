/* server_choice.c - see server_choice.h. */
#include "launcher/policy/server_choice.h"

#include <string.h>
#include <strings.h>

#include "proto/base/address.h"

static bool is_given(const char *text)
{
    return text && *text;
}

/* Names have no case, and may end in a dot. */
static bool same_name(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    a_length -= a_length && a[a_length - 1] == '.';
    b_length -= b_length && b[b_length - 1] == '.';
    return a_length && a_length == b_length && !strncasecmp(a, b, a_length);
}

/* Whether the address is this node's: this machine has it, even if the node has another address for the
 * others. Loopback addresses alone are every node's of a machine (pods of muster local): there the node's own
 * counts if it is a loopback address, too. Where several nodes of a machine have the address, the first that
 * binds its port serves. */
bool server_choice_is_ours(const struct server_question *question, const char *address)
{
    const char *own = question->local_addr;
    if (is_given(own) && address_is_loopback(own) && address_is_loopback(address))
        return address_same(address, own);
    return question->is_local(address) || (is_given(own) && address_same(address, own));
}

enum server_choice server_choose(const struct server_question *question)
{
    const char *endpoint = question->endpoint;
    bool numeric = address_is_numeric(endpoint);
    if (question->is_host > 0)
        return SERVER_CHOICE_SERVE;
    if (question->is_host == 0)
        return numeric ? SERVER_CHOICE_JOIN : SERVER_CHOICE_RESOLVE;
    if (numeric)
        return server_choice_is_ours(question, endpoint) ? SERVER_CHOICE_SERVE : SERVER_CHOICE_JOIN;
    bool named = same_name(endpoint, question->host_name) || same_name(endpoint, question->full_name) ||
                 (is_given(question->local_addr) && same_name(endpoint, question->local_addr));
    return named ? SERVER_CHOICE_SERVE : SERVER_CHOICE_RESOLVE;
}

bool server_choose_resolved(const struct server_question *question,
                            const char *(*address)(const void *context, int index), const void *context)
{
    const char *found;
    if (question->is_host >= 0)
        return question->is_host > 0;
    for (int i = 0; (found = address(context, i)); i++)
        if (server_choice_is_ours(question, found))
            return true;
    return false;
}

bool server_choice_joins_holder(bool elastic, bool must_serve, bool same_program)
{
    return elastic && !must_serve && same_program;
}
