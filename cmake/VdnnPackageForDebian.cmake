# cpack runs this on the files of the package. Debian uses another folder for zsh's completions than `cmake --install`,
# and compresses man pages. The script also sets the permissions of folders: CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
# does not apply to parent folders of installed files, which get theirs from the umask.
file(CHMOD_RECURSE ${CPACK_TEMPORARY_DIRECTORY}/usr DIRECTORY_PERMISSIONS
     OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(share ${CPACK_TEMPORARY_DIRECTORY}/usr/share)
if(EXISTS ${share}/zsh/site-functions)
  file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
endif()
file(GLOB pages ${share}/man/man1/*.1)
if(pages)
  execute_process(COMMAND gzip -9 -n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
