# Installs the filter at "program" (struct sock_fprog) and turns itself into its arguments.
# as loader-x86_64.s -o l.o; objcopy -O binary -j .text l.o l.bin; base64 l.bin
# close(197): the descriptor of this very program, which the command must not be able to open for writing
        mov     $3, %eax
        mov     $197, %edi
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
        jnz     1f
# prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
        mov     $157, %eax
        mov     $22, %edi
        mov     $2, %esi
        lea     program(%rip), %rdx
        syscall
        test    %rax, %rax
        jnz     1f
# execve(argv[1], argv + 1, envp)
        mov     (%rsp), %rax
        lea     16(%rsp), %rsi
        lea     16(%rsp,%rax,8), %rdx
        mov     (%rsi), %rdi
        mov     $59, %eax
        syscall
        lea     2f(%rip), %rsi
        mov     $3f-2f, %edx
        jmp     5f
1:      lea     3f(%rip), %rsi
        mov     $4f-3f, %edx
# write(2, message, length); exit(126)
5:      mov     $1, %eax
        mov     $2, %edi
        syscall
        mov     $60, %eax
        mov     $126, %edi
        syscall
2:      .ascii  "bareboat: the command cannot be started in the container\n"
3:      .ascii  "bareboat: this kernel does not take a seccomp filter\n"
4:
        .balign 8
program:
