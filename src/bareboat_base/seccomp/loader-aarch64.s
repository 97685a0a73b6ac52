// Installs the filter at "program" (struct sock_fprog) and turns itself into its arguments.
// aarch64-linux-gnu-as loader-aarch64.s -o l.o; aarch64-linux-gnu-objcopy -O binary -j .text l.o l.bin; base64 l.bin
// close(197): the descriptor of this very program, which the command must not be able to open for writing
        mov     x8, #57
        mov     x0, #197
        svc     #0
// prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        mov     x8, #167
        mov     x0, #38
        mov     x1, #1
        mov     x2, #0
        mov     x3, #0
        mov     x4, #0
        svc     #0
        cbnz    x0, 1f
// prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
        mov     x8, #167
        mov     x0, #22
        mov     x1, #2
        adr     x2, program
        svc     #0
        cbnz    x0, 1f
// execve(argv[1], argv + 1, envp)
        ldr     x9, [sp]
        add     x1, sp, #16
        add     x2, x1, x9, lsl #3
        ldr     x0, [x1]
        mov     x8, #221
        svc     #0
        adr     x1, 2f
        mov     x2, #3f-2f
        b       5f
1:      adr     x1, 3f
        mov     x2, #4f-3f
// write(2, message, length); exit(126)
5:      mov     x8, #64
        mov     x0, #2
        svc     #0
        mov     x8, #93
        mov     x0, #126
        svc     #0
2:      .ascii  "bareboat: the command cannot be started in the container\n"
3:      .ascii  "bareboat: this kernel does not take a seccomp filter\n"
4:
        .balign 8
program:
