muster_test(base_error_test SOURCES base_error_test.c LINK muster_base)
muster_test(base_knob_test SOURCES base_knob_test.c LINK muster_base)
muster_test(base_knob_args_test SOURCES base_knob_args_test.c LINK muster_base)
muster_test(base_text_test SOURCES base_text_test.c LINK muster_base)
