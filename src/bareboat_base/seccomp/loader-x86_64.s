# The first program in a container: installs the filter at "program" (struct sock_fprog) and turns itself into its
# arguments. It lets through the signals that start-x86_64.s blocked, searches PATH as execvp(3) does, and ends as a
# shell does: with 127 where there is no such program, with 126 where it cannot be executed.
# as loader-x86_64.s -o l.o; objcopy -O binary -j .text l.o l.bin; base64 l.bin
        mov     (%rsp), %rax
        lea     16(%rsp), %r12
        lea     16(%rsp,%rax,8), %r13
        lea     -8192(%rsp), %rsp
# close(197): the descriptor of this very program, which the command must not be able to open for writing
        mov     $3, %eax
        mov     $197, %edi
        syscall
# rt_sigprocmask(SIG_UNBLOCK, &signals, NULL, 8)
        mov     $14, %eax
        mov     $1, %edi
        lea     signals(%rip), %rsi
        xor     %edx, %edx
        mov     $8, %r10d
        syscall
# prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        mov     $157, %eax
        mov     $38, %edi
        mov     $1, %esi
        xor     %edx, %edx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        syscall
        test    %rax, %rax
        jnz     unfiltered
# prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
        mov     $157, %eax
        mov     $22, %edi
        mov     $2, %esi
        lea     program(%rip), %rdx
        syscall
        test    %rax, %rax
        jnz     unfiltered
# A name without a slash is searched: r14 goes through PATH, or the default one. With one, r14 is an empty PATH.
        mov     $127, %r15d
        mov     (%r12), %rbx
        lea     none(%rip), %r14
        mov     %rbx, %rdi
1:      mov     (%rdi), %al
        inc     %rdi
        cmp     $'/', %al
        je      try
        test    %al, %al
        jnz     1b
        cmp     %al, (%rbx)
        je      failed
        lea     default(%rip), %r14
        mov     %r13, %rdi
2:      mov     (%rdi), %rsi
        add     $8, %rdi
        test    %rsi, %rsi
        jz      try
        cmpl    $0x48544150, (%rsi)
        jne     2b
        cmpb    $'=', 4(%rsi)
        jne     2b
        lea     5(%rsi), %r14
# The next directory, a slash and the name: at rsp, up to rbp.
try:    mov     %rsp, %rdi
        lea     4096(%rsp), %rbp
3:      mov     (%r14), %al
        test    %al, %al
        jz      4f
        cmp     $':', %al
        je      4f
        inc     %r14
        cmp     %rbp, %rdi
        jae     3b
        stosb
        jmp     3b
4:      cmp     %rsp, %rdi
        je      5f
        mov     $'/', %al
        stosb
5:      mov     %rbx, %rsi
6:      cmp     %rbp, %rdi
        jae     next
        lodsb
        stosb
        test    %al, %al
        jnz     6b
# execve(the path, argv + 1, envp)
        mov     %rsp, %rdi
        mov     %r12, %rsi
        mov     %r13, %rdx
        mov     $59, %eax
        syscall
# ENOEXEC: a script without a first line is one for /bin/sh
        cmp     $-8, %rax
        jne     7f
        lea     shell(%rip), %rdi
        lea     -8(%r12), %rsi
        mov     %rdi, (%rsi)
        mov     %rsp, 8(%rsi)
        mov     %r13, %rdx
        mov     $59, %eax
        syscall
        mov     %rbx, (%r12)
# ENOENT, ENOTDIR: perhaps the next one
7:      cmp     $-2, %rax
        je      next
        cmp     $-20, %rax
        je      next
        mov     $126, %r15d
# EACCES: the same, but this is the answer if there is no other
        cmp     $-13, %rax
        jne     failed
next:   mov     (%r14), %al
        inc     %r14
        test    %al, %al
        jnz     try
# write(2, "bareboat: "), the name, what is wrong; exit(r15)
failed: lea     ours(%rip), %rsi
        mov     $unfit-ours, %edx
        call    write
        mov     %rbx, %rsi
        xor     %edx, %edx
8:      cmpb    $0, (%rsi,%rdx)
        je      9f
        inc     %edx
        jmp     8b
9:      call    write
        lea     absent(%rip), %rsi
        mov     $kernel-absent, %edx
        cmp     $127, %r15d
        je      10f
        lea     unfit(%rip), %rsi
        mov     $absent-unfit, %edx
10:     call    write
exit:   mov     $60, %eax
        mov     %r15d, %edi
        syscall
unfiltered:
        lea     kernel(%rip), %rsi
        mov     $last-kernel, %edx
        mov     $126, %r15d
        jmp     10b
write:  mov     $1, %eax
        mov     $2, %edi
        syscall
        ret
none:   .byte   0
default: .asciz "/bin:/usr/bin"
shell:  .asciz  "/bin/sh"
ours:   .ascii  "bareboat: "
unfit:  .ascii  ": the command cannot be executed in the container\n"
absent: .ascii  ": command not found in the container\n"
kernel: .ascii  "bareboat: this kernel does not take a seccomp filter\n"
last:
        .balign 8
# SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGURG
signals: .quad  0x404a07
program:
