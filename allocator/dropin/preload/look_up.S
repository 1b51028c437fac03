// dlsym(), in front of the loader's. It calls vdnn_preload_look_up(library, name, caller) first. If that
// returns null, it jumps to the loader's dlsym(), which must see the return address of the original caller:
// RTLD_NEXT means the libraries after that caller.

#if defined(__x86_64__)

#include <cet.h>

  .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  _CET_ENDBR
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  movq 16(%rsp), %rdx
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call vdnn_preload_look_up
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jne 1f
  jmp *vdnn_preload_next_dlsym(%rip)
1:
  ret
  .cfi_endproc
  .size dlsym, . - dlsym

#elif defined(__aarch64__)

  .text
  .globl dlsym
  .type dlsym, %function
dlsym:
  .cfi_startproc
  hint #34  // bti c
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  mov x29, sp
  stp x0, x1, [sp, #16]
  mov x2, x30
  bl vdnn_preload_look_up
  cbnz x0, 1f
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_remember_state
  .cfi_restore 29
  .cfi_restore 30
  .cfi_def_cfa_offset 0
  adrp x16, vdnn_preload_next_dlsym
  ldr x16, [x16, #:lo12:vdnn_preload_next_dlsym]
  br x16
1:
  .cfi_restore_state
  ldp x29, x30, [sp], #32
  .cfi_restore 29
  .cfi_restore 30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size dlsym, . - dlsym

#else
#error "libvdnn_preload.so: the calling convention of this processor is not supported"
#endif

  .section .note.GNU-stack, "", %progbits
