# Workers that are told of a planned stop before it comes.
muster_script_test(e2e_notice COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/notice_test.py)
