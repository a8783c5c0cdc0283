# The archive that drops into any image, built and run where nothing else is installed.
muster_script_test(e2e_bundle COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/bundle_test.py Archive Dockerfile FewFiles)
muster_script_test(e2e_bundle_debian COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/bundle_test.py CleanDebian LABELS full TIMEOUT 1800 MACHINE_NETWORK)
