/* tree_no_yaml.c - in the place of tree_yaml.c where libmuster is built alone, without libyaml: JSON is read,
 * and all else is an error. */
#include "proto/base/error.h"
#include "proto/tree/tree_internal.h"

int tree_parse_yaml(const char *name, const char *text, size_t length, struct tree *tree,
                    struct tree_stop *stop, struct muster_error *err)
{
    (void)text;
    (void)length;
    (void)tree;
    *stop = (struct tree_stop){.line = 1, .column = 1};
    return error_set(
        err, MUSTER_E_INVALID,
        "%s: it is not JSON, and this libmuster was built without YAML (MUSTER_LIBRARY_ONLY): give "
        "it as JSON, or build all of muster",
        name);
}
