# `cmake --install`: programs, library, headers, and how other builds find them: muster.pc and find_package(muster).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/muster)

set(programs muster muster-train)
if(MUSTER_LIBRARY_ONLY)
  set(programs "")
endif()
muster_same_rpath(libmuster ${programs})
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS libmuster EXPORT muster-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# muster.h finds muster_error.h below itself, as in the tree
install(FILES runtime/include/muster.h runtime/include/muster_model.h runtime/include/muster_shard.h
  runtime/include/muster_trainer.h runtime/include/muster_world.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES proto/include/muster_error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/proto/include)

set_target_properties(libmuster PROPERTIES EXPORT_NAME muster)
install(EXPORT muster-targets NAMESPACE muster:: DESTINATION ${package_folder})
file(WRITE ${CMAKE_BINARY_DIR}/muster-config.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/muster-targets.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/muster-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/muster-config.cmake ${CMAKE_BINARY_DIR}/muster-config-version.cmake
  DESTINATION ${package_folder})

# What muster-train's user reads; its references are also printed by --settings and --keys.
file(GLOB manual_pages ${CMAKE_SOURCE_DIR}/trainer/docs/*.md)
install(FILES ${manual_pages} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/muster)

# The prefix follows the file, so that an installed tree can be moved and --prefix can name any.
file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" up ${up})
file(WRITE ${CMAKE_BINARY_DIR}/muster.pc "prefix=\${pcfiledir}/${up}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: muster
Description: training of sharded models on the ranks of a job
Version: ${PROJECT_VERSION}
Libs: -L\${libdir} -lmuster
Cflags: -I\${includedir}
")
install(FILES ${CMAKE_BINARY_DIR}/muster.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
