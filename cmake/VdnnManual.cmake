# Lets the command (VDNN) write completion scripts and man pages into FOLDER.
file(MAKE_DIRECTORY ${FOLDER}/man1)
foreach(shell bash zsh fish)
  execute_process(COMMAND ${VDNN} completion ${shell} OUTPUT_FILE ${FOLDER}/${shell} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${VDNN} manual --man ${FOLDER}/man1 COMMAND_ERROR_IS_FATAL ANY)
