# muster local: what pods a manifest becomes.
muster_script_test(e2e_local_dry_run COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/local_dry_run_test.py)
