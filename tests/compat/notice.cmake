# A DDP script that saves when a stop is announced.
muster_script_test(compat_notice COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/notice_torch_test.py LABELS compat)
