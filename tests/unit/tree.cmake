muster_test(tree_test SOURCES tree_test.c LINK muster_tree)
